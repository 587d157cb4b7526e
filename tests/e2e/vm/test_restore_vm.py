# SPDX-License-Identifier: Apache-2.0
"""delete-vm --keep-disk and restore-vm on simulated hosts: what stays, what comes back, and what a kill leaves."""

import time

from tests.e2e.kills import kill_after
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from vgpuctl.store.store import open_store

__all__ = ["operator"]
WEB = (*SIZE, "--hostname", "h", "--gpu", "A40-8Q", "--data-disk", "scratch,size=32MiB", "--host", "sim-002")
DELETE = ("delete-vm", "acme/web", "--yes", "--timeout", "0")


def _volumes(operator: Operator) -> set[tuple[str, str]]:
    with open_store(operator.database) as store, store.reading() as session:
        return {(str(one.kind), one.vm_uuid) for one in session.volumes(tenant="acme")}


def _kinds(operator: Operator) -> set[str]:
    return {kind for kind, _ in _volumes(operator)}


def test_a_vm_comes_back_with_its_disks_uuid_and_a_new_share(operator: Operator) -> None:
    (made,) = operator.json("create-vm", "acme/web", *WEB)
    operator.does(*DELETE, "--keep-disk=2h")
    assert operator.json("list-vms", *ACME) == []
    disks = {one["name"]: one for one in operator.json("list-disks", *ACME)}
    assert {name: (one["state"], one["vm"], one["host"]) for name, one in disks.items()} == {
        "web": ("kept", "web", "sim-002"),
        "scratch": ("kept", "web", "sim-002"),
    }
    assert 7000 < disks["web"]["until"] - time.time() <= 7200
    assert "acme" not in operator.does("gc", "--limit", "sim-002").out
    refusal = operator.is_refused("show-vm", "acme/web")
    assert "its disks are kept on sim-002" in refusal["message"] and "vgpuctl restore-vm acme/web" in refusal["hint"]

    before = _volumes(operator)
    assert operator.json("restore-vm", "acme/web", "--dry-run")["changed"] is False
    assert _volumes(operator) == before and operator.json("list-vms", *ACME) == []
    back = operator.json("restore-vm", "acme/web")["vm"]
    assert (back["uuid"], back["host"], back["request"]) == (made["vm"]["uuid"], "sim-002", made["vm"]["request"])
    shown = operator.json("show-vm", "acme/web")
    assert shown["vm"]["state"] == "running" and len(shown["leases"]) == 1
    assert _volumes(operator) == before
    assert operator.is_refused("restore-vm", "acme/web")["message"] == "VM acme/web is not deleted"
    operator.does(*DELETE)
    assert _volumes(operator) == set()


def test_a_name_that_is_taken_and_a_second_keeping_are_refused(operator: Operator) -> None:
    operator.does("create-vm", "acme/web", *WEB)
    operator.does(*DELETE, "--keep-disk")
    operator.does("create-vm", "acme/web", *SIZE, "--host", "sim-001")
    assert "there is a new VM of this name on sim-001" in operator.is_refused("restore-vm", "acme/web")["message"]
    refusal = operator.is_refused(*DELETE, "--keep-disk")
    assert "the disks of an earlier VM of this name are kept on sim-002" in refusal["message"]
    operator.does(*DELETE)
    operator.does("delete-disk", "acme/web", "--yes")
    assert _volumes(operator) == set() and operator.json("list-disks", *ACME) == []
    assert "no disk of a deleted VM acme/web is kept" in operator.is_refused("restore-vm", "acme/web")["message"]


def test_without_room_the_vm_is_back_and_stopped(operator: Operator) -> None:
    operator.does("create-vm", "acme/web", *SIZE, "--gpu", "A40-48Q", "--host", "sim-001")
    operator.does(*DELETE, "--keep-disk")
    operator.does("create-vm", "acme/other", *SIZE, "--gpu", "A40-48Q", "--host", "sim-001")
    assert "no room" in operator.is_refused("restore-vm", "acme/web")["message"]
    assert operator.json("show-vm", "acme/web")["vm"]["state"] == "stopped"
    operator.does("delete-vm", "acme/other", "--yes", "--timeout", "0")
    operator.does("start-vm", "acme/web")
    operator.does(*DELETE)


def test_a_kill_at_any_side_effect_loses_no_disk(operator: Operator) -> None:
    operator.does("create-vm", "acme/web", *WEB)
    kept = {"disk", "data", "seed"}
    for number in (1, 2):
        kill_after(operator, number, *DELETE, "--keep-disk=1h")
        assert _kinds(operator) == kept
    operator.does("repair")
    assert _kinds(operator) == kept and operator.json("list-vms", *ACME) == []
    kill_after(operator, "define", "restore-vm", "acme/web")
    assert _kinds(operator) == kept
    operator.does("repair")
    assert operator.json("show-vm", "acme/web")["vm"]["state"] == "stopped"
    operator.does("start-vm", "acme/web")
    assert _kinds(operator) == kept
    operator.does(*DELETE, "--keep-disk=1h")
    operator.does("controller", "--once")
    assert _kinds(operator) == kept
    operator.later(3700).does("controller", "--once")
    assert _volumes(operator) == set() and operator.json("list-disks", *ACME) == []
    events = operator.json("list-events", "--kind", "kept-disks-deleted")
    assert "their time is over" in {event["detail"] for event in events}
