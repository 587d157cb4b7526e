# SPDX-License-Identifier: Apache-2.0
"""Where a VM that somebody else defined counts: at the NUMA nodes and CPUs that its domain names."""

from collections import Counter
from collections.abc import Iterable

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.numa import GuestNodes, NumaCell, Tuning
from vgpuctl.scheduler.host_nodes import cpu_numbers, guest_nodes, is_pool


def nodes_as_found(facts: HostFacts, vcpus: int, memory_mib: int, tuning: Tuning) -> GuestNodes | None:
    """The part of each node that the domain has; None on a host with one node, and where the domain names none.

    A vCPU with a single CPU is pinned, others float over the nodes of their CPUs. Memory that is bound to several nodes
    counts in equal parts, and memory that is not bound is where the vCPUs are. vCPUs that may run anywhere count where
    the memory is.
    """
    node_of = {cpu: node.number for node in guest_nodes(facts) for cpu in cpu_numbers(node.cpus)}
    pinned: dict[int, list[int]] = {}
    floating: Counter[int] = Counter()
    memory: Counter[int] = Counter()
    for cpus in tuning.pins:
        there = sorted(cpu for cpu in cpus if cpu in node_of)
        if len(there) == 1:
            pinned.setdefault(node_of[there[0]], []).append(there[0])
        else:
            _share(floating, 1, {node_of[cpu] for cpu in there})
    for nodes, mib in tuning.memory:
        _share(memory, mib, nodes.intersection(node_of.values()))
    own = {node_of[cpu] for cpu in tuning.cpus if cpu in node_of}
    counted = sum(map(len, pinned.values())) + floating.total()
    _share(floating, vcpus - counted, own or set(memory) or {*pinned, *floating})
    _share(memory, memory_mib - memory.total(), {*pinned, *floating})
    if is_pool(facts) or not (pinned or floating or memory):
        return None
    cells = []
    for node in sorted({*pinned, *floating, *memory}):
        if node in pinned:
            cells.append(NumaCell(node, len(pinned[node]), memory.pop(node, 0), tuple(pinned[node])))
        if floating[node] or memory[node]:
            cells.append(NumaCell(node, floating[node], memory[node]))
    return GuestNodes(tuple(cells))


def _share(counter: Counter[int], amount: int, nodes: Iterable[int]) -> None:
    """Add an amount in equal parts to the nodes that have least, which get what does not divide."""
    order = sorted(nodes, key=lambda node: (counter[node], node))
    for index, node in enumerate(order):
        part = -(-amount // (len(order) - index))
        if part > 0:
            counter[node] += part
            amount -= part
