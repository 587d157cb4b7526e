# SPDX-License-Identifier: Apache-2.0
"""Many nodes at once: Slurm names them in one call, and each of their jobs runs in the place of its own VM."""

import pytest

from tests.e2e.operator import Operator
from tests.e2e.slurm.slurm_lab import slurm_lab
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.e2e.witness import FleetWitness

__all__ = ["operator"]
FLEET = (2, "a40")


@pytest.mark.long(
    "tests/e2e/slurm/test_jobs.py::test_a_vm_appears_for_each_job_and_disappears_after_it",
    "tests/e2e/slurm/test_slurm_resume.py::test_nodes_are_wanted_with_their_jobs_and_a_second_call_changes_nothing",
)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("nodes", [4, 64])
def test_many_nodes_come_and_go(operator: Operator, fleet_witness: FleetWitness, nodes: int) -> None:
    before = fleet_witness.state()
    operator.does("create-node-pool", "gpu", *ACME, *SIZE, "--role", "slurm", "--gpu", "A40-1Q", "--max", str(nodes))
    # With many nodes it waits for slurmctld's own look at the nodes of batch jobs, as a cluster without a prolog does.
    is_large = nodes > 8
    suspend_s = 20 if is_large else 5
    with slurm_lab(operator, resume_timeout_s=600, suspend_s=suspend_s, begins_batch_at_once=not is_large) as lab:
        array = lab.cluster.submit(f"--array=1-{nodes}", "--gres=gpu:a40-1q:1", "--exclusive",
                                   script=f"echo $SLURMD_NODENAME >>{lab.cluster.folder}/ran")  # fmt: skip
        ran = lab.cluster.folder / "ran"
        lab.until(lambda: ran.exists() and len(ran.read_text().split()) == nodes, "not all jobs ran", limit_s=600)
        assert len(set(ran.read_text().split())) == nodes, "each job had a node of its own"
        wanted = operator.json("list-events", "--kind", "node-wanted")
        jobs = [job for one in wanted for job in one["after"]["jobs"]]
        assert len({one["subject"] for one in wanted}) == nodes and len(set(jobs)) == nodes
        assert lab.cluster.run("squeue", "-h", "-j", array, must=False).count("PENDING") == 0
        lab.until(lambda: not lab.vms(), "not all VMs are gone", limit_s=600)
        assert lab.nodes() == {}
    assert fleet_witness.state() == before
    operator.does("delete-node-pool", "gpu", *ACME, "--yes")
