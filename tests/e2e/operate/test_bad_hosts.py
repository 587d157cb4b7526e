# SPDX-License-Identifier: Apache-2.0
"""A full disk on a host, one host of eight that hangs, and a domain that was renamed by hand."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, operator
from tests.e2e.witness import FleetWitness

__all__ = ["operator"]

FLEET = (8, "a40")
"""Eight hosts with one A40 each."""
HOST = "sim-001"
SIZE = ("--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none", "--host", HOST)
CREATE = ("create-vm", "web", *ACME, *SIZE, "--disk", "64MiB", "--hostname", "guest")
STOP = ("stop-vm", "web", *ACME, "--timeout", "0")
START = ("start-vm", "web", *ACME)
DELETE = ("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@contextmanager
def failing(fleet: lab.LabFolder, kind: str) -> Iterator[None]:
    lab.faults.begin(HOST, kind, folder=fleet)
    try:
        yield
    finally:
        lab.faults.clear(HOST, folder=fleet)


def test_a_full_disk_of_a_host_is_named_and_leaves_nothing(
    operator: Operator, fleet: lab.LabFolder, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    with failing(fleet, "disk-full"):
        refused = operator.is_refused(*CREATE)
    assert "No space left on device" in refused["message"] and HOST in refused["message"], refused
    assert "df -h" in refused["hint"] and "pool-info" in refused["hint"]
    rolled_back = operator.json("list-events", "--kind", "vm-rolled-back")[-1]
    assert "No space left on device" in rolled_back["detail"], rolled_back
    assert operator.json("list-vms") == operator.json("repair") == []
    assert fleet_witness.state() == before
    operator.does(*CREATE)
    operator.does(*STOP)
    with failing(fleet, "disk-full"):
        refused = operator.is_refused(*START)
        assert "No space left on device" in refused["message"], refused
        assert operator.json("list-vms")[0]["declared"] == "stopped"
    assert operator.json("repair") == []
    operator.does(*START)
    with failing(fleet, "disk-full"):
        operator.does(*DELETE)
    assert fleet_witness.state() == before


@pytest.mark.long(
    "tests/e2e/operate/test_watched_hosts.py::test_a_host_that_hangs_delays_no_other",
    "tests/integration/ssh/test_fleet.py::test_no_more_than_forks_run_at_once",
)
def test_one_host_that_hangs_delays_the_others_by_nothing(operator: Operator, fleet: lab.LabFolder) -> None:
    with failing(fleet, "network"):
        began_at = time.time()
        done = operator.run("list-gpus", "--refresh", "--json", "--connect-timeout", "10", "--command-timeout", "10")
        told = {one["host"]: one["observation"] for one in operator.json("list-gpus")}
        (web,) = operator.json("create-vm", "other", *ACME, "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1",
                               "--network", "none")  # fmt: skip
    assert [host for host, seen in told.items() if seen["unknown_since"] is not None] == [HOST]
    assert {one["host"] for one in json.loads(done.out)} == set(told) - {HOST}, "it is an error at the end"
    assert (done.code, len(told)) == (10, 8)
    read_at = [seen["at"] for host, seen in told.items() if host != HOST]
    assert began_at <= min(read_at) and max(read_at) < told[HOST]["unknown_since"], "nobody waited for it"
    assert web["vm"]["host"] != HOST
    operator.does("delete-vm", "other", *ACME, "--yes", "--timeout", "0")
    operator.does("list-gpus", "--refresh")


def renamed(operator: Operator) -> str:
    """Rename the domain by hand. Returns its new name."""
    with libvirt_of(operator.inventory, HOST) as there:
        there.connection.lookupByName("acme.web").rename("other", 0)
    return "other"


def domains(operator: Operator) -> dict[str, bool]:
    with libvirt_of(operator.inventory, HOST) as there:
        return {one.name(): bool(one.isActive()) for one in there.connection.listAllDomains(0)}


def test_a_renamed_domain_gets_its_name_back_when_it_starts(operator: Operator, fleet_witness: FleetWitness) -> None:
    before = fleet_witness.state()
    operator.does(*CREATE)
    operator.does(*STOP)
    renamed(operator)
    assert operator.json("repair") == []
    operator.does(*START)
    assert domains(operator) == {"acme.web": True}
    operator.does(*STOP)
    renamed(operator)
    operator.does(*DELETE)
    assert domains(operator) == {}
    assert fleet_witness.state() == before


def test_a_vm_that_runs_under_another_name_is_the_same_vm(operator: Operator, fleet_witness: FleetWitness) -> None:
    before = fleet_witness.state()
    operator.does(*CREATE)
    operator.does(*STOP)
    name = renamed(operator)
    with libvirt_of(operator.inventory, HOST) as there:
        there.connection.lookupByName(name).create()
    (found,) = operator.json("list-vms", "--refresh")
    assert (found["observed"], found["domain_name"]) == ("running", name)
    operator.does("repair")
    assert operator.json("list-vms")[0]["vm"]["state"] == "running"
    assert operator.json(*START)["changed"] is False
    operator.does("stop-vm", "web", *ACME, "--hold", "release", "--timeout", "0")
    assert domains(operator) == {name: False}
    operator.does(*START)
    assert domains(operator) == {"acme.web": True}
    operator.does(*DELETE)
    assert fleet_witness.state() == before


def test_repair_connects_to_a_silent_host_once(operator: Operator, fleet: lab.LabFolder) -> None:
    for name in ("one", "two"):
        operator.does("create-vm", name, *ACME, *SIZE)
    log = operator.home / "repair.log"
    with failing(fleet, "network"):
        done = operator.run("repair", "--json", "--connect-timeout", "2", "--log-file", str(log))
    outcomes = {one["subject"]: one["outcome"] for one in json.loads(done.out)}
    assert set(outcomes) == {"acme/one", "acme/two"}
    (why,) = set(outcomes.values())
    assert why.startswith("failed: ") and HOST in why
    logins = [line for line in log.read_text().splitlines() if f"event=ssh-login host={HOST}" in line]
    assert len(logins) == 1 and "error=" in logins[0], logins
    assert operator.json("repair") == []
    operator.delete_all_vms()
