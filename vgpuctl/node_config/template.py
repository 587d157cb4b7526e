# SPDX-License-Identifier: Apache-2.0
"""The node that the cluster-autoscaler expects from a pool, for a pool without nodes (reference clusters, 1.4).

Pure. The kubelet's report is estimated from below: where the estimate is too high, the autoscaler makes a
node for a pod that then does not fit, and another one. Once a node is ready, the autoscaler takes it for the template.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from vgpuctl.model.disk import DiskRequest
from vgpuctl.model.node_pool import NodePool, Taint
from vgpuctl.model.units import MIB
from vgpuctl.node_config.device_plugin import gpu_resource
from vgpuctl.node_config.labels import template_labels

MOST_PODS = 110
"""The kubelet's usual maxPods."""
_EVICTION_MEMORY = 100 * MIB
"""The kubelet's usual evictionHard of memory.available (Kubernetes, pkg/kubelet/eviction/defaults_linux.go)."""
_EVICTION_DISK = Decimal("0.1")
"""The same of nodefs.available."""
_FILE_SYSTEM = Decimal("0.08")
"""Of a disk: partitions, ext4's own structures and the 5 % that it keeps for root."""


@dataclass(frozen=True)
class TemplateNode:
    """A node of a pool before there is one. capacity, allocatable: quantities as Kubernetes writes them."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]


def template_node(pool: NodePool, least: Mapping[str, int]) -> TemplateNode:
    """A new node of a pool. least: what its ready nodes had for pods at least, empty before any was seen.

    CPUs in thousandths, memory and storage in bytes. It counts in place of the estimate, up to the size of the VM.
    """
    request = pool.request
    memory = request.memory_mib * MIB
    # Linux keeps a part for itself, and 64 MiB for its software IO TLB above 3 GiB. Source of the estimate:
    # kubernetes/autoscaler, cluster-autoscaler/cloudprovider/gce/reserved.go.
    visible = max(0, memory - memory // 64 - 16 * MIB - (64 * MIB if memory > 3 * 1024 * MIB else 0))
    root_mib = DiskRequest.size_mib if request.disk is None else request.disk.size_mib
    disk = int(root_mib * MIB * (1 - _FILE_SYSTEM))
    capacity = {
        "cpu": str(request.vcpus),
        "memory": f"{visible // 1024}Ki",
        "pods": str(MOST_PODS),
        "ephemeral-storage": f"{disk // 1024}Ki",
    }
    allocatable = {
        **capacity,
        "memory": f"{max(0, visible - _EVICTION_MEMORY) // 1024}Ki",
        "ephemeral-storage": str(int(disk * (1 - _EVICTION_DISK))),
    }
    most = {"cpu": request.vcpus * 1000, "memory": memory, "ephemeral-storage": root_mib * MIB}
    for resource in sorted(most.keys() & least.keys()):
        amount = min(least[resource], most[resource])
        allocatable[resource] = f"{amount}m" if resource == "cpu" else str(amount)
        if resource != "cpu":
            capacity[resource] = str(max(amount, _bytes(capacity[resource])))
    if request.gpus:
        resource, count = gpu_resource(pool)
        capacity[resource] = allocatable[resource] = str(count)
    labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"} | template_labels(pool)
    return TemplateNode(f"{pool.name}-template", labels, pool.taints, capacity, allocatable)


def _bytes(text: str) -> int:
    """Of a quantity of this file."""
    return int(text.removesuffix("Ki")) * 1024
