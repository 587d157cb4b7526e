# SPDX-License-Identifier: Apache-2.0
"""The NUMA nodes of a VM: near its GPUs where possible, and as few cells as suffice."""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import combinations, islice
from typing import NamedTuple

from vgpuctl.scheduler.host_cells import CellRoom

MOST_CELLS = 8
"""NUMA nodes of one guest: each may need an expander bus with bus numbers of its own (guests/domain/pci_layout.py)."""

MOST_SETS = 256
"""Sets of cells tried for one number of cells; beyond it, sets with less room are not looked at."""


class CellReach(IntEnum):
    """NEAR: vCPUs and memory at the cells of its GPUs. ANYWHERE: on any cells of the host."""

    NEAR = 0
    ANYWHERE = 1


class Need(NamedTuple):
    """The needs of a VM. unit_mib: its memory on a cell is a multiple of this.

    sizes: vCPUs and MiB of each cell of a VM whose guest has NUMA nodes already. is_flat: its guest has none and gets
    none, so that several cells are the last resort.
    """

    vcpus: int
    memory_mib: int
    unit_mib: int = 1
    sizes: tuple[tuple[int, int], ...] = ()
    is_flat: bool = False


class CellSize(NamedTuple):
    """Part of a VM on one cell."""

    numa_node: int
    vcpus: int
    memory_mib: int


Cells = tuple[CellSize, ...]


def choose_cells(
    need: Need, gpu_numa_nodes: Sequence[int], rooms: Sequence[CellRoom], reach: CellReach
) -> Cells | None:
    """The part of the VM on each cell, None when the rooms do not take it within this reach.

    gpu_numa_nodes: the cells of its GPUs, without those kept from guests. rooms: one for each cell of the host.
    A VM that fits in some rooms fits in larger ones.
    """
    if len(rooms) == 1:
        return _whole(need, rooms)
    if need.sizes:
        return _fixed(need, gpu_numa_nodes, rooms)
    own = [room for room in rooms if room.number in gpu_numa_nodes]
    if reach is CellReach.NEAR:
        if not 2 <= len(own) <= MOST_CELLS or need.vcpus < len(own) or need.is_flat:
            return _whole(need, own or rooms)
        return _split(need, own)
    found = _whole(need, own) or _whole(need, rooms)
    if found is None:
        found = next((cells for chosen in _sets(own, rooms) if (cells := _split(need, chosen)) is not None), None)
    return found


def has_cells(need: Need, gpu_numa_nodes: Sequence[int], rooms: Sequence[CellRoom], reach: CellReach) -> bool:
    """True if `choose_cells` finds some; a host that takes no VM has no rooms."""
    if len(rooms) == 1:
        return takes(need, rooms[0])
    return bool(rooms) and choose_cells(need, gpu_numa_nodes, rooms, reach) is not None


def may_take(need: Need, rooms: Sequence[CellRoom]) -> bool:
    """False if all cells together are too small."""
    return need.vcpus <= sum(one.vcpus for one in rooms) and need.memory_mib <= sum(one.memory_mib for one in rooms)


def _whole(need: Need, rooms: Sequence[CellRoom]) -> Cells | None:
    """All of it on one cell: the one with the fewest GPUs, then the one that it fills most."""
    able = [room for room in rooms if takes(need, room)]
    if not able:
        return None
    best = able[0] if len(able) == 1 else min(able, key=_least_room)
    return (CellSize(best.number, need.vcpus, need.memory_mib),)


def takes(need: Need, room: CellRoom) -> bool:
    """True if the whole VM fits on this cell."""
    return need.vcpus <= room.vcpus and need.memory_mib <= room.memory_mib


def _least_room(room: CellRoom) -> tuple[int, int, int, int]:
    return (room.gpus, room.memory_mib, room.vcpus, room.number)


def _sets(own: Sequence[CellRoom], rooms: Sequence[CellRoom]) -> Iterator[Sequence[CellRoom]]:
    """Sets of cells, the smallest first; of one size those with its GPUs' cells, then those with the most room."""
    order = sorted(rooms, key=lambda room: (-room.memory_mib, -room.vcpus, room.number))
    usable = [room for room in order if room.vcpus and room.memory_mib]
    own_numbers = {room.number for room in own}
    for size in range(2, min(len(usable), MOST_CELLS) + 1):
        sets = list(islice(combinations(usable, size), MOST_SETS))
        yield from sorted(sets, key=lambda chosen: -sum(room.number in own_numbers for room in chosen))


def _split(need: Need, chosen: Sequence[CellRoom]) -> Cells | None:
    """Equal parts on each of these cells, as far as their rooms allow."""
    rooms = sorted(chosen, key=lambda room: room.number)
    vcpus = _shares(need.vcpus, [room.vcpus for room in rooms])
    units = _shares(need.memory_mib // need.unit_mib, [room.memory_mib // need.unit_mib for room in rooms])
    if vcpus is None or units is None:
        return None
    sizes = zip(rooms, vcpus, units, strict=True)
    return tuple(CellSize(room.number, cpus, count * need.unit_mib) for room, cpus, count in sizes)


def _shares(total: int, most: Sequence[int]) -> list[int] | None:
    """Whole parts of at least 1 and of this size at most, as equal as that allows; None when there are none."""
    shares = [0] * len(most)
    left = total
    order = sorted(range(len(most)), key=lambda index: (most[index], -index))
    for done, index in enumerate(order):
        shares[index] = min(most[index], left // (len(most) - done))
        left -= shares[index]
    return None if left or not all(shares) else shares


def _fixed(need: Need, gpu_numa_nodes: Sequence[int], rooms: Sequence[CellRoom]) -> Cells | None:
    """Cells of given sizes, each on a cell of its own: depth first, cells with GPUs of the VM first."""
    order = sorted(rooms, key=lambda room: (room.number not in gpu_numa_nodes, room.number))

    def choose(index: int, taken: tuple[CellRoom, ...]) -> tuple[CellRoom, ...] | None:
        if index == len(need.sizes):
            return taken
        vcpus, memory_mib = need.sizes[index]
        for room in order:
            if room not in taken and vcpus <= room.vcpus and memory_mib <= room.memory_mib:
                found = choose(index + 1, (*taken, room))
                if found is not None:
                    return found
        return None

    found = choose(0, ())
    if found is None:
        return None
    return tuple(CellSize(room.number, *size) for room, size in zip(found, need.sizes, strict=True))
