# SPDX-License-Identifier: Apache-2.0
"""A host whose agent lies: nothing is promised on its word that libvirt or a second look does not confirm."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.lying_agent import write_program
from tests.e2e.operate.test_watched_hosts import QUICK
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness
from tests.lab.simulated_fixtures import machine
from vgpuctl_lab.simulated.layout import simulated_folder

ACME = ("--tenant", "acme")
CREATE = ("create-vm", "web", *ACME, "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
DELETE = ("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
LIAR = "sim-001"


@pytest.fixture(scope="module")
def lie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that names the lie of the host."""
    path = tmp_path_factory.mktemp("liar") / "lie"
    path.write_text("none")
    return path


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator, fleet: lab.LabFolder, lie: Path) -> Operator:
    """An operator whose inventory has one host with the agent that lies."""
    program = lie.with_name("python3")
    write_program(program, lie, simulated_folder(fleet).programs / "python3")
    inventory = lie.with_name("hosts.yml")
    text = fleet_operator.inventory.read_text()
    inventory.write_text(
        text.replace(f"    {LIAR}:\n", f"    {LIAR}:\n      ansible_python_interpreter: {program}\n", 1)
    )
    made = replace(fleet_operator, inventory=inventory)
    made.does("create-tenant", "acme")
    made.does("list-gpus", "--refresh")
    return made


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator, lie: Path, fleet_witness: FleetWitness) -> Iterator[None]:
    lie.write_text("none")
    before = fleet_witness.state()
    yield
    lie.write_text("none")
    assert operator.json("repair") == []
    assert operator.json("list-vms") == []
    assert fleet_witness.state() == before


def test_a_share_that_was_said_to_be_made_and_is_not_is_rolled_back(
    operator: Operator, lie: Path, fleet: lab.LabFolder
) -> None:
    lie.write_text("done")
    refused = operator.is_refused(*CREATE, "--host", LIAR)
    assert "error getting device" in refused["message"], refused
    assert machine(fleet, LIAR).state().domains == {}
    lie.write_text("none")
    operator.does(*CREATE, "--host", LIAR)
    operator.does(*DELETE)


def test_a_device_that_was_said_to_be_freed_and_is_not_is_found_again(
    operator: Operator, lie: Path, fleet: lab.LabFolder
) -> None:
    """The lease ends on the agent's word; the vGPU that is still there is never given out, and `gc` finds it."""
    operator.does(*CREATE, "--host", LIAR)
    (before,) = operator.json("list-vms")
    function = before["leases"][0]["share"]["function"]
    lie.write_text("done")
    operator.does(*DELETE)
    assert [one.function for one in machine(fleet, LIAR).state().vgpus] == [function]
    lie.write_text("none")
    operator.does(*CREATE, "--host", LIAR)
    (after,) = operator.json("list-vms")
    assert after["leases"][0]["share"]["function"] != function
    found = operator.json("gc", "--yes", "--kind", "vgpu")
    assert [(one["host"], function in one["name"]) for one in found] == [(LIAR, True)]
    operator.does(*DELETE)


def test_a_vm_whose_share_nobody_holds_is_not_called_running(operator: Operator, lie: Path) -> None:
    lie.write_text("free")
    impatient = replace(operator, variables={**operator.variables, "VGPUCTL_TESTS_PROVE_S": "2"})
    done = impatient.run(*CREATE, "--host", LIAR, "--json", program=QUICK)
    (said,) = [line for line in done.err.splitlines() if line.startswith('{"error"')]
    refused = json.loads(said)["error"]
    assert "does not have what it was promised" in refused["message"], refused
    assert "held by nobody" in refused["context"][0], refused


def test_a_host_whose_readings_differ_gets_no_vm_and_others_do(operator: Operator, lie: Path) -> None:
    lie.write_text("forgets")
    refused = operator.is_refused(*CREATE, "--host", LIAR)
    assert "has no VF" in str(refused), refused
    operator.does(*CREATE, "--host", "sim-002")
    operator.does(*DELETE)
