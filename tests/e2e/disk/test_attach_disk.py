# SPDX-License-Identifier: Apache-2.0
"""attach-disk, detach-disk, list-disks and delete-disk on simulated hosts, whose running domains change at a start."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.kills import kill_after
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from vgpuctl.guests.libvirtd.storage import Storage

ACME = ("--tenant", "acme")
SIZE = (*ACME, "--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Iterator[Operator]:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-vm", "one", *SIZE, "--disk", "64MiB", "--host", "sim-001")
    fleet_operator.does("create-vm", "two", *SIZE, "--host", "sim-001")
    fleet_operator.does("create-vm", "far", *SIZE, "--host", "sim-002")
    yield fleet_operator


def _disks(operator: Operator) -> dict[str, tuple[str, str | None]]:
    return {one["name"]: (one["state"], one["vm"]) for one in operator.json("list-disks", *ACME)}


def _volumes(operator: Operator) -> set[str]:
    with libvirt_of(operator.inventory, "sim-001") as there:
        return {one.name for one in Storage(there).volumes("default")}


def _serials(operator: Operator, vm: str) -> Any:
    xml = operator.json("show-vm", vm, *ACME)["xml"]
    return [part.partition("</serial>")[0] for part in xml.split("<serial>")[1:]]


def test_a_disk_goes_from_vm_to_vm_and_is_deleted_when_none_has_it(operator: Operator) -> None:
    before = _volumes(operator)
    operator.does("stop-vm", "one", *ACME, "--timeout", "0")
    done = operator.json("attach-disk", "one", "data,size=32MiB,bus=scsi", *ACME)
    assert (done["changed"], done["outcome"]) == (True, "next start")
    assert operator.json("attach-disk", "one", "data", *ACME)["changed"] is False
    assert _disks(operator) == {"data": ("attached", "one")}
    assert _serials(operator, "one") == ["data"]
    operator.does("start-vm", "one", *ACME)
    operator.does("stop-vm", "one", *ACME, "--timeout", "0")

    for command in (("attach-disk", "two", "data", *ACME), ("delete-disk", "data", *ACME, "--yes")):
        refused = operator.is_refused(*command)
        assert "is attached to VM one of tenant acme on sim-001" in refused["message"]
        assert "detach-disk acme/one data" in refused["hint"]
    done = operator.json("detach-disk", "one", "data", *ACME)
    assert (done["changed"], done["outcome"]) == (True, "done")
    assert operator.json("detach-disk", "one", "data", *ACME)["changed"] is False
    assert _disks(operator) == {"data": ("free", None)} and _serials(operator, "one") == []

    assert (
        "the disk is on sim-001, the VM on sim-002"
        in operator.is_refused("attach-disk", "far", "data", *ACME)["message"]
    )
    refused = operator.is_refused("attach-disk", "two", "data,size=64MiB", *ACME)
    assert refused["message"] == "tenant acme has kept a disk data already"
    operator.does("stop-vm", "two", *ACME, "--timeout", "0")
    operator.does("attach-disk", "two", "data", *ACME)
    operator.does("start-vm", "two", *ACME)
    assert _serials(operator, "two") == ["data"]
    operator.does("gc", "--limit", "sim-001", "--yes")
    assert _disks(operator) == {"data": ("attached", "two")}
    operator.does("stop-vm", "two", *ACME, "--timeout", "0")
    operator.does("detach-disk", "two", "data", *ACME)
    assert operator.json("delete-disk", "data", *ACME, "--dry-run") == {
        "deleted": [],
        "would_delete": ["acme/data"],
        "dry_run": True,
    }
    assert operator.json("delete-disk", "data", *ACME, "--yes") == {
        "deleted": ["acme/data"],
        "would_delete": [],
        "dry_run": False,
    }
    assert operator.json("delete-disk", "data", *ACME, "--yes", "--if-exists")["deleted"] == []
    assert (_disks(operator), _volumes(operator)) == ({}, before)
    operator.does("start-vm", "two", *ACME)
    operator.does("start-vm", "one", *ACME)


def test_the_running_domain_has_a_detached_disk_until_it_stops(operator: Operator) -> None:
    """libvirt's test driver detaches nothing, as a guest that does not let go."""
    operator.does("stop-vm", "one", *ACME, "--timeout", "0")
    operator.does("attach-disk", "one", "held,size=32MiB", *ACME)
    operator.does("start-vm", "one", *ACME)
    for _ in range(2):
        assert operator.json("detach-disk", "one", "held", *ACME, "--timeout", "0")["outcome"] == "pending"
    assert _disks(operator) == {"held": ("detaching", "one")}
    for command in (("attach-disk", "two", "held", *ACME), ("delete-disk", "held", *ACME, "--yes")):
        assert "has not released it yet" in operator.is_refused(*command)["message"]
    assert operator.json("repair") == []
    operator.does("stop-vm", "one", *ACME, "--timeout", "0")
    assert [one["outcome"] for one in operator.json("repair", "--dry-run")] == ["would be freed"]
    (freed,) = operator.json("repair")
    assert (freed["found"], freed["outcome"]) == ("disk held was being detached", "freed")
    assert (operator.json("repair"), _disks(operator)) == ([], {"held": ("free", None)})
    operator.does("delete-disk", "held", *ACME, "--yes")
    assert _disks(operator) == {}
    operator.does("start-vm", "one", *ACME)


def test_a_vm_that_is_deleted_keeps_no_disk_from_its_tenant(operator: Operator) -> None:
    operator.does("create-vm", "short", *SIZE, "--host", "sim-001", "--data-disk", "mine,size=32MiB")
    operator.json("detach-disk", "short", "mine", *ACME, "--timeout", "0")
    operator.does("attach-disk", "short", "gone,size=32MiB", *ACME)
    operator.does("delete-vm", "short", *ACME, "--yes", "--timeout", "0")
    assert _disks(operator) == {"mine": ("free", None)}
    operator.does("delete-disk", "mine", *ACME, "--yes")


def test_what_cannot_be_is_refused(operator: Operator) -> None:
    for arguments, why in (
        (("attach-disk", "one", "new", *ACME), "has no disk 'new' to attach"),
        (("attach-disk", "one", "a,size=1MiB,bus=ide", *ACME), "bus is 'ide'"),
        (("attach-disk", "one", "a,size=1MiB,pool=nowhere", *ACME), "nowhere"),
        (("attach-disk", "one", f"{'a' * 21},size=1MiB", *ACME), "has 21 characters, and is its serial number"),
        (("detach-disk", "one", "vda", *ACME), "its first disk stays with the VM"),
        (("detach-disk", "one", "none", *ACME), "VM one has no data disk 'none'"),
        (("delete-disk", "none", *ACME, "--yes"), "tenant acme has no data disk 'none'"),
        (("list-disks", "--tenant", "nobody"), "nobody"),
    ):
        assert why in operator.is_refused(*arguments)["message"]
    assert _disks(operator) == {}


_LATER = pytest.mark.long("tests/e2e/disk/test_attach_disk.py::test_a_killed_attach_is_finished_by_the_next_one")


@pytest.mark.parametrize("kill", ["create_disk", *(pytest.param(one, marks=_LATER) for one in ("4", "6"))])
def test_a_killed_attach_is_finished_by_the_next_one(operator: Operator, kill: str) -> None:
    operator.does("stop-vm", "two", *ACME, "--timeout", "0")
    attach = ("attach-disk", "two", "cut,size=32MiB", *ACME)
    kill_after(operator, kill, *attach)
    operator.does("repair")
    assert "cut" in _disks(operator)
    operator.does(*attach)
    assert _disks(operator) == {"cut": ("attached", "two")}
    operator.does("detach-disk", "two", "cut", *ACME)
    operator.does("delete-disk", "cut", *ACME, "--yes")
    operator.does("start-vm", "two", *ACME)
