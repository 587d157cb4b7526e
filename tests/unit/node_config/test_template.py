# SPDX-License-Identifier: Apache-2.0
"""The template of a node that does not exist yet."""

from dataclasses import replace

from tests.unit.node_config.pools import pool_of
from vgpuctl.model.disk import DiskRequest
from vgpuctl.model.node_pool import GpuSharing, NodePool, NodeSharing
from vgpuctl.node_config.labels import GPU_LABEL
from vgpuctl.node_config.template import template_node

MIB = 1024 * 1024


def sized(pool: NodePool, memory_mib: int, disk_mib: int) -> NodePool:
    return replace(pool, request=replace(pool.request, memory_mib=memory_mib, disk=DiskRequest(disk_mib), vcpus=8))


def test_allocatable_is_less_than_capacity_and_that_less_than_the_vm() -> None:
    node = template_node(sized(pool_of(), 32 * 1024, 100 * 1024), {})
    memory = int(node.capacity["memory"].removesuffix("Ki")) * 1024
    assert memory == 32 * 1024 * MIB - 512 * MIB - 16 * MIB - 64 * MIB
    assert int(node.allocatable["memory"].removesuffix("Ki")) * 1024 == memory - 100 * MIB
    disk = int(node.capacity["ephemeral-storage"].removesuffix("Ki")) * 1024
    assert 0.9 * 100 * 1024 * MIB < disk < 100 * 1024 * MIB
    assert int(node.allocatable["ephemeral-storage"]) <= 0.9 * disk + 1024
    assert (node.capacity["cpu"], node.capacity["pods"]) == ("8", "110")


def test_a_vm_too_small_for_a_kubelet_has_no_negative_memory() -> None:
    assert template_node(sized(pool_of(), 96, 64), {}).allocatable["memory"] == "0Ki"


def test_what_nodes_had_counts_in_place_of_the_estimate_up_to_the_vm() -> None:
    pool = sized(pool_of(), 32 * 1024, 100 * 1024)
    least = {"cpu": 7910, "memory": 30_000 * MIB + 1, "ephemeral-storage": 1 << 50}
    node = template_node(pool, least)
    assert node.allocatable["cpu"] == "7910m"
    assert node.capacity["cpu"] == "8"
    assert node.allocatable["memory"] == str(30_000 * MIB + 1)
    assert node.allocatable["ephemeral-storage"] == node.capacity["ephemeral-storage"] == str(100 * 1024 * MIB)
    more = template_node(pool, {"memory": 1 << 50, "cpu": 99_000})
    assert (more.allocatable["memory"], more.allocatable["cpu"]) == (str(32 * 1024 * MIB), "8000m")
    assert more.capacity["memory"] == str(32 * 1024 * MIB)
    assert more.allocatable["ephemeral-storage"] == template_node(pool, {}).allocatable["ephemeral-storage"]


def test_gpus_count_as_the_device_plugin_will_advertise_them() -> None:
    pool = pool_of()
    two = replace(pool, request=replace(pool.request, gpus=(replace(pool.request.gpus[0], count=2),)))
    assert template_node(two, {}).allocatable["nvidia.com/gpu"] == "2"
    shared = replace(two, sharing=NodeSharing(GpuSharing.TIME_SLICING, replicas=4))
    assert template_node(shared, {}).capacity["nvidia.com/gpu"] == "8"
    without = template_node(pool_of(gpu=""), {})
    assert "nvidia.com/gpu" not in without.capacity
    assert GPU_LABEL not in without.labels


def test_labels_are_those_that_the_kubelet_registers() -> None:
    labels = template_node(pool_of(labels=(("team", "vision"),), zone="zone-b"), {}).labels
    assert labels["kubernetes.io/arch"] == "amd64"
    assert labels["kubernetes.io/os"] == "linux"
    assert labels["node.kubernetes.io/instance-type"] == "A40-24Q"
    assert labels["topology.kubernetes.io/zone"] == "zone-b"
    assert labels["team"] == "vision"
