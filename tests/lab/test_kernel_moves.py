# SPDX-License-Identifier: Apache-2.0
"""The emulated host's vGPUs keep VFIO's migration protocol v2: what a guest wrote goes from one vGPU to another.

Here a test asks the kernel as QEMU does. `make test-moves` has QEMU and libvirt do it, between two hosts.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.lab.kernel_cards import DEVICES, Card, Do, current_type

pytestmark = [
    pytest.mark.usefixtures("without_libvirtd"),
    pytest.mark.long(
        "tests/lab/test_simulated_moves.py::test_a_running_domain_changes_its_host_and_its_device",
        "tests/lab/test_simulated_moves.py::test_a_state_of_another_type_is_refused",
        "tests/lab/test_simulated_moves.py::test_the_source_goes_on_after_a_move_that_fails",
    ),
]

MIB = 1 << 20
LEFT = "0123456789abcdef"
SAVE, LOAD, RUN = "stop-copy", "resuming", "running"
STOP_COPY, P2P = 1, 2

Vgpus = Callable[..., tuple[str, str, list[list[Any]], list[list[Any]]]]


@pytest.fixture
def two(profile: Card) -> Vgpus:
    """Two functions of a card, and operations that make vGPUs on them that are held open, and that end them."""

    def two(*, same_type: bool = True) -> tuple[str, str, list[list[Any]], list[list[Any]]]:
        one = profile.one_type(max_instances=6)
        other = one if same_type else next(
            kind for kind in profile.types
            if kind.framebuffer_mib == one.framebuffer_mib and kind.vdev != one.vdev
        )  # fmt: skip
        names = [profile.function(0), profile.function(1)]
        begin: list[list[Any]] = []
        for number, (name, kind) in enumerate(zip(names, (one, other), strict=True)):
            begin += [
                ["write", current_type(profile, number), str(kind.id)],
                ["vfio-open", f"{DEVICES}/{name}", name],
            ]
        begin.append(["vfio-config-write", names[0], 0x40, LEFT])
        ends = [[word, name] for name in names for word in ("vfio-move-end", "vfio-close")]
        return names[0], names[1], begin, ends

    return two


def fault(card: Card, kind: str, value: int = 1) -> list[str]:
    """Set a fault of the card."""
    return ["control", f"fault {card.address} {kind} {value}"]


def moved(here: str, there: str) -> list[list[Any]]:
    """A move's steps: five answers."""
    return [
        ["vfio-move-state", here, SAVE],
        ["vfio-move-state", there, LOAD],
        ["vfio-move-stream", here, there],
        ["vfio-move-state", there, RUN],
        ["vfio-config", there, 0x40, 8],
    ]


def of_state(lines: list[str]) -> list[tuple[str, str, str, str]]:
    """Of each vGPU: migration state, resets, UUID of its state, generation."""
    words = [dict(word.split("=", 1) for word in line.split()) for line in lines]
    return [(one["migration"], one["resets"], one["state"], one["generation"]) for one in words]


def test_what_a_guest_wrote_goes_along_and_a_reset_clears_it(profile: Card, two: Vgpus, do: Do) -> None:
    here, there, begin, ends = two()
    answers = do(
        *begin,
        ["vfio-move-flags", here],
        ["vfio-move-size", here],
        ["state", "vgpu", profile.address],
        *moved(here, there),
        ["state", "vgpu", profile.address],
        ["vfio-reset", there],
        ["vfio-config", there, 0x40, 8],
        ["state", "vgpu", profile.address],
        ["vfio-dma-log", there],
        *ends,
        ["log"],
    )
    assert answers[: len(begin)] == ["ok"] * 5
    flags, size, before, *steps, after, reset, cleared, emptied, dirty = answers[5 : 5 + 13]
    assert flags & (STOP_COPY | P2P) == STOP_COPY | P2P
    assert steps == ["ok", "ok", size, "ok", LEFT]
    assert MIB < size < MIB + 4096
    (source, target), (still, came), (_, left) = of_state(before), of_state(after), of_state(emptied)
    assert source[:2] == target[:2] == (RUN, "0")
    assert still == (SAVE, *source[1:])
    assert came == (RUN, "0", source[2], "1")
    assert (reset, cleared, left[:2], left[3]) == ("ok", "00" * 8, (RUN, "1"), "0")
    assert left[2] not in (source[2], target[2])
    assert dirty == [0] * 4
    enabled = [
        line for line in answers[-1] if line.endswith("vGPU migration enabled with upstream V2 migration protocol")
    ]
    assert len(enabled) == 2


@pytest.mark.parametrize("early", [False, True])
def test_a_state_of_another_type_is_refused_at_the_end_or_at_once(
    profile: Card, two: Vgpus, do: Do, *, early: bool
) -> None:
    here, there, begin, ends = two(same_type=False)
    answers = do(
        fault(profile, "move-checked-early", int(early)),
        *begin,
        *moved(here, there),
        ["vfio-reset", there],
        ["vfio-config", there, 0x40, 8],
        *ends,
        fault(profile, "move-checked-early", 0),
        ["log"],
    )
    saved, loading, sent, ran, held, reset, cleared = answers[6:13]
    assert (saved, loading, reset, cleared) == ("ok", "ok", "ok", "00" * 8)
    assert (sent, ran, held) == ("EINVAL" if early else sent, "EINVAL", "00" * 8)
    assert isinstance(sent, int) is not early
    assert any("NVRM: vGPU migration: source type 0x" in line for line in answers[-1])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("move-refused", 1, ["EIO"]),
        ("move-read-error", 4096, ["ok", "ok", "EIO"]),
        ("move-header-refused", 1, ["ok", "ok", "EINVAL"]),
        ("move-load-refused", 1, ["ok", "ok", MIB, "EINVAL"]),
        ("move-state", 3, ["ok", "ok", 3 * MIB, "ok", LEFT]),
        ("move-bandwidth", 512, ["ok", "ok", MIB, "ok", LEFT]),
        ("move-sleep", 1, ["ok", "ok", MIB, "ok", LEFT]),
        ("move-unsupported", 1, ["ENOTTY"]),
    ],
)
def test_a_move_fails_as_the_fault_says(
    kind: str, value: int, expected: list[Any], profile: Card, two: Vgpus, do: Do
) -> None:
    here, there, begin, ends = two()
    steps = moved(here, there)[: len(expected)]
    answers = do(fault(profile, kind, value), *begin, *steps, *ends, fault(profile, kind, 0))
    told = answers[6 : 6 + len(expected)]
    assert [one - one % MIB if isinstance(one, int) else one for one in told] == expected
    assert (answers[0], answers[-1]) == ("ok", "ok")


def test_a_vgpu_without_a_log_of_dma_says_so(profile: Card, two: Vgpus, do: Do) -> None:
    here, _, begin, ends = two()
    answers = do(
        fault(profile, "move-untracked"), *begin, ["vfio-dma-log", here], *ends, fault(profile, "move-untracked", 0)
    )
    assert answers[6] == "ENOTTY"


def test_a_fault_of_a_move_that_there_is_not_is_refused(profile: Card, do: Do) -> None:
    assert do(fault(profile, "move-nothing")) == ["EINVAL"]
