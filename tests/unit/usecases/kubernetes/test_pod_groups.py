# SPDX-License-Identifier: Apache-2.0
"""Gangs whose size a PodGroup of the coscheduling plugin says."""

import pytest

from tests.unit.usecases.kubernetes.gpu_cluster import GpuCluster
from tests.unit.usecases.kubernetes.test_serve_extender import Scheduler, cluster, scheduler
from vgpuctl.errors import ClusterRefused, ClusterUnreachable

__all__ = ["cluster", "scheduler"]


def _grouped(cluster: GpuCluster, count: int, minimum: object) -> list[str]:
    """Pods of a PodGroup that do not say how many they are."""
    names = [f"g{at}" for at in range(count)]
    for name in names:
        cluster.add_pod(name, labels={"scheduling.x-k8s.io/pod-group": "job"}, mem=30_000)
    about = {"name": "job", "namespace": "ml"}
    cluster.pod_groups["job"] = {"metadata": about, "spec": {"minMember": minimum, "scheduleTimeoutSeconds": 10}}
    return names


def test_a_pod_group_says_how_many_its_gang_has(cluster: GpuCluster, scheduler: Scheduler) -> None:
    names = _grouped(cluster, 5, 5)
    needs = "gang job needs 5 places at the same time, 4 are free"
    assert scheduler.filter(names[0])["FailedNodes"]["n1"] == needs, "made after the last reading"
    scheduler.extender.refresh()
    cluster.faults["get_pod_group"] = [ClusterUnreachable("nobody asks again")]
    assert scheduler.filter(names[1])["FailedNodes"]["n1"] == needs
    cluster.pod_groups["job"]["spec"]["minMember"] = 1
    scheduler.extender.refresh()
    assert scheduler.filter(names[0])["NodeNames"] == ["n1", "n2"]


def test_a_pod_of_a_missing_group_is_alone(cluster: GpuCluster, scheduler: Scheduler) -> None:
    (name,) = _grouped(cluster, 1, 5)
    cluster.pod_groups.clear()
    assert scheduler.filter(name)["NodeNames"] == ["n1", "n2"]


@pytest.mark.parametrize("minimum", ["many", 513, 2**40])
def test_a_group_that_cannot_be_read_keeps_its_pods_waiting(
    cluster: GpuCluster, scheduler: Scheduler, minimum: object
) -> None:
    (name,) = _grouped(cluster, 1, minimum)
    for _ in range(2):
        assert scheduler.filter(name)["Error"]
        scheduler.extender.refresh()


def test_a_group_that_may_not_be_read_keeps_its_pods_waiting(cluster: GpuCluster, scheduler: Scheduler) -> None:
    (name,) = _grouped(cluster, 1, 2)
    cluster.faults["list_pod_groups"] = [ClusterRefused("no right")]
    scheduler.extender.refresh()
    cluster.faults["get_pod_group"] = [ClusterRefused("no right")]
    assert "its PodGroup ml/job cannot be read: no right" in scheduler.filter(name)["Error"]
