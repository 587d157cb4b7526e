# SPDX-License-Identifier: Apache-2.0
"""The link to Slurm, against a real slurmctld whose nodes are slurmd on this machine."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.slurm_fixture import PrivateMunge, SlurmCluster, short_folder, wait_until
from vgpuctl.clusters.slurm.config_file import SlurmConfig
from vgpuctl.clusters.slurm.link import SlurmLink
from vgpuctl.clusters.slurm.programs import SlurmPrograms
from vgpuctl.errors import ClusterRefused, ClusterUnreachable
from vgpuctl.model.cluster_member import ClusterMember

NAMES = [f"gpu-{number:03d}" for number in range(1, 9)]
LINES = """\
NodeName=gpu-[001-008] NodeAddr=127.0.0.1 CPUs=1 RealMemory=500 Gres=gpu:l40s_8q:1 Feature=l40s-8q State=CLOUD
PartitionName=vgpu Nodes=gpu-[001-008] Default=YES MaxTime=60 State=UP
PartitionName=other Nodes=gpu-[001-002] MaxTime=60 State=UP Hidden=YES
"""
GRES = "NodeName=gpu-[001-008] Name=gpu Type=l40s_8q Count=1 File=/dev/null\n"
AWAKE_S = 3600
"""SuspendTime of the tests whose nodes are not suspended by Slurm itself."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with short_folder() as folder:
        made = SlurmCluster(folder, NAMES, LINES, gres=GRES, suspend_s=AWAKE_S, resume_timeout_s=300)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="module")
def link(cluster: SlurmCluster) -> SlurmLink:
    return SlurmLink(kept(cluster))


def kept(cluster: SlurmCluster) -> SlurmConfig:
    """The cluster's slurm.conf where the operator keeps it."""
    folder = cluster.folder / "kept"
    (folder / "acme" / "main").mkdir(parents=True, mode=0o755, exist_ok=True)
    for name in ("slurm.conf", "gres.conf"):
        shutil.copy(cluster.folder / name, folder / "acme" / "main" / name)
    return SlurmConfig(folder, "acme", "main")


def member(link: SlurmLink, node: str) -> ClusterMember:
    return next(one for one in link.members() if one.name == node)


def resume(cluster: SlurmCluster, node: str) -> str:
    """Submit a job for a node, and wait until Slurm asks for the node. Returns the job's id."""
    job = cluster.submit(f"--nodelist={node}", "--gres=gpu:1", script="sleep 600")
    wait_until(lambda: ("resume", node) in asked(cluster), f"nobody asked for {node}: {cluster.log()}")
    return job


def asked(cluster: SlurmCluster) -> list[tuple[str, str]]:
    return [(call.what, call.expression) for call in cluster.calls()]


def run_on(cluster: SlurmCluster, link: SlurmLink, node: str) -> "subprocess.Popen[str]":
    """Have a job on a booted node. srun begins at once, where a batch job waits up to 30 s for slurmctld's round."""
    said = cluster.folder / f"srun.{node}.out"
    with said.open("w") as output:
        process = subprocess.Popen(
            ["srun", f"--nodelist={node}", "--gres=gpu:1", "--job-name", node, "sh", "-c", "echo runs; sleep 600"],
            env=cluster.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    wait_until(lambda: ("resume", node) in asked(cluster), f"nobody asked for {node}: {cluster.log()}")
    assert not member(link, node).is_ready
    cluster.boot(node)
    try:
        wait_until(lambda: "runs\n" in said.read_text(), f"srun on {node} does not begin", limit_s=240)
    except AssertionError as error:
        raise AssertionError(f"{error}: {said.read_text()}\n{cluster.state(node)}\n{cluster.log()}") from None
    return process


def end(cluster: SlurmCluster, link: SlurmLink, node: str, process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    cluster.run("scancel", "--name", node)
    wait_until(lambda: not link.drain(node), f"the job does not leave {node}")


def test_nodes_that_are_off_are_members_that_are_not_ready(link: SlurmLink) -> None:
    found = {one.name: one for one in link.members()}
    assert list(found) == NAMES
    assert found["gpu-008"] == ClusterMember("gpu-008", is_off=True)


def test_a_node_is_cordoned_drained_and_taken_back(cluster: SlurmCluster, link: SlurmLink) -> None:
    node = "gpu-001"
    process = run_on(cluster, link, node)
    assert member(link, node) == ClusterMember(node, is_ready=True)
    (job,) = link.drain(node)
    assert job.isdigit()
    link.cordon(node, "its host\nis drained \x1b[31m=é")
    assert member(link, node).is_cordoned
    assert member(link, node).reason == "vgpuctl: its host is drained \\x1b[31m=é"
    assert cluster.reason(node) == "vgpuctl: its host is drained \\x1b[31m=é"
    link.cordon(node, "another reason")
    assert cluster.reason(node).endswith("=é"), "a cordon keeps its first reason"
    link.uncordon(node)
    assert not member(link, node).is_cordoned
    link.uncordon(node)
    end(cluster, link, node, process)
    assert link.drain(node) == []


def test_the_cordon_of_another_stays(cluster: SlurmCluster, link: SlurmLink) -> None:
    node = "gpu-002"
    process = run_on(cluster, link, node)
    cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=a bad fan")
    link.cordon(node, "its host is drained")
    link.uncordon(node)
    assert (member(link, node).is_cordoned, member(link, node).reason) == (True, "a bad fan")
    end(cluster, link, node, process)


def test_a_refused_node_is_off_again_with_the_reason_and_its_job_waits(cluster: SlurmCluster, link: SlurmLink) -> None:
    node = "gpu-003"
    job = resume(cluster, node)
    link.refuse(node, "vgpuctl: no GPU can take L40S-8Q")
    assert cluster.reason(node) == "vgpuctl: no GPU can take L40S-8Q"
    wait_until(lambda: ("suspend", node) in asked(cluster), f"{node} is not powered down: {cluster.log()}")
    assert cluster.job(job)["JobState"] == "PENDING"
    assert cluster.job(job)["Restarts"] == "1"
    cluster.run("scancel", job)
    wait_until(lambda: member(link, node).is_off, f"{node} is not off: {cluster.state(node)}")
    link.refuse(node, "again")
    assert cluster.reason(node) == "vgpuctl: no GPU can take L40S-8Q"


def test_a_node_whose_vm_is_gone_is_off_and_its_job_waits(cluster: SlurmCluster, link: SlurmLink) -> None:
    node = "gpu-004"
    process = run_on(cluster, link, node)
    link.cordon(node, "it is deleted")
    cluster.power_off(node)
    link.forget(node, "")
    wait_until(lambda: member(link, node).is_off, f"{node} is not off: {cluster.state(node)}")
    assert not member(link, node).is_cordoned
    link.forget(node, "")
    end(cluster, link, node, process)


def test_a_node_that_slurm_has_asked_for_again_is_not_forgotten(cluster: SlurmCluster, link: SlurmLink) -> None:
    node = "gpu-005"
    job = resume(cluster, node)
    link.forget(node, "")
    assert "POWERING_UP" in cluster.state(node)
    assert cluster.job(job)["JobState"] == "CONFIGURING"
    cluster.run("scancel", job)


@pytest.mark.parametrize("name", ["gpu-[001-008]", "ALL", "gpu-001,gpu-002", "-x", "gpu_1", "", "gpu-001\n", "a" * 64])
def test_a_name_that_slurm_would_read_as_more_is_refused(link: SlurmLink, name: str) -> None:
    for call in (link.uncordon, link.drain):
        with pytest.raises(ClusterRefused, match="is no name of a node of acme/main"):
            call(name)
    assert not any(one.is_cordoned for one in link.members() if one.name in NAMES[4:])


def test_a_node_that_slurm_does_not_know_is_no_error(link: SlurmLink) -> None:
    link.cordon("big-001", "x")
    link.uncordon("big-001")
    link.refuse("big-001", "x")
    link.forget("big-001", "")
    assert link.drain("big-001") == []


def test_what_slurm_refuses_is_said_in_its_words(cluster: SlurmCluster) -> None:
    with pytest.raises(ClusterRefused) as refused:
        SlurmPrograms(kept(cluster)).run(
            "scontrol", ["update", "nodename=gpu-008", "state=resume"], what="uncordon gpu-008"
        )
    assert refused.value.message == (
        "cannot uncordon gpu-008 in acme/main: scontrol says: slurm_update error: Invalid node state specified"
    )


class TestSilence:
    def test_a_slurmctld_that_is_down_is_unreachable(self) -> None:
        with short_folder() as folder:
            # A client gives up after MessageTimeout.
            cluster = SlurmCluster(folder, NAMES, f"MessageTimeout=3\n{LINES}", gres=GRES)
            try:
                cluster.start()
                link = SlurmLink(kept(cluster))
                assert len(link.members()) == len(NAMES)
                cluster.kill()
                with pytest.raises(ClusterUnreachable, match=r"cannot read the nodes in acme/main: slurmctld") as down:
                    link.members()
                assert "Unable to contact slurm controller" in down.value.message
                with pytest.raises(ClusterUnreachable, match=r"had no answer of slurmctld within 0\.2 s"):
                    SlurmLink(kept(cluster), answer_s=0.2).members()
                cluster.start()
                assert len(link.members()) == len(NAMES)
            finally:
                cluster.stop()

    def test_a_cluster_with_munge_answers_those_with_its_key(self) -> None:
        with short_folder() as folder, short_folder() as elsewhere:
            munge = PrivateMunge(folder)
            other = PrivateMunge(elsewhere)
            cluster = SlurmCluster(folder, NAMES, LINES, gres=GRES, munge_socket=munge.socket)
            try:
                munge.start()
                other.start()
                cluster.start()
                config = kept(cluster)
                assert len(SlurmLink(config).members()) == len(NAMES)
                wrong = config.checked()
                wrong.write_text(wrong.read_text().replace(str(munge.socket), str(other.socket)))
                with pytest.raises((ClusterUnreachable, ClusterRefused), match="cannot read the nodes in acme/main"):
                    SlurmLink(config).members()
            finally:
                cluster.stop()
                munge.stop()
                other.stop()
