# SPDX-License-Identifier: Apache-2.0
"""Promises to VMs and facts of a host as they would be with some VMs more or less, NUMA node by NUMA node."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from vgpuctl.agent.wire.facts import HostFacts, HugepageFacts, NumaNode
from vgpuctl.model.numa import Footprint, NumaCell
from vgpuctl.model.placement import HostCapacity, NodePromise
from vgpuctl.scheduler.host_nodes import ORDINARY, cpu_numbers, guest_nodes, is_pool, pool_number


def cells_on(nodes: Sequence[NumaNode], footprint: Footprint) -> tuple[NumaCell, ...]:
    """The part of each node that a VM has. nodes: the host's, as `guest_nodes` gives them.

    A VM of which that is not recorded, or on nodes that the host no longer has, counts where libvirt was told to keep
    it: at the node of its GPUs, and what is larger than that on all nodes. Its vCPUs float.
    """
    memory_mib, vcpus = footprint.memory.mib, footprint.vcpus
    if len(nodes) < 2:
        return (NumaCell(pool_number(nodes), vcpus, memory_mib),)
    numbers = {node.number for node in nodes}
    if footprint.nodes is not None and numbers.issuperset(cell.node for cell in footprint.nodes.cells):
        return footprint.nodes.cells
    own = [node for node in nodes if {node.number} == set(footprint.gpu_nodes)]
    cells = []
    for node in own:
        kept_mib, kept = min(memory_mib, node.memory_mib), min(vcpus, len(cpu_numbers(node.cpus)))
        cells.append(NumaCell(node.number, kept, kept_mib))
        memory_mib, vcpus = memory_mib - kept_mib, vcpus - kept
    others = [node for node in nodes if node not in own]
    for index, node in enumerate(others):
        kept_mib, kept = memory_mib // (len(others) - index), vcpus // (len(others) - index)
        cells.append(NumaCell(node.number, kept, kept_mib))
        memory_mib, vcpus = memory_mib - kept_mib, vcpus - kept
    return tuple(cell for cell in cells if cell.vcpus or cell.memory_mib)


@dataclass
class _Tally:
    """A NodePromise while it is counted."""

    shared_vcpus: int = 0
    pins: Counter[int] = field(default_factory=Counter)
    memory_mib: Counter[int] = field(default_factory=Counter)

    def count(self, cell: NumaCell, page_kib: int | None, times: int) -> None:
        self.memory_mib[page_kib or ORDINARY] += times * cell.memory_mib
        if cell.cpus:
            for cpu in cell.cpus:
                self.pins[cpu] += times
        else:
            self.shared_vcpus += times * cell.vcpus

    def frozen(self, node: int) -> NodePromise:
        memory = tuple(sorted((page, mib) for page, mib in self.memory_mib.items() if mib > 0))
        return NodePromise(node, max(0, self.shared_vcpus), tuple(sorted((+self.pins).elements())), memory)


def with_promised(
    capacity: HostCapacity, *, more: Iterable[Footprint] = (), less: Iterable[Footprint] = ()
) -> HostCapacity:
    """The host with more or fewer VMs that are promised a part of it."""
    tallies = {
        one.node: _Tally(one.shared_vcpus, Counter(one.pins), Counter(dict(one.memory_mib)))
        for one in capacity.promised
    }
    nodes = guest_nodes(capacity.facts)
    for footprints, times in ((less, -1), (more, 1)):
        for one in footprints:
            for cell in cells_on(nodes, one):
                tallies.setdefault(cell.node, _Tally()).count(cell, one.memory.page_kib, times)
    promised = (tally.frozen(node) for node, tally in sorted(tallies.items()))
    return replace(capacity, promised=tuple(one for one in promised if any(one[1:])))


def with_memory_back(facts: HostFacts, given_back: Collection[Footprint]) -> HostFacts:
    """The facts as they would be read when these guests were off."""
    freed: Counter[tuple[int, int]] = Counter()
    nodes = guest_nodes(facts)
    for one in given_back:
        for cell in cells_on(nodes, one):
            freed[cell.node, one.memory.page_kib or ORDINARY] += cell.memory_mib
    by_page: Counter[int] = Counter()
    for (_, page), mib in freed.items():
        by_page[page] += mib
    pools = None if facts.hugepages is None else _with_free(facts.hugepages, by_page)
    available_mib = min(facts.memory_mib, facts.memory_available_mib + by_page[ORDINARY])
    raised = tuple(_node_with_back(node, freed) for node in facts.numa_nodes)
    return replace(facts, memory_available_mib=available_mib, hugepages=pools, numa_nodes=raised)


def _node_with_back(node: NumaNode, freed: Counter[tuple[int, int]]) -> NumaNode:
    by_page = Counter({page: mib for (number, page), mib in freed.items() if number == node.number})
    available_mib = node.memory_available_mib
    if available_mib is not None:
        available_mib = min(node.memory_mib, available_mib + by_page[ORDINARY])
    return replace(node, memory_available_mib=available_mib, hugepages=_with_free(node.hugepages, by_page))


def _with_free(pools: Sequence[HugepageFacts], freed_mib: Counter[int]) -> tuple[HugepageFacts, ...]:
    return tuple(
        replace(pool, free=min(pool.total, pool.free + freed_mib[pool.size_kib] * 1024 // pool.size_kib))
        for pool in pools
    )


def with_more_pages(facts: HostFacts, page_kib: int, more_mib: int) -> HostFacts:
    """The facts as they would be read when ordinary memory that is free became huge pages, as much on each node."""
    nodes = guest_nodes(facts)
    more = more_mib * 1024 // page_kib
    if not is_pool(facts):
        each = -(-more // len(nodes))
        more = each * len(nodes)
        raised = {node.number: _node_with_pages(node, page_kib, each) for node in nodes}
        facts = replace(facts, numa_nodes=tuple(raised.get(node.number, node) for node in facts.numa_nodes))
    available_mib = max(0, facts.memory_available_mib - more * page_kib // 1024)
    pools = _with_more(facts.hugepages or (), page_kib, more)
    return replace(facts, memory_available_mib=available_mib, hugepages=pools)


def _node_with_pages(node: NumaNode, page_kib: int, more: int) -> NumaNode:
    available_mib = node.memory_available_mib
    if available_mib is not None:
        available_mib = max(0, available_mib - more * page_kib // 1024)
    return replace(node, memory_available_mib=available_mib, hugepages=_with_more(node.hugepages, page_kib, more))


def _with_more(pools: Sequence[HugepageFacts], page_kib: int, more: int) -> tuple[HugepageFacts, ...]:
    by_size = {pool.size_kib: pool for pool in pools}
    pool = by_size.get(page_kib, HugepageFacts(page_kib, 0, 0))
    by_size[page_kib] = replace(pool, total=pool.total + more, free=pool.free + more)
    return tuple(by_size[size] for size in sorted(by_size))
