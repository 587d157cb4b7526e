# SPDX-License-Identifier: Apache-2.0
"""Promises to VMs and facts of a host as they would be with some VMs more or less, NUMA node by NUMA node."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.memory import HugepageFacts, NumaNode
from vgpuctl.model.numa import Footprint, NumaCell
from vgpuctl.model.placement import CellPromise, HostCapacity
from vgpuctl.scheduler.host_cells import ORDINARY, cpu_numbers, guest_cells, is_pool, pool_number


def cells_on(host_cells: Sequence[NumaNode], footprint: Footprint) -> tuple[NumaCell, ...]:
    """The part of each NUMA node that a VM has. host_cells: as `guest_cells` gives them.

    A VM of which that is not recorded, or in cells that the host no longer has, counts where libvirt was told to keep
    it: in the cell of its GPUs, and what is larger than that in all cells. Its vCPUs float.
    """
    memory_mib, vcpus = footprint.memory.mib, footprint.vcpus
    if len(host_cells) < 2:
        return (NumaCell(pool_number(host_cells), vcpus, memory_mib),)
    numbers = {cell.number for cell in host_cells}
    if footprint.numa is not None and numbers.issuperset(cell.numa_node for cell in footprint.numa.cells):
        return footprint.numa.cells
    own = [cell for cell in host_cells if {cell.number} == set(footprint.gpu_numa_nodes)]
    cells = []
    for cell in own:
        kept_mib, kept = min(memory_mib, cell.memory_mib), min(vcpus, len(cpu_numbers(cell.cpus)))
        cells.append(NumaCell(cell.number, kept, kept_mib))
        memory_mib, vcpus = memory_mib - kept_mib, vcpus - kept
    others = [cell for cell in host_cells if cell not in own]
    for index, cell in enumerate(others):
        kept_mib, kept = memory_mib // (len(others) - index), vcpus // (len(others) - index)
        cells.append(NumaCell(cell.number, kept, kept_mib))
        memory_mib, vcpus = memory_mib - kept_mib, vcpus - kept
    return tuple(cell for cell in cells if cell.vcpus or cell.memory_mib)


@dataclass
class _Tally:
    """A CellPromise while it is counted."""

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

    def frozen(self, cell: int) -> CellPromise:
        memory = tuple(sorted((page, mib) for page, mib in self.memory_mib.items() if mib > 0))
        return CellPromise(cell, max(0, self.shared_vcpus), tuple(sorted((+self.pins).elements())), memory)


def with_promised(
    capacity: HostCapacity, *, more: Iterable[Footprint] = (), less: Iterable[Footprint] = ()
) -> HostCapacity:
    """The host with more or fewer VMs that are promised a part of it."""
    tallies = {
        one.numa_node: _Tally(one.shared_vcpus, Counter(one.pins), Counter(dict(one.memory_mib)))
        for one in capacity.promised
    }
    cells = guest_cells(capacity.facts)
    for footprints, times in ((less, -1), (more, 1)):
        for one in footprints:
            for cell in cells_on(cells, one):
                tallies.setdefault(cell.numa_node, _Tally()).count(cell, one.memory.page_kib, times)
    promised = (tally.frozen(cell) for cell, tally in sorted(tallies.items()))
    return replace(capacity, promised=tuple(one for one in promised if any(one[1:])))


def with_memory_back(facts: HostFacts, given_back: Collection[Footprint]) -> HostFacts:
    """The facts as they would be read when these guests were off."""
    freed: Counter[tuple[int, int]] = Counter()
    cells = guest_cells(facts)
    for one in given_back:
        for cell in cells_on(cells, one):
            freed[cell.numa_node, one.memory.page_kib or ORDINARY] += cell.memory_mib
    by_page: Counter[int] = Counter()
    for (_, page), mib in freed.items():
        by_page[page] += mib
    pools = None if facts.hugepages is None else _with_free(facts.hugepages, by_page)
    available_mib = min(facts.memory_mib, facts.memory_available_mib + by_page[ORDINARY])
    raised = tuple(_cell_with_back(cell, freed) for cell in facts.numa_nodes)
    return replace(facts, memory_available_mib=available_mib, hugepages=pools, numa_nodes=raised)


def _cell_with_back(cell: NumaNode, freed: Counter[tuple[int, int]]) -> NumaNode:
    by_page = Counter({page: mib for (number, page), mib in freed.items() if number == cell.number})
    available_mib = cell.memory_available_mib
    if available_mib is not None:
        available_mib = min(cell.memory_mib, available_mib + by_page[ORDINARY])
    return replace(cell, memory_available_mib=available_mib, hugepages=_with_free(cell.hugepages, by_page))


def _with_free(pools: Sequence[HugepageFacts], freed_mib: Counter[int]) -> tuple[HugepageFacts, ...]:
    return tuple(
        replace(pool, free=min(pool.total, pool.free + freed_mib[pool.size_kib] * 1024 // pool.size_kib))
        for pool in pools
    )


def with_more_pages(facts: HostFacts, page_kib: int, more_mib: int) -> HostFacts:
    """The facts as they would be read when ordinary memory that is free became huge pages, as much in each cell."""
    cells = guest_cells(facts)
    more = more_mib * 1024 // page_kib
    if not is_pool(facts):
        each = -(-more // len(cells))
        more = each * len(cells)
        raised = {cell.number: _cell_with_pages(cell, page_kib, each) for cell in cells}
        facts = replace(facts, numa_nodes=tuple(raised.get(cell.number, cell) for cell in facts.numa_nodes))
    available_mib = max(0, facts.memory_available_mib - more * page_kib // 1024)
    pools = _with_more(facts.hugepages or (), page_kib, more)
    return replace(facts, memory_available_mib=available_mib, hugepages=pools)


def _cell_with_pages(cell: NumaNode, page_kib: int, more: int) -> NumaNode:
    available_mib = cell.memory_available_mib
    if available_mib is not None:
        available_mib = max(0, available_mib - more * page_kib // 1024)
    return replace(cell, memory_available_mib=available_mib, hugepages=_with_more(cell.hugepages, page_kib, more))


def _with_more(pools: Sequence[HugepageFacts], page_kib: int, more: int) -> tuple[HugepageFacts, ...]:
    by_size = {pool.size_kib: pool for pool in pools}
    pool = by_size.get(page_kib, HugepageFacts(page_kib, 0, 0))
    by_size[page_kib] = replace(pool, total=pool.total + more, free=pool.free + more)
    return tuple(by_size[size] for size in sorted(by_size))
