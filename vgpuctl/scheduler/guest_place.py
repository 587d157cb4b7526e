# SPDX-License-Identifier: Apache-2.0
"""The gate for CPUs, memory and huge pages of a host: every VM that is placed gets its part of the NUMA nodes here."""

from collections.abc import Sequence

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.guest_memory import format_page_size
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import Footprint, GuestNuma, NumaCell
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.scheduler.cell_choice import CellReach, Cells, Need, choose_cells
from vgpuctl.scheduler.host_cells import (
    CellBooks,
    CellRoom,
    books_of,
    cpu_numbers,
    guest_cells,
    host_pools,
    is_pool,
)
from vgpuctl.scheduler.host_memory import cells_on


def need_of(request: VmRequest, keeping: GuestNuma | None = None) -> Need:
    """The needs of a VM on a host. keeping: what its guest has seen so far, for a VM that starts again."""
    unit_mib = max(1, (request.hugepages_kib or 0) // 1024)
    has_vnuma = keeping is not None and keeping.has_vnuma
    sizes = tuple((cell.vcpus, cell.memory_mib) for cell in keeping.cells) if keeping is not None and has_vnuma else ()
    return Need(request.vcpus, request.memory_mib, unit_mib, sizes, keeping is not None and not has_vnuma)


def rooms_of(books: Sequence[CellBooks], page_kib: int | None, *, has_gpus: bool) -> tuple[CellRoom, ...]:
    """The part of each cell that one more VM can have. has_gpus: VMs with GPUs are pinned where the host pins."""
    return tuple([one.room(page_kib, pinned=has_gpus) for one in books])


def give_numa(
    request: VmRequest, capacity: HostCapacity, gpu_numa_nodes: Sequence[int | None], keeping: GuestNuma | None = None
) -> tuple[GuestNuma | None, bool]:
    """The part of each cell that a VM gets on a host, and whether it fits there.

    gpu_numa_nodes: of each of its GPUs, None where the host does not know. keeping: the former part of a VM that starts
    again: its guest keeps its shape. The part is None on a host with one cell, where there is nothing to choose.
    """
    books = books_of(capacity)
    is_pinned = bool(request.gpus) if keeping is None else keeping.is_pinned
    rooms = rooms_of(books, request.hugepages_kib, has_gpus=is_pinned)
    cells = choose_on(need_of(request, keeping), gpu_numa_nodes, rooms)
    if cells is None:
        return None, False
    return numa_on(books, cells, gpu_numa_nodes, is_pinned=is_pinned, keeping=keeping), True


def choose_on(need: Need, gpu_numa_nodes: Sequence[int | None], rooms: Sequence[CellRoom]) -> Cells | None:
    """The cells at its GPUs where they fit, else anywhere on the host."""
    own = [cell for cell in gpu_numa_nodes if cell is not None]
    return choose_cells(need, own, rooms, CellReach.NEAR) or choose_cells(need, own, rooms, CellReach.ANYWHERE)


def numa_on(
    books: Sequence[CellBooks],
    cells: Cells,
    gpu_numa_nodes: Sequence[int | None],
    *,
    is_pinned: bool,
    keeping: GuestNuma | None = None,
) -> GuestNuma | None:
    """The cells with their CPUs and the GPUs at them; None on a host with one cell."""
    if len(books) < 2:
        return None
    by_number = {one.number: one for one in books}
    given = []
    for cell in cells:
        books_of_cell = by_number[cell.numa_node]
        cpus = books_of_cell.pick_cpus(cell.vcpus) if is_pinned and books_of_cell.pins_guests else ()
        given.append(NumaCell(*cell, cpus))
    if keeping is not None:
        return GuestNuma(tuple(given), keeping.has_vnuma, keeping.gpu_cells)
    has_vnuma = len(given) > 1
    positions = {cell.numa_node: index for index, cell in enumerate(given)}
    at = tuple(positions.get(cell, 0) if cell is not None else 0 for cell in gpu_numa_nodes)
    return GuestNuma(tuple(given), has_vnuma, at if has_vnuma else ())


def missing_on(facts: HostFacts, footprint: Footprint) -> str | None:
    """The missing part of a VM's place on the host read again: `no CPUs 8, 9`; None when all is there."""
    page_kib, there = footprint.memory.page_kib, guest_cells(facts)
    by_number = {one.number: one for one in there}
    if footprint.numa is not None:
        for cell in footprint.numa.cells:
            if cell.numa_node not in by_number:
                return f"no NUMA node {cell.numa_node} with CPUs and memory"
            gone = set(cell.cpus) - set(cpu_numbers(by_number[cell.numa_node].cpus))
            if gone:
                return f"no CPUs {', '.join(map(str, sorted(gone)))} at NUMA node {cell.numa_node}"
    if page_kib is None:
        return None
    for cell in cells_on(there, footprint):
        pools = host_pools(facts) if is_pool(facts) else by_number[cell.numa_node].hugepages
        free = next((pool.free for pool in pools if pool.size_kib == page_kib), 0)
        if free * page_kib // 1024 < cell.memory_mib:
            where = "" if is_pool(facts) else f" at NUMA node {cell.numa_node}"
            return f"too few free huge pages of {format_page_size(page_kib)}{where}"
    return None


def floating_cpus(capacity: HostCapacity) -> dict[int, tuple[int, ...]]:
    """By NUMA node, the CPUs that no vCPU is pinned to, or all where each has one; nothing on a host with one cell."""
    books = books_of(capacity)
    if len(books) < 2:
        return {}
    return {one.number: one.floating() for one in books}


def footprint_of(request: VmRequest, placement: Placement) -> Footprint:
    """The charge of a VM placed there while it runs."""
    gpu_numa_nodes = tuple(one.numa_node for one in placement.shares if one.numa_node is not None)
    return Footprint(request.memory, request.vcpus, placement.numa, gpu_numa_nodes)


def footprint_of_vm(vm: Vm, leases: Sequence[Lease]) -> Footprint:
    """The charge of an existing VM while it runs. leases: its own."""
    gpu_numa_nodes = tuple(one.share.numa_node for one in leases if one.share.numa_node is not None)
    return Footprint(vm.request.memory, vm.request.vcpus, vm.numa, gpu_numa_nodes)
