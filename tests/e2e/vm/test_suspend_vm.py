# SPDX-License-Identifier: Apache-2.0
"""A VM is suspended to its host's disk and goes on there, also with other devices; meanwhile it stays as it is."""

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after, side_effects
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SEEDED, operator
from tests.e2e.witness import FleetWitness
from vgpuctl.guests.libvirtd.saved_state import SavedState

__all__ = ["operator"]

FLEET = (2, "a40+rtx-3090")
"""Two hosts with an A40 and a card for whole VMs each."""
CREATE = ("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
DELETE = ("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


def _saved(operator: Operator, host: str, uuid: str) -> bool:
    with libvirt_of(operator.inventory, host) as there:
        return SavedState(there, "acme.web", uuid).xml() is not None


_KEPT = pytest.mark.long("tests/e2e/vm/test_suspend_vm.py::test_a_suspended_vm_goes_on_with_devices_of_its_types")


@pytest.mark.parametrize("hold", [pytest.param("keep", marks=_KEPT), "release"])
def test_a_suspended_vm_goes_on_with_devices_of_its_types(
    operator: Operator, fleet_witness: FleetWitness, hold: str
) -> None:
    before = fleet_witness.state()
    (made,) = operator.json(*CREATE)
    host, uuid = made["vm"]["host"], made["vm"]["uuid"]
    suspended = operator.json("suspend-vm", "web", *ACME, "--hold", hold, "--reason", "night")
    assert (suspended["changed"], suspended["vm"]["state"]) == (True, "stopped")
    assert _saved(operator, host, uuid)
    (listed,) = operator.json("list-vms", "--refresh")
    assert (listed["vm"]["problem"], listed["observed"]) == ("is suspended to disk", "shut-off")
    assert [one["state"] for one in listed["leases"]] == (["built"] if hold == "keep" else [])
    assert operator.json("suspend-vm", "web", *ACME, "--hold", hold)["changed"] is False
    if hold == "release":  # another VM takes the function that it had
        operator.does("create-vm", "other", *ACME, "--gpu", "A40-8Q", "--host", host, *SEEDED)
    resumed = operator.json("resume-vm", "web", *ACME)
    assert (resumed["changed"], resumed["vm"]["state"]) == (True, "running")
    listed = next(one for one in operator.json("list-vms", "--refresh") if one["vm"]["request"]["name"] == "web")
    assert (listed["vm"]["problem"], listed["observed"]) == (None, "running")
    had, has = (one["leases"][0]["share"]["function"] for one in (made, listed))
    assert (had == has) is (hold == "keep")
    assert not _saved(operator, host, uuid)
    operator.does("check-vm", "web", *ACME)
    (told,) = operator.json("list-events", "--kind", "vm-suspended", "--limit", "1")
    assert told["detail"] == "night"
    assert operator.json("repair") == []
    operator.does(*DELETE)
    if hold == "release":
        operator.does("delete-vm", "other", *ACME, "--yes", "--timeout", "0")
    assert fleet_witness.state() == before


def test_a_vm_whose_saved_memory_is_gone_does_not_boot_as_if_it_went_on(operator: Operator) -> None:
    (made,) = operator.json(*CREATE)
    host, uuid = made["vm"]["host"], made["vm"]["uuid"]
    operator.does("suspend-vm", "web", *ACME)
    with libvirt_of(operator.inventory, host) as there:
        there.connection.lookupByUUIDString(uuid).managedSaveRemove()
    refused = operator.is_refused("resume-vm", "web", *ACME)
    assert refused["message"] == f"acme/web cannot go on: {host} has its saved memory no more"
    assert "start-vm --discard-state" in refused["hint"]
    operator.does("start-vm", "web", *ACME, "--discard-state")
    assert operator.json("list-vms", "--refresh")[0]["observed"] == "running"
    operator.does(*DELETE)


def test_a_resumption_that_is_killed_says_later_that_the_state_was_lost(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    (made,) = operator.json(*CREATE)
    operator.does("suspend-vm", "web", *ACME)
    lab.faults.begin(made["vm"]["host"], "move-load-refused", folder=fleet)
    kill_after(operator, "start", "resume-vm", "web", *ACME)
    lab.faults.clear(made["vm"]["host"], folder=fleet)
    operator.does("repair")
    (listed,) = operator.json("list-vms", "--refresh")
    assert listed["vm"]["problem"].startswith("was resumed: it lost the state of its vGPU on the way and must be")
    operator.does(*DELETE)


def test_nothing_but_its_end_happens_to_a_suspended_vm(operator: Operator, fleet_witness: FleetWitness) -> None:
    before = fleet_witness.state()
    (made,) = operator.json(*CREATE)
    operator.does("suspend-vm", "web", *ACME)
    for refused in (
        ("move-vm", "web", *ACME),
        ("restart-vm", "web", *ACME),
        ("resize-vm", "web", *ACME, "--memory", "128MiB"),
        ("rename-vm", "-t", "acme", "web", "renamed"),
        ("attach-gpu", "web", "A40-8Q", *ACME),
        ("create-snapshot", "web", "s", *ACME),
        ("resize-disk", "web", "128MiB", *ACME),
    ):
        said = operator.is_refused(*refused)
        assert "it is suspended, and must go on as it was" in said["message"], refused
        assert "vgpuctl resume-vm acme/web" in said["hint"], refused
    assert "suspended, shares released" in operator.does("stop-vm", "web", *ACME, "--hold", "release").err
    (listed,) = operator.json("list-vms")
    assert (listed["vm"]["problem"], listed["leases"]) == ("is suspended to disk", [])
    operator.does("start-vm", "web", *ACME, "--discard-state")
    assert not _saved(operator, made["vm"]["host"], made["vm"]["uuid"])
    operator.does("suspend-vm", "web", *ACME)
    operator.does(*DELETE)
    assert fleet_witness.state() == before


def test_what_cannot_be_suspended_runs_on(operator: Operator) -> None:
    operator.does("create-vm", "web", *ACME, "--gpu", "passthrough", *SEEDED)
    said = operator.is_refused("suspend-vm", "web", *ACME)
    assert "no driver saves its state" in said["message"]
    assert operator.json("list-vms", "--refresh")[0]["observed"] == "running"
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    assert "is stopped, not suspended" in operator.is_refused("resume-vm", "web", *ACME)["message"]
    assert operator.is_refused("suspend-vm", "web", *ACME)["hint"] == "only a running VM is suspended"
    operator.does(*DELETE)


@pytest.mark.long(
    "tests/e2e/vm/test_suspend_vm.py::test_a_resumption_that_is_killed_says_later_that_the_state_was_lost",
    "tests/e2e/vm/test_preemption_cut_short.py::test_a_suspension_that_was_killed_is_finished_with_its_state",
)
def test_a_suspension_that_is_killed_anywhere_loses_nothing(operator: Operator, fleet_witness: FleetWitness) -> None:
    before = fleet_witness.state()
    (made,) = operator.json(*CREATE)
    effects = side_effects(operator, "suspend-vm", "web", *ACME)
    operator.does("resume-vm", "web", *ACME)
    for point in range(1, len(effects) + 1):
        kill_after(operator, point, "suspend-vm", "web", *ACME)
        operator.does("repair")
        (listed,) = operator.json("list-vms", "--refresh")
        expected = {"running": None, "stopped": "is suspended to disk"}
        assert listed["vm"]["problem"] == expected[listed["vm"]["state"]], f"after {point} of {effects}"
        operator.does("start-vm", "web", *ACME)
        (listed,) = operator.json("list-vms", "--refresh")
        assert (listed["observed"], listed["vm"]["problem"]) == ("running", None)
    assert made["vm"]["uuid"] == listed["vm"]["uuid"]
    operator.does(*DELETE)
    assert fleet_witness.state() == before
