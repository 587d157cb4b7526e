# SPDX-License-Identifier: Apache-2.0
"""gc: what hosts have and the store does not know goes, after it was shown; what others made or use stays.

The store that has forgotten is one of its own: it knows the tenant, and nothing of what the first store made.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator, forgetful
from tests.e2e.witness import FleetWitness
from tests.lab.simulated_fixtures import machine
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.store.store import open_store

SIZE = ("--memory", "96MiB", "--vcpus", "1", "--hostname", "web-1")
NETWORK = ("create-network", "back", "--tenant", "acme", "--cidr", "10.1.0.0/24")
CREATE = ("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--network", "back", *SIZE)
ON_FIRST = ("--disk", "64MiB", "--host", "sim-001")
STOP = ("stop-vm", "web-1", "--tenant", "acme", "--timeout", "0")
DELETE = ("delete-vm", "web-1", "--tenant", "acme", "--yes", "--timeout", "0")
DELETE_NETWORK = ("delete-network", "back", "--tenant", "acme", "--yes")
MADE = [("domain", "acme.web-1"), ("network", "acme.back")]
UNRECORDED = "the store has no record that vgpuctl made it"


def _brief(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["kind"], one["name"]) for one in found]


def _outcomes(found: list[dict[str, Any]]) -> set[str]:
    return {one["outcome"] for one in found}


@pytest.fixture(scope="module")
def first(fleet_operator: Operator) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    return fleet_operator


@pytest.fixture
def stopped(first: Operator, fleet_witness: FleetWitness) -> Iterator[list[str]]:
    """A stopped VM with disk, seed, network and vGPU on sim-001. Gives the hosts' state before; it is so afterwards."""
    before = fleet_witness.state()
    first.does(*NETWORK, "--host", "sim-001")
    first.does(*CREATE, *ON_FIRST)
    first.does(*STOP)
    yield before
    first.does(*DELETE)
    first.does(*DELETE_NETWORK)
    assert fleet_witness.state() == before


def _volumes(operator: Operator, vm: str = "web-1") -> list[tuple[str, str]]:
    """The VM's volumes by the store, as gc names them; each is on its host."""
    shown = operator.json("show-vm", vm, "--tenant", "acme")["vm"]
    names = sorted(f"{shown['uuid']}{ending}" for ending in (".qcow2", "-seed.iso"))
    with libvirt_of(operator.inventory, shown["host"]) as there:
        pool = there.connection.storagePoolLookupByName("default")
        found = {volume.name() for volume in pool.listAllVolumes(0)}
    return [("volume", f"default/{name}") for name in names if name in found]


def test_what_the_store_forgot_is_shown_and_taken_away_and_what_runs_stays(
    first: Operator, stopped: list[str], fleet_witness: FleetWitness, tmp_path: Path
) -> None:
    other = forgetful(first, tmp_path, "acme")
    assert first.json("gc") == first.json("gc", "--kind", "vgpu") == []
    first.does("start-vm", "web-1", "--tenant", "acme")
    running = other.json("gc", "--yes")
    assert _brief(running) == MADE
    assert [one["outcome"].partition(":")[0] for one in running] == ["left alone"] * 2
    assert running[1]["left"] == "domain acme.web-1 is in it"
    first.does(*STOP)
    there = fleet_witness.state()
    volumes = _volumes(first)
    assert len(volumes) == 2
    found = other.json("gc", "--dry-run")
    made, unrecorded = [one for one in found if not one["left"]], [one for one in found if one["left"]]
    assert (_brief(made), _outcomes(made)) == (MADE, {"would be deleted"})
    assert (_brief(unrecorded), {one["left"] for one in unrecorded}) == (volumes, {UNRECORDED})
    unanswered = other.run("gc")
    assert unanswered.code == 2
    assert "sim-001: domain acme.web-1: made for acme, and no VM of the store has its UUID" in unanswered.err
    assert other.json("gc", "--dry-run") == found
    assert other.json("gc", "--kind", "vgpu", "--dry-run") == []  # the domain names it
    taken = other.json("gc", "--yes")
    assert {(one["kind"], one["name"]): one["outcome"] for one in taken} == {
        **dict.fromkeys(MADE, "deleted"),
        **dict.fromkeys(volumes, f"left alone: {UNRECORDED}"),
    }
    assert _volumes(first) == volumes, "another store's volumes stay, whoever forgot them"
    assert fleet_witness.state() == there
    assert _brief(other.json("gc", "--dry-run")) == volumes
    idle = other.json("gc", "--kind", "vgpu", "--yes")
    assert ([one["kind"] for one in idle], _outcomes(idle)) == (["vgpu"], {"deleted"})
    assert other.json("list-vms") == []
    assert fleet_witness.state() == stopped


def test_what_others_made_or_use_stays(first: Operator, stopped: list[str], tmp_path: Path) -> None:
    strangers = forgetful(first, tmp_path, "globex")
    found = strangers.json("gc", "--yes")
    assert _brief(found) == [("domain", "acme.web-1"), ("network", "acme.back")]
    assert [one["left"] for one in found] == [
        "the store has no tenant acme, so it is another store's",
        "domain acme.web-1 is in it",
    ]
    strangers.does("create-tenant", "acme")
    disk = next(name for _kind, name in _volumes(first) if name.endswith(".qcow2"))
    with libvirt_of(first.inventory, "sim-001") as there:
        pool = there.connection.storagePoolLookupByName("default")
        path = pool.storageVolLookupByName(disk.removeprefix("default/")).path()
        old = Storage(there).create_disk("default", "acme.old.qcow2", 1)
        there.define(
            "<domain type='kvm'><name>desk</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>"
            "<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>"
            f"<disk type='file' device='disk'><source file='{path}'/><target dev='vda' bus='virtio'/></disk>"
            "</devices></domain>"
        )
    try:
        found = strangers.json("gc", "--dry-run")
        left = {one["name"]: one["left"] for one in found if one["left"]}
        assert left.pop("default/acme.old.qcow2") == UNRECORDED
        assert set(left.values()) == {UNRECORDED}, "the seed; a disk with a UUID's name that a domain uses is its VM's"
        assert disk not in left
        assert "desk" not in {one["name"] for one in found}
    finally:
        with libvirt_of(first.inventory, "sim-001") as there:
            there.undefine("desk")
            there.connection.storageVolLookupByPath(old.path).delete(0)


_FIRST = pytest.mark.long("tests/e2e/maintenance/test_gc.py::test_a_killed_run_is_finished_by_the_same_command")
_NO_TRANSACTION = pytest.mark.long(
    "tests/e2e/maintenance/test_gc.py::test_a_volume_that_could_not_be_deleted_is_gone_after_gc"
)


@pytest.mark.parametrize("after", [pytest.param("undefine", marks=_FIRST), "remove"])
def test_a_killed_run_is_finished_by_the_same_command(
    after: str, first: Operator, stopped: list[str], tmp_path: Path
) -> None:
    other = forgetful(first, tmp_path, "acme")
    kill_after(other, after, "gc", "--yes")
    left = [one for one in other.json("gc", "--yes") if one["kind"] != "volume"]
    assert _outcomes(left) <= {"deleted"}
    assert len(left) < len(MADE)
    assert _brief(other.json("gc", "--yes")) == _volumes(first)
    assert other.json("repair") == []


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(None, marks=_NO_TRANSACTION),
        pytest.param("delete_volume", marks=_NO_TRANSACTION),
        "transaction",
    ],
)
def test_a_volume_that_could_not_be_deleted_is_gone_after_gc(
    after: str | None, first: Operator, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    create = (
        "create-vm",
        "lost",
        "--tenant",
        "acme",
        "--host",
        "sim-002",
        "--network",
        "none",
        "--disk",
        "64MiB",
        *SIZE,
    )
    first.does(*create)
    volumes = _volumes(first, "lost")
    with libvirt_of(first.inventory, "sim-002") as there:
        there.connection.storagePoolLookupByName("default").destroy()
    deleted = first.does("delete-vm", "lost", "--tenant", "acme", "--yes", "--timeout", "0")
    assert "is not active; `vgpuctl gc` deletes it when that has changed" in deleted.err
    silent = first.json("gc", "--yes")
    assert {one["outcome"] for one in silent} == {"left alone: pool default is not there or not active"}
    with libvirt_of(first.inventory, "sim-002") as there:
        there.connection.storagePoolLookupByName("default").create(0)
    assert _brief(first.json("gc", "--dry-run")) == volumes
    if after is not None:
        kill_after(first, after, "gc", "--yes")
    assert _outcomes(first.json("gc", "--yes")) == {"deleted"}
    assert first.json("gc") == []
    with libvirt_of(first.inventory, "sim-002") as there:
        names = {one.name() for one in there.connection.storagePoolLookupByName("default").listAllVolumes(0)}
    assert not {name for _kind, name in volumes if name.removeprefix("default/") in names}
    assert fleet_witness.state() == before


def test_nothing_is_placed_on_a_host_at_work_and_a_silent_host_hides_no_other(
    first: Operator, stopped: list[str], tmp_path: Path
) -> None:
    other = forgetful(first, tmp_path, "acme")
    with open_store(other.database) as store:
        with store.transaction() as session:
            working = session.begin_operation("gc", "host/sim-001", "sim-001", pid=os.getpid())
        refused = other.is_refused("create-vm", "b", "--tenant", "acme", "--host", "sim-001", "--memory", "64MiB")
        assert (refused["reference"], "gc is at work on sim-001" in refused["message"]) == ("concurrent-change", True)
        busy = other.run("gc", "--yes", "--json")
        assert busy.code == 10
        assert "gc is at work on sim-001" in busy.err
        with store.transaction() as session:
            session.end_operation(working)
    done = other.run("gc", "--yes", "-i", str(first.inventory), "-i", "no-such-host.invalid,", "--json")
    assert done.code == 10
    assert "no-such-host.invalid" in done.err
    assert {one["left"] for one in other.json("gc", "--dry-run")} == {UNRECORDED}
    silent = other.run("gc", "-i", "no-such-host.invalid,")
    assert (silent.code, "there is nothing" in silent.out + silent.err) == (10, False)
    unnamed = other.is_refused("gc", "--kind", "ovn")
    assert (unnamed["reference"], "VGPUCTL_OVN_NORTHBOUND" in unnamed["hint"]) == ("usage", True)


def test_an_mdev_that_mdevctl_would_start_again_stays(first: Operator, fleet: lab.LabFolder, tmp_path: Path) -> None:
    create = ("create-vm", "t4", "--tenant", "acme", "--gpu", "T4-2Q", "--host", "sim-003", "--network", "none", *SIZE)
    (created,) = first.json(*create)
    first.does("stop-vm", "t4", "--tenant", "acme", "--timeout", "0")
    other = forgetful(first, tmp_path, "acme")
    held = created["leases"][0]["share"]
    root = machine(fleet, "sim-003").root
    definition = root / "etc" / "mdevctl.d" / held["function"] / held["mdev_uuid"]
    definition.parent.mkdir(parents=True)
    definition.write_text("{}")
    assert sorted(_brief(other.json("gc", "--yes"))) == [("domain", "acme.t4"), *_volumes(first, "t4")]
    (left,) = other.json("gc", "--kind", "vgpu", "--yes")
    assert (left["name"], left["left"]) == (held["mdev_uuid"], "mdevctl has a definition of it")
    definition.unlink()
    assert _outcomes(other.json("gc", "--kind", "vgpu", "--yes")) == {"deleted"}
    first.does("delete-vm", "t4", "--tenant", "acme", "--yes", "--timeout", "0")
