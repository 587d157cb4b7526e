# SPDX-License-Identifier: Apache-2.0
"""One host of a fleet: its cards, what is free of them, and the books of its NUMA nodes. Choosing is the fleet's."""

from collections.abc import Collection, Hashable
from copy import copy
from functools import cached_property
from itertools import combinations

from vgpuctl.model.host_parts import NO_PARTS, HostPart, missing_parts
from vgpuctl.model.numa import Footprint
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.gpu_class import LeasedGpu
from vgpuctl.scheduler.guest_place import rooms_of
from vgpuctl.scheduler.host_cells import CellRoom, books_of, guest_cells
from vgpuctl.scheduler.host_memory import cells_on
from vgpuctl.scheduler.partitions import losses
from vgpuctl.scheduler.request_class import RequestClass
from vgpuctl.scheduler.scarcity import HostStock, Model
from vgpuctl.scheduler.scorer import distance
from vgpuctl.sharing.gate import refuse_closed_host, refuse_unread_host
from vgpuctl.sharing.gpu_state import GpuState

Rooms = tuple[CellRoom, ...]
"""The rooms of the cells of one host, by number; none where the host takes no VM."""

_RoomKind = tuple[int | None, bool, frozenset[HostPart]]
"""The size of the huge pages in KiB, None for ordinary memory, whether it is for VMs with GPUs, and the parts of the
host that they need."""


class FleetHost:
    """One host: its cards by address, in order, and the books of its NUMA nodes. A closed host takes no VM."""

    def __init__(self, capacity: HostCapacity, cards: dict[str, LeasedGpu]) -> None:
        self.capacity = capacity
        self.name = capacity.name
        self.is_open = refuse_closed_host(capacity.rules) is None and refuse_unread_host(capacity.facts) is None
        self.labels = capacity.constraints.labels
        self._has_part: dict[HostPart, bool] = {}
        self.cards = cards
        self.models: tuple[Model, ...] = tuple(dict.fromkeys(card.model for card in cards.values()))
        self.stock = HostStock()
        self.cells = books_of(capacity)
        self._guest_nodes = guest_cells(capacity.facts)
        self.numa_node_of = {address: card.reading.gpu.numa_node for address, card in cards.items()}
        self._by_number = {cell.number: cell for cell in self.cells}
        self._rooms: dict[_RoomKind, Rooms] = {}
        self._rounded: dict[_RoomKind, Rooms] = {}
        self.has_fabric = any(card.reading.fabric is not None for card in cards.values())
        self.weigh_fabric()

    def weigh_fabric(self) -> frozenset[str]:
        """Work out again what the NVSwitch fabric loses by each GPU. Returns the GPUs of which that has changed."""
        if not self.has_fabric:
            return frozenset()
        found = losses(self.states).items()
        return frozenset(address for address, loss in found if self.cards[address].has_fabric_loss(loss))

    def with_cards(self, addresses: Collection[str]) -> "FleetHost":
        """The same host, on which a VM is given these cards alone."""
        chosen = copy(self)
        chosen.cards = {address: card for address, card in self.cards.items() if address in addresses}
        return chosen

    @property
    def states(self) -> list[GpuState]:
        """Its GPUs, by address."""
        return [card.state for card in self.cards.values()]

    @cached_property
    def distances(self) -> tuple[float, ...]:
        """How far apart its GPUs are, pair by pair in the order of addresses; leases do not change it."""
        return tuple(distance(one, other) for one, other in combinations(self.states, 2))

    @property
    def free(self) -> float:
        """How much of its GPUs is free, 0 to 1, in steps that make equal hosts equal."""
        return round(sum(card.free for card in self.cards.values()) / max(1, len(self.cards)), 3)

    def missing(self, parts: frozenset[HostPart]) -> frozenset[HostPart]:
        """Of these parts those that the host does not have. Each is looked for once, when a VM needs it."""
        for part in parts.difference(self._has_part):
            self._has_part[part] = not missing_parts(self.capacity.facts, (part,))
        return frozenset(part for part in parts if not self._has_part[part])

    def state_for(self, parts: frozenset[HostPart]) -> Hashable:
        """Equal for hosts that VMs with need of these parts tell apart by name and the order of their GPUs alone."""
        return (
            self.is_open,
            self.missing(parts),
            tuple(cell.state for cell in self.cells),
            self.labels,
            tuple(sorted(card.number for card in self.cards.values())),
        )

    def promise(self, footprint: Footprint, times: int) -> None:
        """Count what a VM takes, -1 times when it goes."""
        for cell in cells_on(self._guest_nodes, footprint):
            self._by_number[cell.numa_node].promise(cell, footprint.memory.page_kib, times)
        self._rooms = {}
        self._rounded = {}

    def rooms(self, page_kib: int | None, *, has_gpus: bool, parts: frozenset[HostPart] = NO_PARTS) -> Rooms:
        """The CPUs and the memory that one more VM can have of each cell; none where the host has not all parts."""
        key = (page_kib, has_gpus, parts)
        if key not in self._rooms:
            takes = self.is_open and not self.missing(parts)
            self._rooms[key] = rooms_of(self.cells, page_kib, has_gpus=has_gpus) if takes else ()
        return self._rooms[key]

    def rounded(self, page_kib: int | None, *, has_gpus: bool, parts: frozenset[HostPart] = NO_PARTS) -> Rooms:
        """The same in steps, so that more hosts are equal; the exact rooms are asked for in the end."""
        key = (page_kib, has_gpus, parts)
        if key not in self._rounded:
            self._rounded[key] = tuple(map(_rounded, self.rooms(page_kib, has_gpus=has_gpus, parts=parts)))
        return self._rounded[key]

    def addresses_near(self, numa_nodes: set[int]) -> list[str]:
        """The GPUs at these NUMA nodes, and those at none that VMs are on."""
        return [
            address
            for address, number in self.numa_node_of.items()
            if number in numa_nodes or number not in self._by_number
        ]

    def rooms_for(self, request_class: RequestClass) -> Rooms:
        """The exact rooms for what a VM wants."""
        return self.rooms(request_class.page_kib, has_gpus=request_class.has_gpus, parts=request_class.parts)


def _rounded(room: CellRoom) -> CellRoom:
    """A room with its amounts in steps of a 32nd to a 16th of them."""
    vcpus, memory_mib = room.vcpus, room.memory_mib
    finer, fine = max(0, vcpus.bit_length() - 5), max(0, memory_mib.bit_length() - 5)
    return CellRoom(room.number, vcpus >> finer << finer, memory_mib >> fine << fine, room.gpus)
