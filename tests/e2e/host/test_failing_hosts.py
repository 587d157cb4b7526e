# SPDX-License-Identifier: Apache-2.0
"""Hosts that fail while VMs are created: the VMs go to others, and nothing is left behind."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.state import MachineFolder

ACME = ("--tenant", "acme")
SMALL = (*ACME, "--memory", "96MiB", "--vcpus", "1", "--network", "none")
CREATE = ("create-vm", "web", "--gpu", "A40-8Q", *SMALL)
A40_HOSTS = {"sim-001", "sim-002"}


@contextmanager
def failing(fleet: lab.LabFolder, name: str, kind: str) -> Iterator[None]:
    lab.faults.begin(name, kind, folder=fleet)
    try:
        yield
    finally:
        lab.faults.clear(name, folder=fleet)


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator, fleet: lab.LabFolder) -> Operator:
    for name in A40_HOSTS:  # a card that had a fault once is noted in the machine's state for good
        with failing(fleet, name, "refuse"):
            pass
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("list-gpus", "--refresh")
    return fleet_operator


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator, fleet: lab.LabFolder, fleet_witness: FleetWitness) -> Iterator[None]:
    before = fleet_witness.state()
    yield
    for name in lab.simulated.names(folder=fleet):
        lab.faults.clear(name, folder=fleet)
    operator.delete_all_vms()
    assert fleet_witness.state() == before


def chosen(operator: Operator, *arguments: str) -> str:
    """The host that takes the VM while all are well."""
    (planned,) = operator.json(*arguments, "--dry-run")
    host: str = planned["vm"]["host"]
    return host


def test_where_no_host_is_left_all_that_failed_are_named(operator: Operator, fleet: lab.LabFolder) -> None:
    with failing(fleet, "sim-001", "sshd"), failing(fleet, "sim-002", "sshd"):
        refused = operator.is_refused(*CREATE, "-l", "sim-001,sim-002")
    assert refused["message"].startswith("no host is left: ")
    assert sorted(line.partition(":")[0] for line in refused["context"]) == ["sim-001", "sim-002"]


_LIBVIRT = pytest.mark.long("tests/e2e/host/test_failing_hosts.py::test_a_vm_goes_to_another_host_when_the_first_fails")


@pytest.mark.parametrize("kind", ["sshd", pytest.param("libvirtd", marks=_LIBVIRT), "refuse"])
def test_a_vm_goes_to_another_host_when_the_first_fails(kind: str, operator: Operator, fleet: lab.LabFolder) -> None:
    first = chosen(operator, *CREATE)
    with failing(fleet, first, kind):
        done = operator.does(*CREATE)
    assert f"{first} failed and is left out: " in done.err
    ((vm,),) = ([one["vm"] for one in operator.json("list-vms")],)
    assert (vm["state"], vm["host"]) == ("running", *(A40_HOSTS - {first}))


def test_a_vm_that_fits_nowhere_else_names_the_host_that_failed(operator: Operator, fleet: lab.LabFolder) -> None:
    for name in A40_HOSTS:
        lab.faults.begin(name, "sshd", folder=fleet)
    refused = operator.is_refused(*CREATE)
    assert refused["reference"] == "no-capacity"
    assert {line.split(" was left out")[0] for line in refused["context"][:2]} == A40_HOSTS
    alone = operator.is_refused(*CREATE, "--host", "sim-001")
    assert alone["reference"] == "host-unreachable"
    assert operator.json("list-vms") == []


def test_a_gang_goes_to_other_hosts_as_a_whole(operator: Operator, fleet: lab.LabFolder) -> None:
    gang = ("create-vm", "web", "--count", "2", "--gang", "--gpu", "A40-8Q", *SMALL)
    first = operator.json(*gang, "--dry-run")[0]["vm"]["host"]
    with failing(fleet, first, "libvirtd"):
        operator.does(*gang)
    vms = [one["vm"] for one in operator.json("list-vms")]
    assert [(vm["state"], vm["host"]) for vm in vms] == [("running", *(A40_HOSTS - {first}))] * 2


def test_a_vm_of_the_queue_goes_to_another_host(operator: Operator, fleet: lab.LabFolder) -> None:
    first = chosen(operator, *CREATE)
    with failing(fleet, first, "libvirtd"):
        operator.does("create-vm", "other", "--queue", "--gpu", "A40-8Q", *SMALL)
    assert operator.json("list-vms")[0]["vm"]["host"] != first


_AT_A_STOP = pytest.mark.long(
    "tests/e2e/host/test_failing_hosts.py::test_a_vgpu_that_the_driver_lets_go_late_is_given_back",
    "tests/agent/test_changes.py::test_a_driver_that_lets_go_late_is_waited_for",
)


@pytest.mark.parametrize(
    "command", [("delete-vm", "--yes"), pytest.param(("stop-vm", "--hold", "release"), marks=_AT_A_STOP)]
)
def test_a_vgpu_that_the_driver_lets_go_late_is_given_back(
    command: tuple[str, ...], operator: Operator, fleet: lab.LabFolder, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    operator.does(*CREATE)
    ((vm,),) = ([one["vm"] for one in operator.json("list-vms")],)
    name, *options = command
    with failing(fleet, vm["host"], "removal-delay"):
        operator.does(name, "web", *ACME, *options, "--timeout", "0")
    assert fleet_witness.state() == before


def machine_of(fleet: lab.LabFolder, name: str) -> MachineFolder:
    return MachineFolder(simulated_folder(fleet).host(name))


def test_a_vf_that_no_vm_can_use_is_put_aside_named_and_lifted(operator: Operator, fleet: lab.LabFolder) -> None:
    """Its files look healthy: QEMU alone finds out."""
    first = chosen(operator, *CREATE)
    pinned = (*CREATE, "--host", first)
    (planned,) = operator.json(*pinned, "--dry-run")
    machine = machine_of(fleet, first)
    vfs = machine.state().vfs_of(machine.shape.cards[0])
    wedged = [planned["leases"][0]["share"]["function"]]
    lab.faults.begin(first, "vf-wedged", vfs.index(wedged[0]) + 1, folder=fleet)
    refused = operator.is_refused(*pinned)
    assert f"vfio {wedged[0]}" in refused["message"] and "use another one" in refused["hint"]
    operator.does(*pinned)
    ((vm,),) = ([one["vm"] for one in operator.json("list-vms")],)
    assert (vm["state"], vm["host"]) == ("running", first)
    (listed,) = [one for one in operator.json("list-gpus", "--limit", first) if one["closed_vfs"]]
    assert listed["closed"] is None
    assert list(listed["closed_vfs"]) == wedged
    assert "vf-wedged" in listed["closed_vfs"][wedged[0]] and "could not open it" in listed["closed_vfs"][wedged[0]]
    assert listed["closed_vfs"][wedged[0]] in operator.run("list-gpus", "--limit", first).out
    (event,) = [one for one in operator.json("list-events") if one["kind"] == "gpu-quarantined"]
    assert event["subject"] == f"{first} {wedged[0]}"
    assert operator.json("unquarantine-gpu", first, wedged[0], "--reason", "VFs recreated")["changed"]
    assert not any(one["closed_vfs"] for one in operator.json("list-gpus", "--limit", first))


def test_no_end_of_a_young_vm_kills_its_qemu(operator: Operator, fleet: lab.LabFolder) -> None:
    first = chosen(operator, *CREATE)
    machine = machine_of(fleet, first)
    lab.faults.begin(first, "vf-wedged", 32, folder=fleet)
    before = machine.state().wedged
    assert len(before) == 1
    operator.does(*CREATE, "--host", first)
    operator.does("stop-vm", "web", *ACME, "--timeout", "0")
    operator.does("start-vm", "web", *ACME)
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    assert machine.state().wedged == before


def test_vms_take_turns_on_the_vfs(operator: Operator) -> None:
    used = []
    for _ in range(2):
        operator.does(*CREATE)
        (one,) = operator.json("list-vms")
        used.append((one["vm"]["host"], one["leases"][0]["share"]["function"]))
        operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
    assert used[0][0] != used[1][0] or used[0][1] != used[1][1]
