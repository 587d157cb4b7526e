# SPDX-License-Identifier: Apache-2.0
"""slurm-suspend lets nodes go; the controller deletes their VMs, and their shares come back."""

from collections.abc import Iterator

import pytest

from tests.e2e.operator import Operator
from tests.e2e.slurm.slurm_lab import ONCE, run_without_environment
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.e2e.witness import FleetWitness

__all__ = ["operator"]
FLEET = (1, "a40")


@pytest.fixture(autouse=True)
def one_pool(operator: Operator, fleet_witness: FleetWitness) -> Iterator[None]:
    before = fleet_witness.state()
    operator.does("create-node-pool", "gpu", *ACME, *SIZE, "--role", "slurm", "--gpu", "A40-24Q", "--max", "4")
    yield
    operator.does("delete-node-pool", "gpu", *ACME, "--yes", "--drained", "--timeout", "0")
    assert fleet_witness.state() == before
    assert operator.json("list-queue")["queue"] == []


def nodes(operator: Operator) -> dict[str, str]:
    (found,) = operator.json("list-node-pools", "gpu", *ACME)
    return {one["node"]["name"]: one["state"] for one in found["nodes"]}


def test_a_suspended_node_gives_its_share_back(operator: Operator, fleet_witness: FleetWitness) -> None:
    before = fleet_witness.state()
    operator.does("slurm-resume", "gpu-[001-002]", *ACME)
    operator.does(*ONCE)
    assert nodes(operator) == {"gpu-001": "joining", "gpu-002": "joining"}
    answers = operator.json("slurm-suspend", "gpu-[001-002]", *ACME)
    assert [one["outcome"] for one in answers] == ["let go", "let go"]
    assert nodes(operator) == {"gpu-001": "leaving", "gpu-002": "leaving"}
    assert [one["outcome"] for one in operator.json("slurm-suspend", "gpu-001", *ACME)] == ["nothing to do"]
    operator.does(*ONCE)
    assert nodes(operator) == {}
    assert operator.json("list-vms") == []
    assert fleet_witness.state() == before


def test_a_node_without_a_vm_is_gone_at_once(operator: Operator) -> None:
    operator.does("slurm-resume", "gpu-001", *ACME)
    done = run_without_environment(operator, "slurm-suspend", "gpu-001", *ACME)
    assert (done.returncode, done.stderr) == (0, "gpu-001: let go\n")
    assert nodes(operator) == {}
    assert operator.json("list-queue")["queue"] == []


def test_a_node_that_is_resumed_while_its_vm_goes_gets_a_new_one(operator: Operator) -> None:
    operator.does("slurm-resume", "gpu-001", *ACME)
    operator.does(*ONCE)
    (before,) = operator.json("list-vms")
    operator.does("slurm-suspend", "gpu-001", *ACME)
    assert [one["outcome"] for one in operator.json("slurm-resume", "gpu-001", *ACME)] == ["wanted"]
    operator.does(*ONCE)
    operator.does(*ONCE)
    (after,) = operator.json("list-vms")
    assert before["vm"]["uuid"] != after["vm"]["uuid"], "a VM that did not boot again is never ready for Slurm"
    assert nodes(operator) == {"gpu-001": "joining"}


def test_strangers_are_refused_by_name_and_the_others_go(operator: Operator) -> None:
    operator.does("slurm-resume", "gpu-001", *ACME)
    done = operator.run("slurm-suspend", "GPU_1,gpu-001,web", *ACME)
    assert done.code == 10
    assert "GPU_1 is no node" in done.err and "web is no node" in done.err
    assert nodes(operator) == {}
