# SPDX-License-Identifier: Apache-2.0
"""The GPUs and the hosts of a fleet in indexes, one for each kind of question.

A change is noted, and entered when the index is asked next: an index that nobody asks costs nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from vgpuctl.model.constraints import Label
from vgpuctl.scheduler.cell_choice import CellReach, has_cells
from vgpuctl.scheduler.class_index import MOST_REQUEST_CLASSES, ClassIndex
from vgpuctl.scheduler.fleet_host import FleetHost, Rooms
from vgpuctl.scheduler.gpu_class import GpuClasses
from vgpuctl.scheduler.request_class import IndexKey, RequestClass
from vgpuctl.scheduler.scarcity import Model
from vgpuctl.scheduler.scorer import Price
from vgpuctl.scheduler.state_index import StateIndex
from vgpuctl.sharing.offer import ShareRequest

HOST_ENDS = "\0"
"""Between host name and GPU address in an index of GPUs: sorts as the pair does."""

GpuMember = tuple[Rooms, int, float]
"""A GPU in an index: the rounded rooms that count for it, its class, and how much of the host is free: the
free part, or the number of other untouched GPUs beside an untouched one."""

HostMember = tuple[Rooms, frozenset[Label], tuple[float, ...], tuple[int, ...]]
"""A host in an index: its rounded rooms, its labels, how far its GPUs are apart where that matters, and their classes:
in the order of addresses where distances count, by number where they do not."""


class GpuIndex:
    """The GPUs of all hosts that some request so far could use. hosts: the fleet's, by name, which it changes itself.

    A GPU that no request so far could use, such as a full one, stays out, so most changes of a host in a full fleet
    enter few of its GPUs. A request of a new kind brings in those that it could use.
    """

    def __init__(self, key: IndexKey, hosts: Mapping[str, FleetHost], classes: GpuClasses) -> None:
        self._key = key
        self._hosts = hosts
        self._classes = classes
        self._index: ClassIndex[GpuMember] = ClassIndex()
        self._rooms: dict[str, Rooms] = {}
        self._changed: dict[str, set[str]] = {name: set() for name in hosts}
        self._known: set[int] = set()
        self._askers: dict[ShareRequest, RequestClass] = {}
        self._is_useful: dict[int, bool] = {}

    def change(self, host: FleetHost, addresses: Iterable[str]) -> None:
        """Note that these GPUs of a host, or its rooms, are not as they were; or that the host is new."""
        self._changed.setdefault(host.name, set()).update(addresses)

    def remove(self, host: FleetHost) -> None:
        """Take a host out."""
        self._changed.pop(host.name, None)
        if self._rooms.pop(host.name, None) is not None:
            for address in host.cards:
                self._index.discard(host.name + HOST_ENDS + address)

    def choose(self, request_class: RequestClass, models: Collection[Model] | None) -> tuple[str, Price] | None:
        """The best GPU for a request_class and its price, of these models or of all; None when no GPU takes it."""
        if request_class.number not in self._known:
            self._meet(request_class)
        for name, addresses in self._changed.items():
            self._enter(self._hosts[name], addresses)
        self._changed.clear()
        return self._index.choose((request_class.number, models), partial(self._price, request_class, models))

    def _price(self, request_class: RequestClass, models: Collection[Model] | None, state: GpuMember) -> Price | None:
        rooms, number, beside = state
        if models is not None and self._classes.models[number] not in models:
            return None
        example = self._classes.examples[number]
        price = request_class.price_on(number, example, beside)
        return (
            price
            if price is not None and has_cells(request_class.need, example.numa_nodes, rooms, self._key.reach)
            else None
        )

    def _meet(self, request_class: RequestClass) -> None:
        """Bring in the GPUs that no request so far could use, if this one can."""
        if len(self._known) >= MOST_REQUEST_CLASSES:
            self._known.clear()
            self._askers.clear()
        self._known.add(request_class.number)
        (share_request,) = request_class.share_requests
        if share_request in self._askers:
            return
        self._askers[share_request] = request_class
        out = [number for number, is_useful in self._is_useful.items() if not is_useful]
        useful = {number for number in out if request_class.could_use(number, self._classes.examples[number])}
        if useful:
            self._is_useful.update(dict.fromkeys(useful, True))
            for host in self._hosts.values():
                self.change(host, [address for address, card in host.cards.items() if card.number in useful])

    def _could_be_used(self, number: int) -> bool:
        """True if some request so far could use a GPU of this class."""
        found = self._is_useful.get(number)
        if found is None:
            example = self._classes.examples[number]
            found = any(request_class.could_use(number, example) for request_class in self._askers.values())
            self._is_useful[number] = found
        return found

    def _enter(self, host: FleetHost, addresses: set[str]) -> None:
        """Tell the index the state of these GPUs, and of those whose rooms are others than before."""
        key, before = self._key, self._rooms.get(host.name)
        rooms = self._rooms[host.name] = host.rounded(key.page_kib, has_gpus=key.has_gpus, parts=key.parts)
        name, free = host.name + HOST_ENDS, host.free if key.with_loads else 0.0
        is_near = key.reach is CellReach.NEAR and len(rooms) > 1
        own: dict[int | None, Rooms] = {room.number: (room,) for room in rooms} if is_near else {}
        some: Iterable[str] = addresses
        if before is None or key.with_loads or (rooms != before and not is_near):
            some = host.cards
        elif rooms != before:
            changed = {now.number for now, then in zip(rooms, before, strict=True) if now != then}
            some = addresses.union(host.addresses_near(changed))
        for address in some:
            number = host.cards[address].number
            if self._could_be_used(number):
                beside = float(host.stock.beside(address)) if key.with_untouched else free
                self._index.put(name + address, (own.get(host.numa_node_of[address], rooms), number, beside))
            elif address in addresses:
                self._index.discard(name + address)


class HostIndex:
    """All hosts. hosts: the fleet's, by name, which it changes itself."""

    def __init__(self, key: IndexKey, hosts: Mapping[str, FleetHost]) -> None:
        self._key = key
        self._hosts = hosts
        self._index: StateIndex[HostMember, Price] = StateIndex()
        self._changed = set(hosts)

    def change(self, host: FleetHost) -> None:
        """Note that a host is not as it was, or new."""
        self._changed.add(host.name)

    def remove(self, host: FleetHost) -> None:
        """Take a host out."""
        self._changed.discard(host.name)
        if host.name in self._index:
            self._index.remove(host.name)

    def current(self) -> StateIndex[HostMember, Price]:
        """The index as the fleet is now."""
        for name in self._changed:
            self._enter(self._hosts[name])
        self._changed.clear()
        return self._index

    def _enter(self, host: FleetHost) -> None:
        numbers = [card.number for card in host.cards.values()]
        if not self._key.with_places:
            numbers.sort()
        distances = host.distances if self._key.with_places else ()
        rooms = host.rounded(self._key.page_kib, has_gpus=self._key.has_gpus, parts=self._key.parts)
        self._index.put(host.name, (rooms, host.labels, distances, tuple(numbers)))
