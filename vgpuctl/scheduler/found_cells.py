# SPDX-License-Identifier: Apache-2.0
"""Where a VM that somebody else defined counts: at the NUMA nodes and CPUs that its domain names."""

from collections import Counter
from collections.abc import Iterable

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.numa import GuestNuma, NumaCell, Tuning
from vgpuctl.scheduler.host_cells import cpu_numbers, guest_cells, is_pool


def numa_as_found(facts: HostFacts, vcpus: int, memory_mib: int, tuning: Tuning) -> GuestNuma | None:
    """The part of each NUMA node that the domain has; None on a host with one, and where the domain names none.

    A vCPU with a single CPU is pinned, others float over the cells of their CPUs. Memory that is bound to several
    cells counts in equal parts, and memory that is not bound is where the vCPUs are. vCPUs that may run anywhere count
    where the memory is.
    """
    cell_of = {cpu: cell.number for cell in guest_cells(facts) for cpu in cpu_numbers(cell.cpus)}
    pinned: dict[int, list[int]] = {}
    floating: Counter[int] = Counter()
    memory: Counter[int] = Counter()
    for cpus in tuning.pins:
        there = sorted(cpu for cpu in cpus if cpu in cell_of)
        if len(there) == 1:
            pinned.setdefault(cell_of[there[0]], []).append(there[0])
        else:
            _share(floating, 1, {cell_of[cpu] for cpu in there})
    for cells, mib in tuning.memory:
        _share(memory, mib, cells.intersection(cell_of.values()))
    own = {cell_of[cpu] for cpu in tuning.cpus if cpu in cell_of}
    counted = sum(map(len, pinned.values())) + floating.total()
    _share(floating, vcpus - counted, own or set(memory) or {*pinned, *floating})
    _share(memory, memory_mib - memory.total(), {*pinned, *floating})
    if is_pool(facts) or not (pinned or floating or memory):
        return None
    found = []
    for cell in sorted({*pinned, *floating, *memory}):
        if cell in pinned:
            found.append(NumaCell(cell, len(pinned[cell]), memory.pop(cell, 0), tuple(pinned[cell])))
        if floating[cell] or memory[cell]:
            found.append(NumaCell(cell, floating[cell], memory[cell]))
    return GuestNuma(tuple(found))


def _share(counter: Counter[int], amount: int, cells: Iterable[int]) -> None:
    """Add an amount in equal parts to the cells that have least, which get what does not divide."""
    order = sorted(cells, key=lambda cell: (counter[cell], cell))
    for index, cell in enumerate(order):
        part = -(-amount // (len(order) - index))
        if part > 0:
            counter[cell] += part
            amount -= part
