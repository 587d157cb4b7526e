# SPDX-License-Identifier: Apache-2.0
"""The examples of commands for tenants, placement, and the clusters of tenants."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import make_authority
from tests.e2e.examples.scene import Run, Scene, Stage, commands_of, file, play, scene
from tests.e2e.examples.stage import SMALL, named_fleet, stage, variables
from tests.e2e.kubernetes.gpu_api_server import served
from tests.unit.usecases.kubernetes.gpu_cluster import GpuCluster

__all__ = ["named_fleet", "stage", "variables"]
pytestmark = pytest.mark.long(
    "tests/unit/cli/test_examples.py::test_a_command_has_two_examples_that_it_takes",
    "tests/e2e/tenant/test_onboard.py::test_a_changed_file_changes_what_it_names_and_prune_removes_the_rest",
    "tests/e2e/tenant/test_quota.py::test_a_pool_serves_only_tenants_with_a_grant",
    "tests/e2e/node/test_node_pools.py::test_scaling_makes_nodes_and_deletes_those_that_are_let_go",
    "tests/e2e/slurm/test_slurm_resume.py::test_nodes_are_wanted_with_their_jobs_and_a_second_call_changes_nothing",
    "tests/e2e/slurm/test_slurm_suspend.py::test_a_suspended_node_gives_its_share_back",
    "tests/e2e/slurm/test_slurm_fail.py::test_a_node_whose_vm_never_registered_is_deleted_and_counted",
)

HOSTS = 4
INITECH = """
version: 1
tenant: initech
contact: ops@initech.example
quotas: {vms: 10, memory: 64GiB}
"""
ONBOARDED = (file("initech.yml", INITECH), "onboard initech.yml")
FULL = f"create-vm acme/big {SMALL} --gpu A40-48Q --host gpu1"
WAITS = f"create-vm acme/waits {SMALL} --gpu A40-48Q --host gpu1 --queue"
USED = (f"create-vm acme/web-1 {SMALL} --gpu A40-8Q",)
COURSE = "reserve acme/course --gpu A40-8Q --from 2031-01-06T08:00 --until 2031-01-06T18:00"
TRAINING = "reserve acme/training --gpu A40-8Q --from 2031-03-03T08:00 --until 2031-03-03T18:00"
CLASS = "reserve acme/class --gpu A40-8Q --from 2031-02-03T08:00 --until 2031-02-03T12:00 --every 7d"
HPC = f"create-node-pool acme/hpc --role slurm --cluster hpc --max 4 --gpu A40-8Q {SMALL}"
PODS = f"create-node-pool acme/pods --role k3s --cluster k8s --max 4 --gpu A40-8Q {SMALL}"
POOLS = "list-node-pools acme/hpc"
RESEARCH = "create-host-pool research --hosts gpu3"


def make_certificates(stage: Stage) -> None:
    """tls.key, tls.crt and ca.crt."""
    authority = make_authority(stage.folder)
    key, certificate = authority.issue("server", "localhost")
    for old, new in ((certificate, "tls.crt"), (key, "tls.key"), (authority.certificate, "ca.crt")):
        (stage.folder / new).write_bytes(Path(old).read_bytes())
        (stage.folder / new).chmod(0o600)


SCENES: dict[str, Scene] = {
    "capacity": scene(Run("24 more fit"), Run("gpu1")),
    "defrag": scene(
        Run("unused GPUs: 3 now"),
        Run("room for A40-48Q: 3 now"),
        Run("as much room as was asked for", more="--yes"),
        Run('"moves": []'),
        first=("create-vm acme/web-1 --memory 96MiB --vcpus 1 --network none --gpu A40-8Q",),
    ),
    "explain-vm": scene(Run("not checked"), Run("gpu1"), Run("gpu1")),
    "list-queue": scene(Run("waits"), Run('"waits"'), first=(FULL, WAITS)),
    "leave-queue": scene(
        Run("waits", then={"list-queue": "waits"}),
        Run("waits", then={"list-queue": "nobody waits"}),
        first=(FULL, WAITS),
    ),
    "set-queue": scene(
        Run("priority", then={"list-queue": "priority"}), Run("fair-share", then={"list-queue": "fair-share"})
    ),
    "reserve": scene(
        Run("course", then={"list-reservations": "course"}), Run("class", then={"list-reservations": "class"})
    ),
    "list-reservations": scene(Run("course"), Run("course"), first=(COURSE,)),
    "show-reservation": scene(Run("2031-03-03"), Run('"training"'), first=(TRAINING,)),
    "cancel-reservation": scene(
        Run("course", then={"list-reservations": "!course"}),
        Run("class", then={"list-reservations": "class"}),
        first=(COURSE, CLASS),
    ),
    "onboard": scene(
        Run("initech", then={"list-tenants -o name": "!initech"}),
        Run("initech", then={"list-tenants -o name": "initech"}),
        first=ONBOARDED[:1],
    ),
    "offboard-tenant": scene(
        Run("quota of memory", then={"list-tenants": "64 GiB"}),
        Run("quota of memory", then={"list-tenants": "!64 GiB"}),
        first=ONBOARDED,
    ),
    "create-tenant": scene(
        Run("globex", then={"list-tenants -o name": "globex"}), Run("wayne", then={"list-tenants": "64 GiB"})
    ),
    "list-tenants": scene(Run("acme"), Run("umbrella")),
    "show-tenant": scene(Run("1 running"), Run('"acme"'), first=USED),
    "show-host-pool": scene(Run("research"), Run("gpu3"), first=(RESEARCH,)),
    "set-quota": scene(Run("acme", then={"list-tenants": "20"}), Run("acme", then={"list-tenants -o json": "65536"})),
    "show-usage": scene(Run("acme"), Run("tenant"), first=USED),
    "report": scene(Run("acme"), Run("acme.html"), first=USED),
    "create-host-pool": scene(
        Run("research", then={"list-host-pools": "research"}), Run("films", then={"list-host-pools": "!films"})
    ),
    "grant-host-pool": scene(
        Run("acme", then={"list-host-pools": "acme"}),
        Run("for no tenant", then={"list-host-pools": "!acme"}),
        first=(RESEARCH,),
    ),
    "list-host-pools": scene(Run("research"), Run('"research"'), first=(RESEARCH,)),
    "delete-host-pool": scene(
        Run("research", then={"list-host-pools": "research"}),
        Run("research", then={"list-host-pools": "!research"}),
        first=(RESEARCH,),
    ),
    "create-node-pool": scene(
        Run("acme/gpu", then={"list-node-pools": "!k3s"}), Run("acme/hpc", then={"list-node-pools": "slurm"})
    ),
    "set-node-pool": scene(
        Run("acme/hpc", then={POOLS: "6"}),
        Run("dry run: node pool acme/hpc", then={f"{POOLS} -o json": "!600"}),
        first=(HPC,),
    ),
    "list-node-pools": scene(Run("hpc"), Run("hpc-001"), first=(HPC, "scale-node-pool acme/hpc 1")),
    "scale-node-pool": scene(
        Run("hpc-002", then={POOLS: "hpc-002"}), Run("hpc", then={POOLS: "hpc-002"}), first=(HPC,)
    ),
    "delete-node-pool": scene(
        Run("acme/hpc", then={"list-node-pools": "!hpc"}),
        Run("acme/hpc", first=(HPC,), then={"list-node-pools": "!hpc"}),
        first=(HPC,),
    ),
    "render-node": scene(Run("slurm"), Run("node-files"), first=(HPC,)),
    "export dra": scene(Run("ResourceSlice"), Run("ResourceSlice")),
    "serve autoscaler": scene(
        Run("--cloud-provider=externalgrpc"),
        Run("serving the autoscaler of", more="--listen 127.0.0.1:0", is_stopped=True),
        first=(PODS, make_certificates),
    ),
    "serve extender": scene(
        Run("https://extender.example:9638/v1"), Run("serving", more="--listen 127.0.0.1:0", is_stopped=True)
    ),
    "export slurm": scene(Run("hpc"), Run("gpu"), first=(HPC,)),
    "slurm-resume": scene(
        Run("hpc-002", then={POOLS: "!hpc-002"}), Run("hpc-002: wanted", then={POOLS: "hpc-002"}), first=(HPC,)
    ),
    "slurm-suspend": scene(
        Run("hpc-002", then={POOLS: "hpc-002"}),
        Run("hpc-002", then={POOLS: "!hpc-002"}),
        first=(HPC, "scale-node-pool acme/hpc 2"),
    ),
    "slurm-fail": scene(
        Run("hpc-001", then={POOLS: "hpc-001"}),
        Run("hpc-001", then={POOLS: "!hpc-001"}),
        first=(HPC, "scale-node-pool acme/hpc 2"),
    ),
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Access to an API server of a cluster with one node, in the file `kubeconfig`."""
    cluster = GpuCluster()
    cluster.add_node("n1", 2)
    with served(cluster, tmp_path) as made:
        yield made.rename(tmp_path / "kubeconfig")


@pytest.mark.parametrize("name", commands_of("tenant", "placement", "node", "slurm", "kubernetes"))
def test_the_examples_of_a_command_do_what_they_say(stage: Stage, kubeconfig: Path, name: str) -> None:
    play(stage, name, SCENES[name])
