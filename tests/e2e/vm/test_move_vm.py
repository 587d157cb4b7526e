# SPDX-License-Identifier: Apache-2.0
"""A VM moves to another host as a whole: shares, disk, name, UUID; and a move that fails changes nothing."""

from collections.abc import Iterator

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SEEDED, operator
from tests.e2e.witness import FleetWitness
from vgpuctl.guests.libvirtd.storage import Storage

__all__ = ["operator"]

FLEET = (3, "a40")
"""Three equal hosts with one A40 each."""
NOW = ("--shutdown-timeout", "0")


def _volumes(operator: Operator, host: str) -> set[str]:
    with libvirt_of(operator.inventory, host) as there:
        storage = Storage(there)
        storage.ensure_pool("default")
        return {one.name for one in storage.volumes("default")}


def _domains(operator: Operator, host: str) -> dict[str, str]:
    with libvirt_of(operator.inventory, host) as there:
        return {one.name: one.uuid for one in there.domains()}


def test_a_running_vm_moves_with_everything_and_leaves_nothing_behind(
    operator: Operator, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    (made,) = operator.json("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
    uuid, source = made["vm"]["uuid"], made["vm"]["host"]
    planned = operator.json("move-vm", "web", *ACME, "--dry-run")
    assert (planned["from"], planned["storage"]) == (source, "copied")
    assert operator.json("list-vms")[0]["vm"]["host"] == source
    moved = operator.json("move-vm", "web", *ACME, "--to", planned["to"], "--reason", "new fans", *NOW)
    target = moved["to"]
    assert target == planned["to"] != source
    (listed,) = operator.json("list-vms")
    assert (listed["vm"]["host"], listed["vm"]["state"], listed["vm"]["uuid"]) == (target, "running", uuid)
    assert [one["share"]["profile"] for one in listed["leases"]] == ["A40-8Q"]
    assert _domains(operator, target) == {"acme.web": uuid}
    assert _domains(operator, source) == {}
    assert {f"{uuid}.qcow2", f"{uuid}-seed.iso"} <= _volumes(operator, target)
    assert not [name for name in _volumes(operator, source) if uuid in name]
    assert operator.json("list-reservations") == []
    assert operator.json("repair") == []
    (told,) = operator.json("list-events", "--kind", "vm-moved")
    assert (told["before"]["host"], told["after"]["host"], told["detail"]) == (source, target, "new fans")
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    assert fleet_witness.state() == before


_RELEASED = pytest.mark.long("tests/e2e/vm/test_move_vm.py::test_a_stopped_vm_moves_and_stays_stopped")


@pytest.mark.parametrize("hold", ["keep", pytest.param("release", marks=_RELEASED)])
def test_a_stopped_vm_moves_and_stays_stopped(operator: Operator, fleet_witness: FleetWitness, hold: str) -> None:
    before = fleet_witness.state()
    (made,) = operator.json("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
    operator.does("stop-vm", "web", *ACME, "--timeout", "0", "--hold", hold)
    moved = operator.json("move-vm", "web", *ACME, *NOW)
    assert moved["to"] != made["vm"]["host"]
    operator.does("list-gpus", "--refresh")
    (listed,) = operator.json("list-vms")
    assert (listed["vm"]["host"], listed["vm"]["state"]) == (moved["to"], "stopped")
    kept = [(one["state"], one["share"]["profile"]) for one in listed["leases"]]
    assert kept == ([("built", "A40-8Q")] if hold == "keep" else [])
    assert [one["state"] for one in listed["shares"]] == (["free"] if hold == "keep" else []), "it is made"
    assert operator.json("repair") == []
    operator.does("start-vm", "web", *ACME)
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    assert fleet_witness.state() == before


def test_a_vm_that_cannot_move_says_why_and_runs_on(operator: Operator) -> None:
    operator.does("create-vm", "bound", *ACME, "--gpu", "A40-8Q", "--host", "sim-001", *SEEDED)
    bound = operator.is_refused("move-vm", "bound", *ACME, *NOW)
    assert (bound["reference"], "created for host sim-001" in bound["message"]) == ("state", True)
    assert bound["hint"].endswith("delete it and create it again without --host"), "a stopped one cannot move either"
    assert operator.is_refused("move-vm", "bound", *ACME, "--to", "nowhere", *NOW)["reference"] == "inventory"
    assert operator.json("move-vm", "bound", *ACME, "--to", "sim-001", *NOW)["changed"] is False, "it is there"
    operator.does("create-vm", "big", *ACME, "--gpu", "A40-48Q", *SEEDED)
    operator.does("create-vm", "other", *ACME, "--gpu", "A40-48Q", *SEEDED)
    full = operator.is_refused("move-vm", "big", *ACME, *NOW)
    assert full["reference"] == "no-capacity"
    assert {one["vm"]["state"] for one in operator.json("list-vms")} == {"running"}
    for name in ("bound", "big", "other"):
        operator.does("delete-vm", name, *ACME, "--yes", "--timeout", "0")


def test_a_host_in_a_pool_of_others_is_told_by_its_pool(operator: Operator) -> None:
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
    source = operator.json("list-vms")[0]["vm"]["host"]
    others = sorted({"sim-001", "sim-002", "sim-003"} - {source})
    operator.does("create-host-pool", "theirs", "--hosts", ",".join(others))
    try:
        refused = operator.is_refused("move-vm", "web", *ACME, "--to", others[0], "--dry-run")
        assert refused["message"] == f"tenant acme may not use {others[0]}"
        assert refused["context"] == [f"{others[0]}: in pool theirs, which is not granted to acme"]
        assert "grant-host-pool theirs acme" in refused["hint"]
        refused = operator.is_refused("move-vm", "web", *ACME, "--dry-run")
        assert refused["context"] == [f"{one}: in pool theirs, which is not granted to acme" for one in others]
    finally:
        operator.does("delete-host-pool", "theirs", "--yes")
        operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@pytest.fixture
def ceiling(operator: Operator) -> Iterator[None]:
    """The tenant holds two vGPUs and may hold one: its ceiling came down after they were created."""
    operator.does("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--count", "2", *SEEDED)
    operator.does("set-quota", "acme", "shares:A40-8Q=1")
    yield
    operator.does("set-quota", "acme", "shares:A40-8Q=none")
    operator.delete_all_vms()


@pytest.mark.usefixtures("ceiling")
def test_a_vm_of_a_tenant_above_its_ceiling_moves_and_comes_back(operator: Operator, fleet: lab.LabFolder) -> None:
    """A move takes no more than the VM had, so that no quota stops one half way, or keeps it off when it fails."""
    source = operator.json("list-vms")[0]["vm"]["host"]
    others = sorted({"sim-001", "sim-002", "sim-003"} - {source})
    lab.faults.begin(others[0], "disk-full", folder=fleet)
    try:
        assert "No space left" in operator.is_refused("move-vm", "acme/web-1", "--to", others[0], *NOW)["message"]
    finally:
        lab.faults.clear(others[0], folder=fleet)
    found = {one["vm"]["request"]["name"]: one["vm"] for one in operator.json("list-vms")}
    assert (found["web-1"]["host"], found["web-1"]["state"]) == (source, "running")
    assert operator.json("move-vm", "acme/web-1", "--to", others[0], "--cold", *NOW)["way"] == "cold"
    smaller = ("resize-vm", "acme/web-1", "--memory", "80MiB", "--restart", *NOW)
    operator.does(*smaller)
    operator.does("stop-vm", "acme/web-1", "--hold", "release", "--timeout", "0")
    assert "shares:A40-8Q" in operator.is_refused("start-vm", "acme/web-1")["message"]


@pytest.mark.long(
    "tests/e2e/maintenance/test_drain_host.py::test_a_vm_that_moves_and_does_not_start_is_not_said_to_be_left",
    "tests/e2e/vm/test_resize_cut_short.py::test_repair_starts_a_vm_whose_old_share_could_not_be_made_again",
)
def test_a_vm_that_does_not_start_on_its_new_host_is_said_to_be_off_there(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    (made,) = operator.json("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
    target = operator.json("move-vm", "web", *ACME, "--dry-run")["to"]
    lab.faults.begin(target, "refuse", folder=fleet)
    try:
        refused = operator.run("move-vm", "web", *ACME, "--to", target, "--cold", *NOW)
        assert f"acme/web: it is stopped on {target}: " in refused.err
        assert "`vgpuctl repair` starts it there" in refused.err
        assert "\nacme/web: rolled back completely" not in refused.err
    finally:
        lab.faults.clear(target, folder=fleet)
    (listed,) = operator.json("list-vms")
    assert (made["vm"]["host"] != target, listed["vm"]["host"], listed["vm"]["state"]) == (True, target, "stopped")
    operator.does("repair")
    assert operator.json("list-vms")[0]["vm"]["state"] == "running"
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@pytest.mark.long(
    "tests/e2e/vm/test_move_vm.py::test_a_vm_of_a_tenant_above_its_ceiling_moves_and_comes_back",
    "tests/e2e/vm/test_move_cut_short.py::test_a_copy_that_a_killed_move_has_left_goes_with_its_repair",
)
def test_a_move_whose_copy_fails_leaves_the_vm_running_where_it_was(operator: Operator, fleet: lab.LabFolder) -> None:
    (made,) = operator.json("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
    source = made["vm"]["host"]
    target = operator.json("move-vm", "web", *ACME, "--dry-run")["to"]
    before = _volumes(operator, target)
    lab.faults.begin(target, "disk-full", folder=fleet)
    try:
        refused = operator.is_refused("move-vm", "web", *ACME, "--to", target, *NOW)
    finally:
        lab.faults.clear(target, folder=fleet)
    assert "No space left" in refused["message"]
    (listed,) = operator.json("list-vms")
    assert (listed["vm"]["host"], listed["vm"]["state"]) == (source, "running")
    assert operator.json("repair") == []
    assert _volumes(operator, target) == before
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
