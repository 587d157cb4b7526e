# SPDX-License-Identifier: Apache-2.0
"""The identity of a host: which machine answers, as far as the marks of all hosts tell."""

import pytest

from vgpuctl.model.host_identity import Marks, boot_mark, find_other, name_mark


def marks(*names: str) -> Marks:
    return frozenset(names)


FIRST = marks("boot:1", "name:gpu1", "machine-id:a", "gpu:A")
SECOND = marks("boot:2", "name:gpu2", "machine-id:b", "gpu:B")
KNOWN = {"gpu1": FIRST, "gpu2": SECOND}
CLONES = {
    "gpu1": marks("boot:1", "name:kvm", "machine-id:x", "gpu:A"),
    "gpu2": marks("boot:2", "name:kvm", "machine-id:x"),
}


@pytest.mark.parametrize(
    ("seen", "other"),
    [
        pytest.param(FIRST, None, id="itself"),
        pytest.param(SECOND, "gpu2", id="swapped"),
        pytest.param(SECOND - {"boot:2"} | {"boot:9"}, "gpu2", id="swapped and booted"),
        pytest.param(marks("name:gpu2"), "gpu2", id="libvirt of the other"),
        pytest.param(marks("name:gpu1"), None, id="its own libvirt"),
        pytest.param(marks("boot:9", "name:gpu1", "machine-id:a", "gpu:B"), None, id="got the other's card"),
        pytest.param(marks("boot:9", "name:gpu2", "machine-id:a", "gpu:A"), None, id="was named as the other"),
        pytest.param(marks("boot:9", "name:new", "machine-id:c", "gpu:C"), None, id="a new machine"),
    ],
)
def test_the_machine_that_answers_is_told_by_what_only_one_host_has(seen: Marks, other: str | None) -> None:
    assert find_other("gpu1", seen, KNOWN) == other


def test_clones_are_told_by_their_boot_and_their_gpus() -> None:
    assert find_other("gpu1", CLONES["gpu2"], CLONES) == "gpu2"
    assert find_other("gpu2", CLONES["gpu1"], CLONES) == "gpu1"
    booted = marks("boot:9", "name:kvm", "machine-id:x", "gpu:A")
    assert find_other("gpu2", booted, CLONES) == "gpu1"
    assert find_other("gpu1", booted, CLONES) is None
    assert find_other("gpu2", marks("boot:9", "name:kvm", "machine-id:x"), CLONES) is None


def test_a_host_that_was_never_read_may_look_like_another_and_is_not_its_present_boot() -> None:
    clone = marks("boot:9", "name:gpu1", "machine-id:a", "gpu:A")
    assert find_other("gpu3", clone, KNOWN) is None
    assert find_other("gpu3", FIRST, KNOWN) == "gpu1"


def test_a_name_counts_without_its_domain() -> None:
    assert name_mark("GPU1.example.org") == name_mark("gpu1") == "name:gpu1"
    assert boot_mark("1") == "boot:1"
