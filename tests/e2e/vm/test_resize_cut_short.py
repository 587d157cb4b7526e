# SPDX-License-Identifier: Apache-2.0
"""A resize that is killed, or that a host refuses, leaves the VM whole in its old or its new size."""

import signal
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after, kill_points, side_effects, stop_after
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SEEDED, operator
from tests.e2e.witness import FleetWitness
from tests.lab.simulated_fixtures import machine

__all__ = ["operator"]

FLEET = (2, "a40")
"""Two hosts with an A40."""
NOW = ("--restart", "--shutdown-timeout", "0")
DELETE = ("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
CREATE = ("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--host", "sim-001", *SEEDED)
RESIZE = ("resize-vm", "web", *ACME, "--gpu", "A40-12Q", "--vcpus", "2")
SIZES = {"A40-8Q": 1, "A40-12Q": 2}


def _the_vm(operator: Operator) -> Any:
    (found,) = operator.json("list-vms", "--refresh")
    return found


def _whole_in(operator: Operator, text: str) -> str:
    """The profile of a VM that is whole, in its old or its new size."""
    assert operator.json("repair") == [], text
    assert operator.json("list-reservations") == [], text
    assert operator.json("gc", "--dry-run", "--kind", "vgpu") == [], text
    listed = _the_vm(operator)
    (lease,) = listed["leases"]
    profile = str(lease["share"]["profile"])
    assert listed["vm"]["request"]["vcpus"] == SIZES[profile], text
    assert [one["text"] for one in listed["vm"]["request"]["gpus"]] == [profile], text
    return profile


@pytest.mark.parametrize("runs", [pytest.param(True, id="running"), pytest.param(False, id="stopped")])
@pytest.mark.long(
    "tests/e2e/vm/test_resize_cut_short.py::test_a_new_share_that_no_guest_can_use_gives_the_vm_its_old_one_back",
    "tests/e2e/vm/test_resize_cut_short.py::test_repair_starts_a_vm_whose_old_share_could_not_be_made_again",
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
)
def test_a_resize_that_is_killed_anywhere_leaves_a_whole_vm(
    operator: Operator, fleet_witness: FleetWitness, *, runs: bool
) -> None:
    def make() -> None:
        operator.does(*CREATE)
        if not runs:
            operator.does("stop-vm", "web", *ACME, "--timeout", "0")

    resize = (*RESIZE, *NOW) if runs else RESIZE
    make()
    effects = side_effects(operator, *resize)
    operator.does(*DELETE)
    before = fleet_witness.state()
    sizes = set()
    for point in kill_points(effects, most=4 if runs else 3):
        make()
        kill_after(operator, point, *resize)
        operator.does("repair")
        text = f"after side effect {point} of {len(effects)}"
        if runs:
            sizes.add(_whole_in(operator, text))
            assert (_the_vm(operator)["vm"]["state"], _the_vm(operator)["observed"]) == ("running", "running"), text
        else:
            assert _the_vm(operator)["vm"]["state"] == "stopped", text
            operator.does("start-vm", "web", *ACME)
            sizes.add(_whole_in(operator, text))
        operator.does(*DELETE)
        assert fleet_witness.state() == before, f"{text} something leaked"
    assert sizes == set(SIZES)


def test_a_new_share_that_no_guest_can_use_gives_the_vm_its_old_one_back(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    (made,) = operator.json("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--host", "sim-002", *SEEDED)
    wanted = ("--gpu", "A40-12Q", "--vcpus", "2", "--vgpu-param", "disable_vnc=1")
    (share,) = operator.json("resize-vm", "web", *ACME, *wanted, "--restart", "--dry-run")["after"]["shares"]
    wedged, there = share.rpartition(" ")[2], machine(fleet, "sim-002")
    number = there.state().vfs_of(there.shape.cards[0]).index(wedged) + 1
    lab.faults.begin("sim-002", "vf-wedged", number, folder=fleet)
    try:
        refused = operator.run("resize-vm", "web", *ACME, *wanted, *NOW)
    finally:
        lab.faults.clear("sim-002", folder=fleet)
    assert (refused.code, "rolled back, it is as it was" in refused.err) != (0, False), refused.err
    after = _the_vm(operator)
    assert after["vm"]["request"] == made["vm"]["request"]
    assert (after["vm"]["state"], after["vm"]["problem"]) == ("running", None)
    assert [one["share"] for one in after["leases"]] == [one["share"] for one in made["leases"]]
    (told,) = operator.json("list-events", "--kind", "vm-resized", "--limit", "1")
    assert told["detail"].startswith("rolled back: ")
    assert told["after"]["gpus"] == ["A40-8Q"]
    operator.does(*DELETE)


def test_repair_starts_a_vm_whose_old_share_could_not_be_made_again(operator: Operator, fleet: lab.LabFolder) -> None:
    (made,) = operator.json("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--host", "sim-001", *SEEDED)
    lab.faults.begin("sim-001", "refuse", folder=fleet)
    try:
        refused = operator.run("resize-vm", "web", *ACME, "--gpu", "A40-12Q", *NOW)
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    assert refused.code != 0
    assert "`vgpuctl repair` goes on from there" in refused.err
    left = _the_vm(operator)
    assert (left["vm"]["state"], left["vm"]["problem"]) == ("stopped", "is resized on sim-001")
    operator.does("repair")
    after = _the_vm(operator)
    assert (after["vm"]["state"], after["vm"]["request"]) == ("running", made["vm"]["request"])
    assert [one["share"]["profile"] for one in after["leases"]] == ["A40-8Q"]
    operator.does(*DELETE)


def test_a_vm_that_is_deleted_while_its_resize_waits_is_gone(operator: Operator) -> None:
    operator.does(*CREATE)
    resize = stop_after(operator, 1, *RESIZE)
    operator.does(*DELETE)
    resize.send_signal(signal.SIGCONT)
    _out, err = resize.communicate(timeout=100)
    assert "error: VM acme/web is gone: another run has deleted it" in err, err
    assert "hint: `vgpuctl list-events acme/web`" in err
