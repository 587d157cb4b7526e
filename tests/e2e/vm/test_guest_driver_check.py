# SPDX-License-Identifier: Apache-2.0
"""The driver in a guest against the host's: at create, explain, move and start, by image, request and NVML."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.playing import play
from tests.lab.simulated_fixtures import machine
from vgpuctl.store.store import open_store
from vgpuctl_lab.simulated.machine import shape as shapes

ACME = ("--tenant", "acme")
SIZE = (*ACME, "--memory", "96MiB", "--vcpus", "1", "--network", "none")
VGPU = (*SIZE, "--gpu", "A40-8Q")
HOME, OTHER = "sim-001", "sim-002"
SEEN, OLDER = "580.95.05", "550.90.05"
REASON = f"the guest driver {SEEN} cannot load beside the host's driver {OLDER}: the guest's R580 is newer"
IMAGE = "/var/lib/libvirt/images/guest.img"


@pytest.fixture
def operator(fleet_operator: Operator, tmp_path: Path) -> Iterator[Operator]:
    made = replace(fleet_operator, database=f"sqlite:///{tmp_path}/store.db")
    made.does("create-tenant", "acme")
    yield made
    made.does("offboard-tenant", "acme", "--yes", "--timeout", "0")


def codes(operator: Operator, *request: str) -> set[str]:
    (explained,) = operator.json("explain-vm", "any", *request)
    return {one["code"] for one in explained["answers"] if one["host"] in ("sim-001", "sim-002")}


def test_hosts_that_a_guest_cannot_work_with_are_left_out(operator: Operator, fleet: lab.LabFolder) -> None:
    newer = (*VGPU, "--guest-driver-version", "595.45.04")
    refused = operator.is_refused("create-vm", "web", *newer)
    said = str(refused["context"])
    assert "the guest driver 595.45.04 cannot load beside the host's driver 580.105.06" in said
    assert codes(operator, *newer) == {"guest-driver"}
    assert codes(operator, *VGPU, "--guest-driver-version", "570.133.20") == {None}
    assert codes(operator, *SIZE, "--gpu", "passthrough", "--guest-driver-version", "595") != {"guest-driver"}


def test_a_guest_driver_that_nobody_can_judge_is_warned_about(operator: Operator) -> None:
    for more in (("--dry-run",), ()):
        said = operator.does("create-vm", "old", *VGPU, "--guest-driver-version", "530", *more).err
        assert "warning: acme/old: guest driver 530 may not load beside the host's 580.105.06: the range" in said


def test_the_driver_of_the_image_counts_where_the_vm_names_none(operator: Operator, fleet: lab.LabFolder) -> None:
    place = machine(fleet, "sim-001").root / IMAGE.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"\0" * 4096)
    register = ("register-image", "desk", "--path", IMAGE, "--format", "raw", "--host", "sim-001")
    refused = operator.is_refused(*register, "--guest-driver", "newest")
    assert "'newest' is no version of NVIDIA's driver" in refused["message"]
    operator.does(*register, "--guest-driver", "595.45.04")
    assert operator.json("list-images")[0]["image"]["guest_driver"] == "595.45.04"
    of_image = (*VGPU, "--host", "sim-001", "--disk", "1MiB", "--base-image", "desk")
    refused = operator.is_refused("create-vm", "desk", *of_image)
    assert "the guest driver 595.45.04 cannot load" in str(refused["context"])
    own = (*of_image, "--guest-driver-version", "580")
    operator.does("create-vm", "desk", *own)
    assert "no change" in operator.does("create-vm", "desk", *own).err
    operator.does("delete-vm", "desk", *ACME, "--yes", "--timeout", "0")
    place.unlink()


def test_a_guest_that_was_seen_with_a_newer_driver_starts_and_moves_no_more(operator: Operator) -> None:
    (made,) = operator.json("create-vm", "seen", *VGPU, "--guest-driver-version", "580")
    uuid = made["vm"]["uuid"]
    with open_store(operator.database).transaction() as session:
        session.set_vm_guest_driver(uuid, "595.45.04")
    refused = operator.is_refused("move-vm", "seen", *ACME, "--dry-run")
    assert "the guest driver 595.45.04 cannot load" in str(refused)
    for hold in ("keep", "release"):
        operator.does("stop-vm", "seen", *ACME, "--timeout", "0", "--hold", hold)
        refused = operator.is_refused("start-vm", "seen", *ACME)
        assert "the guest driver 595.45.04 cannot load" in str(refused), hold
    with open_store(operator.database).transaction() as session:
        session.set_vm_guest_driver(uuid, "580.95.05")
    operator.does("start-vm", "seen", *ACME)


@pytest.fixture
def desk(operator: Operator, fleet: lab.LabFolder) -> Iterator[str]:
    """A VM on the first host, with nothing known of its driver; the driver of the second host is older. Its device."""
    older = machine(fleet, OTHER)
    before = older.shape
    shapes.write(replace(before, nvidia_driver=OLDER), older.folder / "machine.json")
    operator.does("list-gpus", "--refresh")
    operator.does("cordon-host", OTHER, "--reason", "the test wants the first")
    (made,) = operator.json("create-vm", "desk", *VGPU)
    operator.does("uncordon-host", OTHER)
    yield made["leases"][0]["share"]["function"]
    shapes.write(before, older.folder / "machine.json")


def _drained(operator: Operator) -> tuple[str, str]:
    done = operator.run("drain-host", HOME, "--reason", "disks", "--plan", "--json")
    (planned,) = json.loads(done.out)["vms"]
    assert done.code == (10 if planned["verdict"] == "stay" else 0)
    return planned["verdict"], planned["reason"]


@pytest.mark.long(
    "tests/e2e/vm/test_guest_driver_check.py::test_a_guest_that_was_seen_with_a_newer_driver_starts_and_moves_no_more",
    "tests/unit/scheduler/test_vgpu_terms.py::test_the_host_whose_driver_goes_with_the_guest_s_is_chosen",
)
def test_no_command_moves_a_vm_to_a_host_whose_branch_does_not_take_its_driver(
    operator: Operator, fleet: lab.LabFolder, desk: str
) -> None:
    assert _drained(operator)[0] == "move", "nobody has seen the guest's driver"
    play(fleet, HOME, f"vgpu:{desk} guest_driver_info/{SEEN} 0 0:1")
    operator.does("top")
    assert operator.json("list-vms")[0]["vm"]["guest_driver"] == SEEN, "every reader of readings keeps it"

    assert REASON in str(operator.is_refused("move-vm", "desk", *ACME, "--to", OTHER))
    (explained,) = operator.json("explain-vm", "desk", *ACME)
    assert "guest-driver" in {one["code"] for one in explained["answers"] if one["host"] == OTHER}
    verdict, reason = _drained(operator)
    assert (verdict, REASON in reason) == ("stay", True)
    assert REASON in str(
        operator.is_refused("drain-host", HOME, "--reason", "disks", "--yes", "--shutdown-timeout", "0")
    )
    operator.does("uncordon-host", HOME)

    known = ("--memory", "96MiB", "--vcpus", "1", "--gpu", "A40-8Q", "--guest-driver-version", SEEN)
    counted = {one["host"]: one["now"] > 0 for one in operator.json("capacity", *known)["hosts"]}
    assert (counted[HOME], counted[OTHER]) == (True, False)
    none = operator.json("capacity", *known, "--limit", OTHER)
    assert (none["now"], {one["code"] for one in none["refusals"]}) == (0, {"guest-driver"})
    plan = operator.run("plan-upgrade", "--driver", OLDER)
    assert (plan.code, f"guest driver {SEEN}: breaks (the guest's R580 is newer" in plan.out) == (1, True)

    lab.faults.begin(HOME, "sshd", folder=fleet)
    try:
        (planned,) = operator.ends(10, "evacuate-host", HOME, "--reason", "no power", "--fenced", "--plan")["vms"]
        assert (planned["verdict"], REASON in planned["reason"]) == ("stay", True)
    finally:
        lab.faults.clear(HOME, folder=fleet)
    assert operator.json("list-vms")[0]["vm"]["host"] == HOME

    play(fleet, HOME, f"vgpu:{desk} guest_driver_info/{OLDER} 0 0:1")
    operator.run("check-vm", "desk", *ACME)
    operator.json("move-vm", "desk", *ACME, "--to", OTHER)
    assert operator.json("list-vms")[0]["vm"]["host"] == OTHER, "its guest has the driver of that branch now"
    play(fleet, HOME)
