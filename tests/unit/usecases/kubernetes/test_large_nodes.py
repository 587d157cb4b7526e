# SPDX-License-Identifier: Apache-2.0
"""The extender keeps the largest node for pods that nobody sent yet, also one in use when it was first read."""

from tests.unit.usecases.kubernetes.gpu_cluster import GpuCluster
from tests.unit.usecases.kubernetes.test_serve_extender import Scheduler
from vgpuctl.scheduler.soft.soft_fleet import SMALLEST_SAMPLE

SMALL = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "100", "nvidia.com/gpumem-percentage": "100", "cpu": "8"}


def test_small_pods_leave_the_largest_node_that_was_in_use_at_the_start() -> None:
    cluster = GpuCluster()
    for name in ("a", "b", "c"):
        cluster.add_node(name, 4)
    cluster.nodes["a"]["status"]["allocatable"]["cpu"] = "128"
    busy = cluster.add_pod("busy", containers=[{"cpu": "100"}])
    busy["spec"]["nodeName"], busy["status"]["phase"] = "a", "Running"
    scheduler = Scheduler(cluster)
    del cluster.pods["busy"]
    scheduler.extender.refresh()
    for number in range(SMALLEST_SAMPLE):
        cluster.add_pod(f"p{number}", containers=[SMALL])
        assert scheduler.fitting(f"p{number}") == ["a", "b", "c"]
    scores = scheduler.scores("p0")
    assert max(scores, key=lambda name: scores[name]) == "b"
    assert scores["a"] < scores["c"]
