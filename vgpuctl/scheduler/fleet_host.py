# SPDX-License-Identifier: Apache-2.0
"""One host of a fleet: its cards, what is free of them, and the books of its NUMA nodes. Choosing is the fleet's."""

from collections.abc import Hashable

from vgpuctl.model.numa import Footprint
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.gpu_class import Card
from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.guest_place import rooms_of
from vgpuctl.scheduler.host_memory import cells_on
from vgpuctl.scheduler.host_nodes import NodeRoom, books_of
from vgpuctl.scheduler.question import Question
from vgpuctl.scheduler.scarcity import HostStock, Model


class Host:
    """One host: its cards by address, in order, and the books of its NUMA nodes. It takes no VM in maintenance."""

    def __init__(self, capacity: HostCapacity, cards: dict[str, Card]) -> None:
        self.capacity = capacity
        self.name = capacity.name
        self.is_open = capacity.traits.maintenance is None
        self.labels = capacity.traits.labels
        self.cards = cards
        self.models: tuple[Model, ...] = tuple(dict.fromkeys(card.model for card in cards.values()))
        self.stock = HostStock()
        self.nodes = books_of(capacity)
        self._rooms: dict[tuple[int | None, bool], tuple[NodeRoom, ...]] = {}
        self._rounded: dict[tuple[int | None, bool], tuple[NodeRoom, ...]] = {}

    @property
    def states(self) -> list[GpuState]:
        """Its GPUs, by address."""
        return [card.state for card in self.cards.values()]

    @property
    def free(self) -> float:
        """How much of its GPUs is free, 0 to 1, in steps that make equal hosts equal."""
        return round(sum(card.free for card in self.cards.values()) / max(1, len(self.cards)), 3)

    @property
    def state(self) -> Hashable:
        """Equal for hosts that differ in name and the order of their GPUs alone."""
        nodes = tuple(node.state for node in self.nodes)
        return (self.is_open, nodes, self.labels, tuple(sorted(card.number for card in self.cards.values())))

    def promise(self, footprint: Footprint, times: int) -> None:
        """Count what a VM takes, -1 times when it goes."""
        by_number = {node.number: node for node in self.nodes}
        for cell in cells_on(self.capacity.facts, footprint):
            by_number[cell.node].promise(cell, footprint.memory.page_kib, times)
        self._rooms.clear()
        self._rounded.clear()

    def rooms(self, page_kib: int | None, *, has_gpus: bool) -> tuple[NodeRoom, ...]:
        """What one more VM can have of each node."""
        key = (page_kib, has_gpus)
        if key not in self._rooms:
            self._rooms[key] = rooms_of(self.nodes, page_kib, has_gpus=has_gpus) if self.is_open else ()
        return self._rooms[key]

    def rounded(self, page_kib: int | None, *, has_gpus: bool) -> tuple[NodeRoom, ...]:
        """The same in steps, so that more hosts are equal; what it hides is asked for at last."""
        key = (page_kib, has_gpus)
        if key not in self._rounded:
            rooms = self.rooms(page_kib, has_gpus=has_gpus)
            self._rounded[key] = tuple(
                NodeRoom(room.number, _rounded(room.vcpus), _rounded(room.memory_mib), room.gpus) for room in rooms
            )
        return self._rounded[key]

    def rooms_for(self, question: Question) -> tuple[NodeRoom, ...]:
        """The exact rooms for what a VM wants."""
        return self.rooms(question.page_kib, has_gpus=question.has_gpus)


def _rounded(room: int) -> int:
    """An amount in steps of a 32nd to a 16th of it."""
    step = 1 << max(0, room.bit_length() - 5)
    return room // step * step
