# SPDX-License-Identifier: Apache-2.0
"""A plan of moves that makes room: in order, each checked with the rules of `place`, and with what is proven of it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpuctl.model.host_parts import parts_needed
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.capacity import PlacedVm, as_it_is, count_more, group_of, without_vms
from vgpuctl.scheduler.defrag.board import HeldPart, MoveBoard, Piece, Step, WantedRoom
from vgpuctl.scheduler.defrag.cards import FleetCards
from vgpuctl.scheduler.defrag.search import NO_LIMITS, Limits
from vgpuctl.scheduler.defrag.solve import NODES, Solution, solve
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gpu_by_facts import read_gpu
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.request_class import share_requests_of
from vgpuctl.sharing.kinds import kind_of

MOST_REPAIRS = 12
"""Searches after a step that `place` refused; that VM does not go to that host then."""


class WayKind(StrEnum):
    """How a VM changes its host, or that it does not."""

    LIVE = "live"
    COLD = "cold"
    PINNED = "pinned"


@dataclass(frozen=True)
class VmWay:
    """How a VM may move. downtime_s: how long it is down then. reason: why it stays, or does not move live."""

    kind: WayKind
    downtime_s: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class MovableVm:
    """A VM that is there, as it would be asked for on another host. closed: hosts that it may not go to."""

    vm: PlacedVm
    way: VmWay
    closed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Goal:
    """The room to make: for `count` VMs of a request in all, or cards that nobody uses where request is None.

    count: None for as many as possible. hosts: on which room counts.
    """

    request: VmRequest | None
    count: int | None
    hosts: frozenset[str]


@dataclass(frozen=True)
class DefragStep:
    """One move, to be made after those before it. host, gpus: where the VM is until then.

    reason: why it does not move live, "" where nobody says.
    """

    vm_uuid: str
    name: str
    way: WayKind
    downtime_s: float
    host: str
    gpus: tuple[str, ...]
    placement: Placement
    reason: str = ""


@dataclass(frozen=True)
class DefragPlan:
    """before, after: how many wanted VMs fit, or cards that nobody uses, without and with all steps.

    most: it is proven that no plan within the limits makes room for more, where more was wanted. fewest_moves: it is
    proven that no plan makes room for as many with fewer moves.
    """

    before: int
    after: int
    most: int
    fewest_moves: int
    steps: tuple[DefragStep, ...] = ()

    @property
    def is_optimal(self) -> bool:
        """True if no plan within the limits makes more of the wanted room, or as much with fewer moves."""
        return self.after >= self.most and len(self.steps) <= self.fewest_moves


def plan_defrag(
    goal: Goal,
    capacities: Sequence[HostCapacity],
    leases: Sequence[Lease],
    vms: Sequence[MovableVm],
    limits: Limits = NO_LIMITS,
) -> DefragPlan:
    """Find few moves that make the wanted room.

    leases: every live one, with what is promised. vms: those that are considered; pinned ones stay, and so does what no
    VM holds. A wanted VM's GPUs must all be of one kind: Raises ValueError for others.
    """
    fleet = _FleetBoard(goal, capacities, leases, vms)
    board = fleet.board()
    closed: dict[int, set[int]] = defaultdict(set)
    for _ in range(MOST_REPAIRS):
        found = solve(board, fleet.wanted, limits, NODES if fleet.is_exact and not closed else 0)
        made, steps, refused = fleet.carry_out(found)
        if refused is None:
            break
        closed[refused.piece].add(board.host_of[refused.after[0].card])
        board = fleet.board(closed)
    before, after = fleet.count(_Books(capacities, leases)), fleet.count(made)
    if after <= before:
        steps, after = [], before
    most = max(after, found.most_room if goal.count is None else min(found.most_room, goal.count))
    return DefragPlan(before, after, most, min(found.fewest_moves, len(steps)), tuple(steps))


class _Books:
    """The hosts as they would be after each step."""

    def __init__(self, capacities: Sequence[HostCapacity], leases: Sequence[Lease]) -> None:
        self.capacities = {one.name: one for one in capacities}
        self.leases: defaultdict[str, list[Lease]] = defaultdict(list)
        for lease in leases:
            self.leases[lease.host].append(lease)
        self.fleet = Fleet(capacities, leases)
        self._there: dict[str, PlacedVm] = {}

    def move(self, vm: PlacedVm, host: str, gpus: Sequence[str]) -> tuple[PlacedVm, Placement] | None:
        """Move a VM, and return it as it is then with its new place; None where `place` refuses that."""
        request = as_it_is(vm)
        placement = self.fleet.place_on(request, host, gpus)
        if placement is None:
            return None
        source = self.capacities[vm.host]
        self.capacities[vm.host] = (
            without_vms(source, [vm]) if vm.vm_uuid not in self._there else _without_arrived(source, vm)
        )
        self.leases[vm.host] = [one for one in self.leases[vm.host] if one.vm_uuid != vm.vm_uuid]
        new = tuple(
            replace(lease, host=host, share=kind_of(share.sharing).named(share, f"{lease.id} after its move"))
            for lease, share in zip(vm.leases, placement.shares, strict=True)
        )
        moved = replace(vm, host=host, leases=new, footprint=footprint_of(request, placement))
        target = self.capacities[host]
        group = group_of(request)
        self.capacities[host] = replace(
            with_promised(target, more=[moved.footprint]), groups=target.groups | ({group} if group else set())
        )
        self.leases[host] = [*self.leases[host], *new]
        self._there[vm.vm_uuid] = moved
        for name in (vm.host, host):
            self.fleet.put(self.capacities[name], self.leases[name])
        return moved, placement


def _without_arrived(capacity: HostCapacity, vm: PlacedVm) -> HostCapacity:
    """The host without a VM that a step of the plan brought there, which its facts do not show."""
    return replace(with_promised(capacity, less=[vm.footprint]), groups=capacity.groups - {group_of(vm.request)})


class _FleetBoard:
    """The fleet as the search sees it, and the steps of a solution carried out in the scheduler's books."""

    def __init__(
        self, goal: Goal, capacities: Sequence[HostCapacity], leases: Sequence[Lease], vms: Sequence[MovableVm]
    ) -> None:
        self.goal = goal
        self.capacities = sorted(capacities, key=lambda one: one.name)
        self.leases = leases
        self._asked = [] if goal.request is None else share_requests_of(goal.request)
        if len(set(self._asked)) > 1 or (goal.request is not None and not self._asked):
            raise ValueError("the GPUs of a wanted VM must be of one kind")
        self._hosts = {one.name: number for number, one in enumerate(self.capacities)}
        cards = {(one.name, gpu.address) for one in self.capacities for gpu in one.facts.gpus}
        self._movable = [
            one
            for one in sorted(vms, key=lambda one: one.vm.name)
            if one.way.kind is not WayKind.PINNED
            and one.vm.leases
            and all((lease.host, lease.share.gpu) in cards and lease.host == one.vm.host for lease in one.vm.leases)
            and len(share_requests_of(as_it_is(one.vm))) == len(one.vm.leases)
        ]
        self._rules = FleetCards(self._asked[0] if self._asked else None)
        self._addresses: list[str] = []
        self.wanted = goal.count
        self._read()

    def _read(self) -> None:
        fleet = Fleet(self.capacities, self.leases)
        pages = sorted({one.vm.request.hugepages_kib or 0 for one in self._movable} | self._goal_pages())
        self._pages = pages
        self._states: list[object] = []
        self._host_of: list[int] = []
        self._free: list[list[int]] = []
        self._open: set[int] = set()
        for number, capacity in enumerate(self.capacities):
            host = fleet.hosts[capacity.name]
            if host.is_open:
                self._open.add(number)
            rooms = {page: host.rooms(page or None, has_gpus=True) for page in (0, *pages)}
            self._free.append(
                [
                    sum(one.vcpus for one in rooms[0]),
                    *(sum(one.memory_mib for one in rooms[page]) for page in pages),
                ]
            )
            relieved = without_vms(capacity, [one.vm for one in self._movable if one.vm.host == capacity.name])
            for gpu in sorted(relieved.facts.gpus, key=lambda one: one.address):
                here = [one for one in self.leases if (one.host, one.share.gpu) == (capacity.name, gpu.address)]
                held = [one for one in here if one.state.holds_device()]
                self._states.append(self._rules.state_of(read_gpu(relieved.rules, relieved.facts, gpu), held))
                self._host_of.append(number)
                self._addresses.append(gpu.address)
        self._numbers = {
            (self.capacities[host].name, address): card
            for card, (host, address) in enumerate(zip(self._host_of, self._addresses, strict=True))
        }
        self._fleet = fleet

    @property
    def is_exact(self) -> bool:
        """True if the board shows all places of every VM, so that trying all orders of moves proves something."""
        return all(one.vm.request.constraints.group is None and len(one.vm.leases) == 1 for one in self._movable)

    def _goal_pages(self) -> set[int]:
        return set() if self.goal.request is None else {self.goal.request.hugepages_kib or 0}

    def _needs(self, request: VmRequest) -> tuple[int, ...]:
        own = request.hugepages_kib or 0
        return (request.vcpus, *(request.memory_mib if page == own else 0 for page in self._pages))

    def board(self, closed: dict[int, set[int]] | None = None) -> MoveBoard:
        """The fleet as it is. closed: hosts that VMs may not go to beside those of their own rules, by number."""
        pieces = []
        for number, one in enumerate(self._movable):
            request = as_it_is(one.vm)
            parts = tuple(
                HeldPart(self._numbers[lease.host, lease.share.gpu], kind, self._rules.block_of(lease.share))
                for kind, lease in zip(share_requests_of(request), one.vm.leases, strict=True)
            )
            hosts = self._hosts_for(request, one) - (closed or {}).get(number, set())
            needs = self._needs(request)
            pieces.append(Piece(one.vm.name, request.tenant, parts, needs, frozenset(hosts), one.way.downtime_s))
        counted = frozenset(self._hosts[name] for name in self.goal.hosts if name in self._hosts) & self._open
        if self.goal.request is None:
            wanted = WantedRoom(counted)
        else:
            wanted = WantedRoom(counted, len(self._asked), self._needs(self.goal.request))
        return MoveBoard(self._rules, self._states, self._host_of, self._free, pieces, wanted)

    def _hosts_for(self, request: VmRequest, one: MovableVm) -> set[int]:
        """The hosts that its own rules leave a VM; `place` is asked again about each step."""
        parts, group, together = parts_needed(request), group_of(request), request.constraints.together
        found = set()
        for number in self._open:
            name = self.capacities[number].name
            if name in one.closed or request.host not in (None, name) or self._fleet.hosts[name].missing(parts):
                continue
            if group in self.capacities[number].groups and together.is_apart() and not together.is_preference():
                continue
            found.add(number)
        return found

    def carry_out(self, found: Solution) -> tuple[_Books, list[DefragStep], Step | None]:
        """The books and steps after the moves of a solution, up to the first that `place` refuses, and that one."""
        books = _Books(self.capacities, self.leases)
        there = {number: one.vm for number, one in enumerate(self._movable)}
        steps: list[DefragStep] = []
        for step in found.steps:
            vm, way = there[step.piece], self._movable[step.piece].way
            host = self.capacities[self._host_of[step.after[0].card]].name
            moved = books.move(vm, host, [self._addresses[part.card] for part in step.after])
            if moved is None:
                return books, steps, step
            there[step.piece], placement = moved
            gpus = tuple(lease.share.gpu for lease in vm.leases)
            steps.append(DefragStep(vm.vm_uuid, vm.name, way.kind, way.downtime_s, vm.host, gpus, placement))
        return books, steps, None

    def count(self, books: _Books) -> int:
        """How much of the wanted room there is."""
        capacities = [one for one in books.capacities.values() if one.name in self.goal.hosts]
        if self.goal.request is None:
            return sum(len(books.fleet.hosts[one.name].stock.untouched()) for one in capacities)
        leases = [one for held in books.leases.values() for one in held]
        return count_more(self.goal.request, capacities, leases).total()
