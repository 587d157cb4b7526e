# SPDX-License-Identifier: Apache-2.0
"""Whether a guest is kept on the NUMA node of its GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.model.guest_memory import GuestMemory


class NumaMemory(StrEnum):
    """libvirt's numatune mode: `strict` where the guest fits the node, else `preferred`."""

    STRICT = "strict"
    PREFERRED = "preferred"


@dataclass(frozen=True)
class NumaView:
    """The node and its CPUs as a libvirt cpuset; no vCPU is pinned when the guest has more of them than the node."""

    node: int
    cpus: str
    memory: NumaMemory
    has_vcpu_pins: bool


def numa_view(facts: HostFacts, gpus: Sequence[Gpu], *, vcpus: int, memory: GuestMemory) -> NumaView | None:
    """Choose the node all the GPUs sit on; None on a host with one node, or when they sit on several.

    Huge pages are counted over all nodes, so those of another node do where the node's own are used up.
    """
    nodes = {gpu.numa_node for gpu in gpus}
    if len(facts.numa_nodes) < 2 or len(nodes) != 1:
        return None
    for node in facts.numa_nodes:
        if node.number in nodes and node.cpus:
            has_room = memory.page_kib is None and memory.mib <= node.memory_mib
            return NumaView(
                node=node.number,
                cpus=node.cpus,
                memory=NumaMemory.STRICT if has_room else NumaMemory.PREFERRED,
                has_vcpu_pins=vcpus <= cpu_count(node.cpus),
            )
    return None


def cpu_count(cpus: str) -> int:
    """Count the CPUs of a kernel CPU list such as `0-15,32-47`."""
    count = 0
    for part in cpus.split(","):
        first, _, last = part.strip().partition("-")
        count += int(last or first) - int(first) + 1
    return count
