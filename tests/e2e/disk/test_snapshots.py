# SPDX-License-Identifier: Apache-2.0
"""Snapshots, sizes and media of disks on simulated hosts: what libvirt's test driver can do, and what it refuses.

tests/integration/libvirt/test_disk_changes.py does the same with a real QEMU.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.kills import kill_after
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from vgpuctl.guests.libvirtd.storage import Storage

ACME = ("--tenant", "acme")
AT = 1_800_000_000.0
SIZE = (*ACME, "--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("create-tenant", "acme")
    disks = ("--disk", "64MiB", "--data-disk", "data,size=32MiB,keep")
    fleet_operator.does("create-vm", "one", *SIZE, *disks)  # on sim-001, the first that has room
    fleet_operator.does("stop-vm", "one", *ACME, "--timeout", "0")
    yield fleet_operator


def _volumes(operator: Operator) -> set[str]:
    with libvirt_of(operator.inventory, "sim-001") as there:
        return {one.name for one in Storage(there).volumes("default")}


def _snapshots(operator: Operator) -> list[str]:
    return [one["name"] for one in operator.json("list-snapshots", "one", *ACME)]


def test_a_stopped_vm_gets_snapshots_and_is_reverted_to_the_newest(operator: Operator) -> None:
    before = _volumes(operator)
    hint = operator.is_refused("revert-snapshot", "one", "first", *ACME, "--yes")["hint"]
    assert hint == "it has no snapshots; `vgpuctl create-snapshot one first --tenant acme` makes one of its state now"
    for number, name in enumerate(("first", "second")):
        done = operator.at(AT + 60 * number).json("create-snapshot", "one", name, *ACME)
        assert (done["changed"], done["disks"]) == (True, ["-", "data"])
        assert operator.json("create-snapshot", "one", name, *ACME)["changed"] is False
    listed = operator.json("list-snapshots", "one", *ACME)
    assert [(one["name"], one["taken_at"], one["size_bytes"]) for one in listed] == [
        ("first", AT, 96 * 2**20),
        ("second", AT + 60, 96 * 2**20),
    ]
    assert "2027-01-15 08:01  96 MiB" in operator.does("list-snapshots", "one", *ACME).out
    assert len(_volumes(operator) - before) == 4
    xml = operator.json("show-vm", "one", *ACME)["xml"]
    assert xml.index(".second.qcow2") < xml.index(".first.qcow2") < xml.index("<backingStore/>")
    for arguments, why in (
        (("move-vm", "one", *ACME, "--to", "sim-002"), "cannot move: its disks have snapshots"),
        (("resize-disk", "one", "1GiB", *ACME), "cannot resize a disk of acme/one: its disks have snapshots"),
        (("detach-disk", "one", "data", *ACME), "the newest is second"),
        (("delete-vm", "one", *ACME, "--yes"), "its disk data is kept and has snapshots, the newest second"),
        (("delete-vm", "one", *ACME, "--dry-run"), "its disk data is kept and has snapshots, the newest second"),
        (("delete-snapshot", "one", "first", *ACME, "--yes"), "has newer ones above it: second"),
        (("delete-snapshot", "one", "second", *ACME, "--yes"), "merges the disks of running guests only"),
        (("revert-snapshot", "one", "first", *ACME, "--yes"), "they hold only what differs from its disks"),
        (("revert-snapshot", "one", "third", *ACME, "--yes"), "has no snapshot 'third'"),
        (("create-snapshot", "one", "a/b", *ACME), "snapshot 'a/b' cannot be used"),
    ):
        assert why in operator.is_refused(*arguments)["message"]
    for command, snapshot, reference in (
        ("delete-snapshot", "first", "state"),
        ("delete-snapshot", "third", "not-found"),
        ("revert-snapshot", "third", "not-found"),
    ):
        asked = operator.is_refused(command, "one", snapshot, *ACME)
        assert asked["reference"] == reference, "it looks before it asks"
    hint = operator.is_refused("revert-snapshot", "one", "first", *ACME, "--yes")["hint"]
    assert hint == "revert the newest first: `vgpuctl revert-snapshot acme/one second`"
    operator.does("start-vm", "one", *ACME)
    assert (
        "takes no snapshot of a running guest"
        in operator.is_refused("create-snapshot", "one", "live", *ACME)["message"]
    )
    for _again in range(2):
        kept = operator.is_refused("delete-snapshot", "one", "second", *ACME, "--yes")
        assert "the libvirt of sim-001 merges no disks of a running guest" in kept["message"]
        assert "`vgpuctl revert-snapshot acme/one second`" in kept["hint"], "to run it again would change nothing"
    assert "cannot be reverted" in operator.is_refused("revert-snapshot", "one", "second", *ACME, "--yes")["message"]
    assert operator.json("gc", "--limit", "sim-001", "--yes") == []
    operator.does("stop-vm", "one", *ACME, "--timeout", "0")
    for name in ("second", "first"):
        assert operator.json("revert-snapshot", "one", name, *ACME, "--yes")["changed"]
    assert (_snapshots(operator), _volumes(operator)) == ([], before)


_LATER = pytest.mark.long("tests/e2e/disk/test_snapshots.py::test_a_killed_snapshot_is_taken_by_the_next_run")


@pytest.mark.parametrize("kill", ["create_overlay", *(pytest.param(one, marks=_LATER) for one in ("4", "6"))])
def test_a_killed_snapshot_is_taken_by_the_next_run(operator: Operator, kill: str) -> None:
    before = _volumes(operator)
    take = ("create-snapshot", "one", "cut", *ACME)
    kill_after(operator, kill, *take)
    operator.does("repair")
    operator.does(*take)
    listed = operator.json("list-snapshots", "one", *ACME)
    assert [(one["name"], one["disks"], one["is_whole"]) for one in listed] == [("cut", ["-", "data"], True)]
    revert = ("revert-snapshot", "one", "cut", *ACME, "--yes")
    kill_after(operator, "delete_volume", *revert)
    operator.does(*revert)
    assert (_snapshots(operator), _volumes(operator)) == ([], before)


def test_sizes_and_media_are_changed_only_where_there_are_some(operator: Operator) -> None:
    for arguments, why in (
        (("resize-disk", "one", "16MiB", *ACME), "its first disk has 64 MiB and cannot shrink to 16 MiB"),
        (("resize-disk", "one", "16MiB", "--disk", "data", *ACME), "disk data has 32 MiB and cannot shrink"),
        (("resize-disk", "one", "1GiB", "--disk", "none", *ACME), "VM one has no data disk 'none'"),
        (("resize-disk", "one", "1GiB", *ACME), "cannot grow volume"),
    ):
        assert why in operator.is_refused(*arguments)["message"]
    assert operator.json("resize-disk", "one", "64MiB", *ACME)["changed"] is False
    assert operator.json("eject-iso", "one", *ACME) == {"vm": "acme/one", "changed": False, "media": [], "left": []}
