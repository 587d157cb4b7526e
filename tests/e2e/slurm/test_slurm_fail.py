# SPDX-License-Identifier: Apache-2.0
"""slurm-fail gives up nodes that did not register in time: their VMs are deleted, and they are counted."""

from collections.abc import Iterator

import pytest

from tests.e2e.operator import Operator
from tests.e2e.slurm.slurm_lab import ONCE, run_without_environment, slurm_lab
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


def never_joined(operator: Operator) -> int:
    (found,) = operator.json("list-node-pools", "gpu", *ACME)
    count: int = found["never_joined"]
    return count


def test_a_node_whose_vm_never_registered_is_deleted_and_counted(operator: Operator) -> None:
    operator.does("slurm-resume", "gpu-001", *ACME)
    operator.does(*ONCE)
    done = run_without_environment(operator, "slurm-fail", "gpu-001", *ACME)
    assert (done.returncode, done.stderr) == (0, "gpu-001: let go, never joined\n")
    assert never_joined(operator) == 1
    assert [one["outcome"] for one in operator.json("slurm-fail", "gpu-001", *ACME)] == ["nothing to do"]
    assert never_joined(operator) == 1
    operator.does(*ONCE)
    assert operator.json("list-vms") == []
    (event,) = [one for one in operator.json("list-events", "acme/gpu-001") if one["kind"] == "node-never-joined"]
    assert event["detail"] == "it did not register with slurmctld within ResumeTimeout"


def test_a_node_that_never_had_a_vm_is_not_counted(operator: Operator) -> None:
    operator.does("slurm-resume", "gpu-001", *ACME)
    before = never_joined(operator)
    assert [one["outcome"] for one in operator.json("slurm-fail", "gpu-001", *ACME)] == ["let go"]
    assert never_joined(operator) == before
    assert operator.json("list-queue")["queue"] == []


@pytest.mark.long(
    "tests/e2e/slurm/test_slurm_fail.py::test_a_node_whose_vm_never_registered_is_deleted_and_counted",
    "tests/e2e/slurm/test_export_slurm.py::test_slurmctld_starts_with_exactly_these_lines",
)
def test_slurmctld_gives_up_a_guest_that_does_not_come(operator: Operator) -> None:
    """The VM runs, and nobody starts slurmd in it."""
    before = never_joined(operator)
    with slurm_lab(operator, resume_timeout_s=8) as lab:
        job = lab.cluster.submit("--nodelist=gpu-001", "--gres=gpu:1")
        lab.until(lab.vms, "no VM", boots=False)
        lab.until(lambda: never_joined(operator) == before + 1, "slurm-fail was not called", boots=False)
        lab.until(lambda: not lab.vms(), "the VM is not deleted", boots=False)
        assert lab.cluster.job(job)["JobState"] in ("PENDING", "CONFIGURING")
        assert lab.cluster.job(job)["Restarts"] == "1"
