# SPDX-License-Identifier: Apache-2.0
"""`inspect-host` prints what a real kernel reports, and changes nothing on the host."""

import json
from typing import Any

import pytest

from tests.e2e.operator import Operator
from tests.e2e.witness import Witness

pytestmark = pytest.mark.kernel_lab


@pytest.fixture(scope="module")
def facts(operator: Operator) -> dict[str, Any]:
    found: dict[str, Any] = operator.json("inspect-host", "gpu1")
    return found


def _gpus(facts: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [gpu for gpu in facts["gpus"] if kind in gpu["sharing"]]


def test_everything_about_the_host_is_what_the_host_says(facts: dict[str, Any], witness: Witness) -> None:
    assert facts["kernel"] == witness.run("uname -r").strip()
    assert facts["hostname"] == "gpu1"
    assert facts["iommu_active"]
    assert facts["libvirt_version"] in witness.run("PATH=/usr/local/sbin:$PATH libvirtd --version")
    assert facts["qemu_version"] in witness.run("qemu-system-x86_64 --version")
    assert facts["nvml_problem"] is None
    assert facts["nvml_version"].endswith(facts["nvidia_driver"])
    assert facts["nvidia_driver"] in witness.run("cat /proc/driver/nvidia/version")
    listed = witness.run("nvidia-smi -L")
    nvidia = [gpu for gpu in facts["gpus"] if gpu["driver"] == "nvidia"]
    assert nvidia
    assert all(f"{gpu['name']} (UUID: {gpu['uuid']})" in listed for gpu in nvidia)
    assert facts["cpus"] == int(witness.run("nproc"))


@pytest.mark.parametrize("kind", ["vf-profile", "mdev-vf", "mdev", "passthrough", "vf"])
def test_every_kind_of_sharing_is_found(facts: dict[str, Any], kind: str) -> None:
    assert _gpus(facts, kind)


@pytest.mark.parametrize("kind", ["vf-profile", "mdev-vf"])
def test_the_vfs_of_a_board_and_its_types_are_all_there(facts: dict[str, Any], kind: str) -> None:
    (gpu,) = _gpus(facts, kind)
    assert (gpu["total_vfs"], len(gpu["vfs"])) == (32, 32)
    assert len({vf["iommu_group"] for vf in gpu["vfs"]}) == 32
    types = {one["name"]: one for one in gpu["types"]}
    assert {name: types[name]["creatable"] for name in ("A40-1Q", "A40-8Q", "A40-48Q")} == {
        "A40-1Q": 32,
        "A40-8Q": 6,
        "A40-48Q": 1,
    }
    assert types["A40-8Q"]["framebuffer_mib"] == 8192


def test_a_whole_card_shows_its_companion_and_reset(facts: dict[str, Any]) -> None:
    cards = [gpu for gpu in _gpus(facts, "passthrough") if gpu["companions"]]
    assert len(cards) == 1
    assert cards[0]["reset_methods"]
    assert set(cards[0]["iommu_group_members"]) >= {cards[0]["address"], cards[0]["companions"][0]["address"]}


def test_the_place_of_each_gpu_is_the_kernels(facts: dict[str, Any], witness: Witness) -> None:
    for gpu in facts["gpus"]:
        above = witness.run(f"readlink -f /sys/bus/pci/devices/{gpu['address']}").strip().split("/")[3:-1]
        assert [gpu["topology"]["root"], *gpu["topology"]["bridges"]] == above
        assert gpu["topology"]["nvlinks"] == ([] if gpu["driver"] == "nvidia" else None)
    nearness = facts["topology"]["nearness"]
    assert {near for row in nearness.values() for near in row.values()} == {"same", "root"}


@pytest.mark.long("tests/e2e/host/test_observed_states.py::test_a_reading_writes_nothing_to_the_hosts")
def test_a_second_reading_writes_nothing_to_the_host(operator: Operator, witness: Witness) -> None:
    before = witness.state()
    operator.does("list-gpus", "--refresh")
    assert witness.state() == before


@pytest.mark.long(
    "tests/e2e/host/test_prepare_hosts.py::test_each_host_is_told_what_it_lacks_in_its_own_distributions_words",
)
def test_prepare_sees_by_plain_sh_what_a_real_kernel_shows(operator: Operator) -> None:
    done = operator.run("check-hosts", "--prepare", "--json")
    (host,) = json.loads(done.out)
    missing = {one["check"] for one in host["findings"] if one["severity"] == "error"}
    # The emulated host's processor has no virtualisation of its own, and nothing else is missing.
    assert host["has_agent"] and missing <= {"kvm"}, host["findings"]
