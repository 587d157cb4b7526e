# SPDX-License-Identifier: Apache-2.0
"""A backup is restored when the hosts have moved on: nothing on them is lost, all is listed, and the store is true."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness

SIZE = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
ON_1 = ("--gpu", "A40-8Q", "--host", "sim-001")
FREE = ("--yes", "--timeout", "0")


@dataclass(frozen=True)
class Rehearsal:
    """The operator's shell after the restore. before: the hosts as they were before the first VM."""

    operator: Operator
    witness: FleetWitness
    before: list[str]

    def differences(self) -> dict[str, str]:
        """The differences by name, with their kind."""
        done = self.operator.run("reconcile-store", "--json")
        return {one["name"]: one["kind"] for one in json.loads(done.out)["discrepancies"] if one["is_open"]}


def _domains(operator: Operator, host: str) -> dict[str, str]:
    with libvirt_of(operator.inventory, host) as there:
        return {one.uuid: one.name for one in there.domains()}


@pytest.fixture(scope="module")
def rehearsal(
    fleet_operator: Operator, fleet_witness: FleetWitness, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rehearsal]:
    """Backup; then VMs are created, deleted, moved and changed; then the backup is restored."""
    operator, backup = fleet_operator, tmp_path_factory.mktemp("backups") / "backup"
    operator.does("create-tenant", "acme")
    before = fleet_witness.state()
    operator.does("create-network", "front", "--tenant", "acme", "--cidr", "10.7.0.0/24", "--host", "sim-001")
    for name in ("stays", "gone", "changes"):
        operator.does("create-vm", name, *ON_1, *SIZE, *(("--disk", "8MiB") if name == "gone" else ()))
    operator.does("create-vm", "moves", "--host", "sim-001", *SIZE)
    operator.does("backup-store", str(backup))

    operator.does("delete-vm", "gone", "--tenant", "acme", *FREE)
    operator.does("create-vm", "late", *ON_1, *SIZE[:-1], "front", "--disk", "8MiB")
    operator.does("create-vm", "late-and-off", *ON_1, *SIZE, "--disk", "8MiB")
    operator.does("stop-vm", "late-and-off", "--tenant", "acme", "--timeout", "0")
    operator.does("create-tenant", "newcomer")
    operator.does("create-vm", "first", *ON_1, *SIZE[2:], "--tenant", "newcomer")
    operator.does("create-network", "back", "--tenant", "acme", "--cidr", "10.9.0.0/24", "--host", "sim-001")
    # `changes` comes back with another share: those that follow take its old one.
    operator.does("stop-vm", "changes", "--tenant", "acme", "--timeout", "0", "--hold", "release")
    operator.does("create-vm", "squatter", *ON_1, *SIZE)
    operator.does("start-vm", "changes", "--tenant", "acme")
    _move(operator, "acme.moves")

    operator.does("restore-store", str(backup), "--replace", "--yes")
    yield Rehearsal(operator, fleet_witness, before)


def _move(operator: Operator, name: str) -> None:
    """Do what a cold move does: the same domain, with its UUID, on another host."""
    with libvirt_of(operator.inventory, "sim-001") as there:
        xml = there.xml(name) or ""
        there.shutdown(name, timeout_s=0)
        there.undefine(name)
    with libvirt_of(operator.inventory, "sim-002") as there:
        there.define(xml)
        there.start(name)


CHANGING = {
    "create-vm": ("create-vm", "more", *ON_1, *SIZE),
    "delete-vm": ("delete-vm", "stays", "--tenant", "acme", *FREE),
    "stop-vm": ("stop-vm", "stays", "--tenant", "acme", "--timeout", "0"),
    "start-vm": ("start-vm", "gone", "--tenant", "acme"),
    "gc": ("gc", "--yes"),
    "repair": ("repair",),
    "controller": ("controller", "--once"),
    "create-network": ("create-network", "more", "--tenant", "acme", "--cidr", "10.8.0.0/24", "--host", "sim-001"),
    "offboard-tenant": ("offboard-tenant", "acme", *FREE),
    "set-quota": ("set-quota", "acme", "vms=9"),
}


@pytest.mark.parametrize("arguments", CHANGING.values(), ids=CHANGING)
def test_before_it_is_reconciled_the_store_takes_no_change(rehearsal: Rehearsal, arguments: tuple[str, ...]) -> None:
    there = rehearsal.witness.state()
    refused = rehearsal.operator.is_refused(*arguments)
    said = " ".join([refused["message"], *refused["context"]])
    assert "know what is on the hosts since then" in said, refused
    assert rehearsal.witness.state() == there


def test_commands_that_read_go_on(rehearsal: Rehearsal) -> None:
    operator = rehearsal.operator
    assert {vm["vm"]["request"]["name"] for vm in operator.json("list-vms")} == {"stays", "gone", "moves", "changes"}
    assert operator.does("list-gpus", "--refresh").out
    assert any(one["name"] == "acme.late-and-off" for one in operator.json("gc", "--dry-run"))


def test_the_rehearsal_ends_with_a_true_store_and_nothing_lost(rehearsal: Rehearsal, tmp_path: Path) -> None:
    operator = rehearsal.operator
    machines, domains = rehearsal.witness.state(), _domains(operator, "sim-001") | _domains(operator, "sim-002")
    assert rehearsal.differences() == {
        "sim-001/acme.late": "unknown-vm",
        "sim-001/acme.late-and-off": "unknown-vm",
        "sim-001/acme.squatter": "unknown-vm",
        "sim-001/newcomer.first": "unknown-vm",
        "acme/gone": "missing-vm",
        "acme/moves": "moved-vm",
        "acme/changes": "other-shares",
        "sim-001/network/acme.back": "unknown-object",
        "sim-001/acme/front": "network",
    }
    early = operator.is_refused("reconcile-store", "--done")
    assert "9 differences" in early["message"] and len(early["context"]) == 9
    wrong = operator.is_refused("reconcile-store", "--forget", "acme/stays")
    assert wrong["reference"] == "not-found"

    for name in ("gone", "moves", "changes"):
        operator.run("reconcile-store", "--forget", f"acme/{name}")
    operator.does("create-tenant", "newcomer")
    owners = [f"acme.{name}=acme/{name}" for name in ("late", "late-and-off", "squatter", "changes")]
    owners.append("newcomer.first=newcomer/first")
    operator.does("adopt-host", "sim-001", *(word for one in owners for word in ("--vm", one)))
    operator.does("adopt-host", "sim-002", "--vm", "acme.moves=acme/moves")
    assert rehearsal.differences() == {"sim-001/network/acme.back": "unknown-object"}
    done = operator.json("reconcile-store", "--done", "--accept", "sim-001/network/acme.back")
    assert done["is_done"]
    assert rehearsal.witness.state() == machines, "reconciling changes no host"
    assert _domains(operator, "sim-001") | _domains(operator, "sim-002") == domains

    vms: list[dict[str, Any]] = operator.json("list-vms")
    assert {vm["vm"]["uuid"]: f"{vm['vm']['request']['tenant']}.{vm['vm']['request']['name']}" for vm in vms} == domains
    assert operator.json("repair") == []
    ports = operator.json("show-network", "front", "--tenant", "acme")["ports"]
    assert [one["port"]["address"] for one in ports] == ["10.7.0.2"], "the network keeps the address of a VM made later"
    left = [one for one in operator.json("gc", "--dry-run") if one["left"] is None]
    assert [(one["kind"], one["name"]) for one in left] == [("network", "acme.back")]
    assert [one["kind"] for one in operator.json("list-events") if one["kind"].startswith("store-")] == [
        "store-restored",
        "store-reconciled",
    ]
    again = operator.is_refused("reconcile-store", "--done")
    assert "reconciled already" in again["message"]

    operator.does("gc", "--yes")
    for tenant in ("acme", "newcomer"):
        names = [vm["vm"]["request"]["name"] for vm in vms if vm["vm"]["request"]["tenant"] == tenant]
        operator.does("delete-vm", *names, "--tenant", tenant, *FREE)
    assert operator.json("list-vms") == []


def test_a_standby_that_may_lack_commits_is_marked_by_hand(rehearsal: Rehearsal, tmp_path: Path) -> None:
    operator = rehearsal.operator
    operator.does("reconcile-store", "--begin")
    (marked,) = operator.json("list-events", "--kind", "store-marked")
    assert (marked["before"], marked["after"]) == ({"marked": False}, {"marked": True})
    assert operator.is_refused("set-quota", "acme", "vms=9")["reference"] == "store-not-reconciled"
    assert "marked already" in operator.is_refused("reconcile-store", "--begin")["message"]
    dead = tmp_path / "inventory.yml"
    dead.write_text("{all: {hosts: {gone-1: {ansible_host: 127.0.0.1, ansible_port: 1}}}}")
    both = ("-i", str(operator.inventory), "-i", str(dead))
    silent = operator.is_refused("reconcile-store", *both, "--done")
    assert silent["context"] and silent["context"][0].startswith("gone-1: ")
    operator.does("reconcile-store", *both, "--done", "--accept", "gone-1")
    operator.does("set-quota", "acme", "vms=9")
