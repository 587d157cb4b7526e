# SPDX-License-Identifier: Apache-2.0
"""Batch jobs make VMs appear on simulated hosts, run in their place, and let them disappear."""

import base64
import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kills import kill_after
from tests.e2e.node.pools import secret_file
from tests.e2e.operator import Operator
from tests.e2e.slurm.slurm_lab import ONCE, SlurmLab, slurm_lab
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.e2e.witness import FleetWitness
from tests.slurm_fixture import wait_until

__all__ = ["operator"]
FLEET = (2, "a40")
WANTS = ("--gres=gpu:1", "--constraint=a40-24q")
UNTIL_END = "until [ -e end ]; do sleep 0.1; done"
"""The script of a job that ends with `end`."""


@pytest.fixture(autouse=True)
def one_pool(operator: Operator, fleet_witness: FleetWitness) -> Iterator[None]:
    before = fleet_witness.state()
    operator.does("create-node-pool", "gpu", *ACME, *SIZE, "--role", "slurm", "--gpu", "A40-24Q", "--max", "4")
    yield
    operator.does("delete-node-pool", "gpu", *ACME, "--yes", "--drained", "--timeout", "0")
    operator.delete_all_vms()
    assert fleet_witness.state() == before
    assert operator.json("list-queue")["queue"] == []


def is_over(lab: SlurmLab, *jobs: str) -> bool:
    return all(lab.cluster.job(job)["JobState"] == "COMPLETED" for job in jobs)


def end(lab: SlurmLab) -> None:
    (lab.cluster.folder / "end").touch()


def test_a_vm_appears_for_each_job_and_disappears_after_it(operator: Operator, fleet_witness: FleetWitness) -> None:
    before = fleet_witness.state()
    with slurm_lab(operator) as lab:
        jobs = [lab.cluster.submit(*WANTS, script=f"echo $SLURMD_NODENAME >ran.$SLURM_JOB_ID; {UNTIL_END}")
                for _ in range(2)]  # fmt: skip
        lab.until(lambda: len(lab.vms()) == 2, "the VMs do not appear")
        there = lab.vms()
        assert {vm["state"] for vm in there.values()} == {"running"}
        wanted = [lab.events(f"acme/{name}", "node-wanted")[-1]["after"]["jobs"] for name in there]
        assert sorted(wanted) == [[job] for job in jobs]
        lab.until(lambda: all(lab.events(f"acme/{name}", "node-joined") for name in there), "the nodes do not join")
        end(lab)
        lab.until(lambda: is_over(lab, *jobs), "the jobs do not end")
        ran = {(lab.cluster.folder / f"ran.{job}").read_text().strip() for job in jobs}
        assert ran == set(there), "each job ran in the place of its VM"
        lab.until(lambda: not lab.vms(), "the VMs do not disappear")
        assert lab.nodes() == {}
        assert fleet_witness.state() == before
        assert all(lab.cluster.state(name) >= {"IDLE", "CLOUD"} for name in there)
        assert "level=error" not in lab.log() and "exit_code=0" in lab.log()


_EARLIER = pytest.mark.long("tests/e2e/slurm/test_jobs.py::test_slurmctld_and_the_controller_are_killed_in_between")


@pytest.mark.parametrize("effect", [pytest.param("2", marks=_EARLIER), "5"])
def test_slurmctld_and_the_controller_are_killed_in_between(operator: Operator, effect: str) -> None:
    """A slurmctld that forgets the request asks again, for a VM that has booted already: ResumeTimeout ends that."""
    # A client that asks slurmctld while it is down gives up after MessageTimeout.
    with slurm_lab(operator, suspend_s=3, resume_timeout_s=40, edit="MessageTimeout=3\n{}".format) as lab:
        job = lab.cluster.submit(*WANTS)
        lab.wait_for_resume()
        lab.cluster.kill()
        kill_after(lab.operator, effect, *ONCE)
        lab.cluster.start()
        lab.until(lambda: is_over(lab, job), "the job does not end")
        # A node that nobody saw there, and that slurmctld forgets too, stays until its time to join is over.
        lab.until(lambda: "joining" not in lab.nodes().values(), "the controller does not see that the node joined")
        lab.cluster.kill()
        lab.round()
        lab.cluster.start()
        lab.until(lambda: not lab.vms(), "the VM does not disappear")
        assert operator.json("repair") == []


def test_a_job_is_queued_again_with_the_reason_when_no_gpu_is_free(operator: Operator) -> None:
    for number in (1, 2):
        operator.does("create-vm", f"full-{number}", *ACME, *SIZE, "--gpu", "A40-48Q")
    with slurm_lab(operator) as lab:
        job = lab.cluster.submit(*WANTS, "--nodelist=gpu-001")
        lab.until(lambda: "vgpuctl: " in lab.cluster.reason("gpu-001"), "nobody tells Slurm why")
        assert "can take it now" in lab.cluster.reason("gpu-001")
        assert lab.cluster.job(job)["Restarts"] == "1"
        assert lab.events("acme/gpu-001", "node-refused")
        assert lab.nodes() == {}
        operator.delete_all_vms()
        lab.until(lambda: is_over(lab, job), "the job does not run when there is room")


@pytest.mark.long(
    "tests/e2e/slurm/test_jobs.py::test_a_job_is_queued_again_with_the_reason_when_no_gpu_is_free",
    "tests/e2e/node/test_fairness.py::test_nodes_stay_out_of_what_is_reserved_for_another",
)
def test_a_reservation_is_respected(operator: Operator) -> None:
    """Both GPUs are reserved soon, and a node has no declared end."""
    begin = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=30)
    period = ("--from", f"{begin:%Y-%m-%dT%H:%MZ}", "--until", f"{begin + datetime.timedelta(hours=1):%Y-%m-%dT%H:%MZ}")
    for name in ("class-1", "class-2"):
        operator.does("reserve", name, *ACME, "--gpu", "A40-48Q", *period)
    with slurm_lab(operator) as lab:
        lab.cluster.submit(*WANTS, "--nodelist=gpu-001")
        lab.until(lambda: "vgpuctl: " in lab.cluster.reason("gpu-001"), "nobody tells Slurm why")
        assert lab.events("acme/gpu-001", "node-refused")
        assert lab.vms() == {}
        for name in ("class-1", "class-2"):
            operator.does("cancel-reservation", "--yes", name, *ACME)
        lab.until(lambda: "gpu-001" in lab.vms(), "the VM does not appear when nothing is reserved")


def test_a_node_of_another_name_is_refused_and_the_others_come(operator: Operator) -> None:
    """Somebody added a node by hand, with a name that no VM can have."""

    def add_node(text: str) -> str:
        text = text.replace("PartitionName=", "NodeName=GPU_1 CPUs=1 RealMemory=50 State=CLOUD\nPartitionName=")
        return text.replace("Nodes=gpu-", "Nodes=GPU_1,gpu-")

    with slurm_lab(operator, edit=add_node) as lab:
        lab.cluster.submit("--nodelist=GPU_1,gpu-001", "--nodes=2")
        lab.until(lambda: "gpu-001" in lab.vms(), "the VM does not appear")
        assert list(lab.vms()) == ["gpu-001"]
        assert "GPU_1 is no node of a pool of cluster main" in lab.log()


def test_a_node_that_slurm_has_off_is_let_go_though_nobody_said_so(operator: Operator) -> None:
    """slurm-suspend could not reach the store: a VM would hold its share for ever."""
    with slurm_lab(operator) as lab:
        lab.cluster.set_program("suspend", "#!/bin/sh\n")
        job = lab.cluster.submit(*WANTS, "--nodelist=gpu-001", script=UNTIL_END)
        lab.until(lambda: lab.events("acme/gpu-001", "node-joined"), "the node does not join")
        end(lab)
        lab.until(lambda: is_over(lab, job), "the job does not end")
        lab.until(lambda: not lab.vms(), "the VM does not disappear")
        assert "Slurm has powered it down" in lab.events("acme/gpu-001", "node-let-go")[-1]["detail"]


def test_a_node_whose_join_secret_has_expired_is_refused_to_slurm(operator: Operator, tmp_path: Path) -> None:
    key = secret_file(tmp_path, "munge.key", base64.b64encode(bytes(range(64))).decode())
    expired = ("--join-server", "slurm.example:6817", "--munge-key", key, "--token-expires", "2026-01-02T03:04")
    operator.does("set-node-pool", "gpu", *ACME, *expired)
    with slurm_lab(operator) as lab:
        lab.cluster.submit(*WANTS, "--nodelist=gpu-001")
        lab.until(lambda: "vgpuctl: " in lab.cluster.reason("gpu-001"), "nobody tells Slurm why")
        assert "has expired at 2026-01-02" in lab.cluster.reason("gpu-001")
        (refused,) = lab.events("acme/gpu-001", "node-refused")
        assert refused["detail"].startswith("the join token of node pool acme/gpu has expired")
        assert lab.nodes() == {}


def test_a_vm_stays_until_the_job_on_its_node_has_ended(operator: Operator) -> None:
    with slurm_lab(operator, suspend_s=600) as lab:
        name = "gpu-001"
        lab.cluster.run("scontrol", "update", f"nodename={name}", "state=power_up")
        lab.until(lambda: lab.events(f"acme/{name}", "node-joined"), "the node does not join")
        job = lab.cluster.submit(*WANTS, f"--nodelist={name}", script=UNTIL_END)
        lab.until(lambda: lab.cluster.job(job)["JobState"] == "RUNNING", "the job does not begin")
        stopping = lab.operator.start("stop-vm", name, *ACME, "--timeout", "0")
        wait_until(lambda: "DRAIN" in lab.cluster.state(name), "nobody told Slurm")
        assert lab.cluster.reason(name).startswith("vgpuctl: its VM is stopped")
        assert lab.cluster.job(job)["JobState"] == "RUNNING"
        assert lab.vms()[name]["state"] == "running"
        end(lab)
        _out, err = stopping.communicate(timeout=120)
        assert stopping.returncode == 0, err
        assert is_over(lab, job), "the VM went before its job"
        assert lab.events(f"acme/{name}", "node-drained")[-1]["detail"] == ""
        lab.follow_vms()
        lab.operator.does("start-vm", name, *ACME)
        lab.round()
        lab.until(lambda: "DRAIN" not in lab.cluster.state(name), "the node stays drained")
        assert lab.cluster.reason(name) == ""
