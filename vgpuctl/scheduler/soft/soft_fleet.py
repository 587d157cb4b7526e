# SPDX-License-Identifier: Apache-2.0
"""Hosts whose GPUs are shared softly: placing by any policy, taking and giving back, host by host by name."""

import bisect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vgpuctl.model.policy import DEFAULT_POLICY, Policy, PolicyName
from vgpuctl.scheduler.soft.future import MOST_REMEMBERED, Future, OnBoard, Room, whole_hosts
from vgpuctl.scheduler.soft.host_state import WHOLE, Demand, GpuFree, GpusFree, HostState, after, choices, fits
from vgpuctl.scheduler.state_index import StateIndex

SMALLEST_SAMPLE = 64
"""Arrivals after which the typical requests are counted anew for the first time; then at every doubling."""

MOST_ASKED = 16
"""New host states that one decision values, the newest first; see StateIndex."""

PRICED_ANEW = 0.5
"""The typical requests are priced anew after changes to this part of the hosts, so it costs a decision little."""

LEAST_CHANGES = 16
"""In a small fleet after so many."""

_GpuPart = tuple[int, int, int, frozenset[str]]
"""What a demand wants of GPUs: the rest of a `Demand` after CPUs and memory."""

_Looked = tuple[HostState, OnBoard, float, dict[_GpuPart, Room | None]]
"""A state, its value, and what its GPUs have room for after each demand that was asked about."""


@dataclass(frozen=True)
class SoftPlacement:
    """The host, and the numbers of its GPUs as `add_host` was given them."""

    host: str
    gpus: tuple[int, ...]


@dataclass
class _Host:
    board: str
    cpu: int
    memory_mib: int
    gpus: list[GpuFree]
    utilisation_percent: int
    capacity: tuple[int, int]

    def order(self) -> list[int]:
        """The GPUs' numbers in the order of `HostState.gpus`."""
        return sorted(range(len(self.gpus)), key=lambda number: (-self.gpus[number][0], -self.gpus[number][1], number))

    def state(self) -> HostState:
        gpus = tuple(sorted(self.gpus, reverse=True))
        return HostState(self.board, self.cpu, self.memory_mib, gpus, self.utilisation_percent)


class SoftFleet:
    """A fleet with an index of its states. Equal deeds in equal order give equal answers.

    expected: how often each request is expected, for `fragmentation`; without it the arrivals are counted.
    """

    def __init__(self, policy: Policy = DEFAULT_POLICY, expected: Mapping[Demand, int] | None = None) -> None:
        self._policy = policy
        self._hosts: dict[str, _Host] = {}
        self._index: StateIndex[HostState, float] = StateIndex(MOST_ASKED)
        self._names: list[str] = []
        self._last: str | None = None
        self._learns = expected is None and PolicyName.FRAGMENTATION in policy.names
        self._arrived: Counter[Demand] = Counter()
        self._seen = 0
        self._next_count = SMALLEST_SAMPLE
        self._future = Future(expected or {})
        self._prices = PolicyName.FRAGMENTATION in policy.names
        self._changes_left = 0
        self._pricing = 0
        self._wastes_least = policy.names == (PolicyName.FRAGMENTATION,)
        self._looked: dict[int, _Looked] = {}
        self._left: dict[tuple[str, GpusFree], dict[_GpuPart, Room | None]] = {}

    def add_host(
        self,
        name: str,
        *,
        board: str,
        cpu: int,
        memory_mib: int,
        gpus: list[GpuFree],
        utilisation_percent: int = 0,
        capacity: tuple[int, int] | None = None,
    ) -> None:
        """Add a host with its free amounts, or replace them. cpu: in thousandths.

        capacity: CPUs and memory of the host when it is empty; without it what is free when it is first added.
        """
        known = self._hosts.get(name)
        if known is None:
            bisect.insort(self._names, name)
        capacity = capacity or (known.capacity if known else (cpu, memory_mib))
        self._hosts[name] = _Host(board, cpu, memory_mib, list(gpus), utilisation_percent, capacity)
        self._put(name)

    def remove_host(self, name: str) -> None:
        """Forget a host. Raises KeyError when it is not there."""
        del self._hosts[name]
        del self._names[bisect.bisect_left(self._names, name)]
        self._index.remove(name)
        self._changes_left -= 1

    def state_of(self, name: str) -> HostState:
        """The free amounts of a host."""
        return self._index.state_of(name)

    def place(self, demand: Demand) -> SoftPlacement | None:
        """Choose the host and its GPUs and take the demand there; None when it fits nowhere."""
        self.arrive(demand)
        found = self._next_in_turn(demand) if self._takes_turns() else self._cheapest(demand)
        if found is None:
            return None
        name, state = found
        ways = choices(demand, state)
        choose = self._least_loss if self._wastes_least else self._least_cost
        positions = choose(demand, state, ways)
        host = self._hosts[name]
        order = host.order()
        placement = SoftPlacement(name, tuple(order[position] for position in positions))
        self._change(placement, demand, sign=-1)
        self._last = name
        return placement

    def arrive(self, demand: Demand) -> None:
        """Count a request that the caller places by `cost`, and price the typical requests again when that is due."""
        if self._learns:
            self._learn(demand)
        if self._prices and self._changes_left <= 0:
            self._price_anew()

    def cost(self, before: HostState, left: HostState) -> float:
        """The policy's cost of bringing a host from one state to the other; the smallest is the best.

        It answers the same until `pricing` changes.
        """
        return self._cost(before, left)

    @property
    def pricing(self) -> int:
        """Number of times that costs have changed."""
        return self._pricing

    def release(self, placement: SoftPlacement, demand: Demand) -> None:
        """Give back what `place` took."""
        self._change(placement, demand, sign=1)

    def _change(self, placement: SoftPlacement, demand: Demand, *, sign: int) -> None:
        host = self._hosts[placement.host]
        host.cpu += sign * demand.cpu
        host.memory_mib += sign * demand.memory_mib
        for number in placement.gpus:
            share, memory = host.gpus[number]
            host.gpus[number] = (share + sign * demand.share, memory + sign * demand.gpu_memory_mib)
        self._put(placement.host)

    def _put(self, name: str) -> None:
        self._index.put(name, self._hosts[name].state())
        self._changes_left -= 1

    def _takes_turns(self) -> bool:
        return self._policy.names == (PolicyName.ROUND_ROBIN,)

    def _next_in_turn(self, demand: Demand) -> tuple[str, HostState] | None:
        if all(not fits(demand, state) for state, _ in self._index.states()):
            return None
        start = 0 if self._last is None else bisect.bisect_right(self._names, self._last)
        for step in range(len(self._names)):
            name = self._names[(start + step) % len(self._names)]
            state = self._index.state_of(name)
            if fits(demand, state):
                return name, state
        return None

    def _cheapest(self, demand: Demand) -> tuple[str, HostState] | None:
        def cost(state: HostState) -> float | None:
            found = choices(demand, state)
            if not found:
                return None
            return min(self._cost(state, after(demand, state, positions)) for positions in found)

        return self._index.choose(demand, self._loss_of(demand) if self._wastes_least else cost)

    def _loss_of(self, demand: Demand) -> Callable[[HostState], float | None]:
        """The cost under `fragmentation` alone, where what was seen before is not looked at again."""
        cpu, memory_mib, kind = demand.cpu, demand.memory_mib, demand[2:]
        looked = self._looked

        def loss(state: HostState) -> float | None:
            if cpu > state.cpu or memory_mib > state.memory_mib:
                return None
            known = looked.get(id(state)) or self._look_at(state)
            _, board, value, left_of = known
            if kind in left_of:
                left = left_of[kind]
            else:
                left = left_of[kind] = self._left_of_gpus(demand, state, board)
            if left is None:
                return None
            return value - board.value(state.cpu - cpu, state.memory_mib - memory_mib, left)

        return loss

    def _look_at(self, state: HostState) -> _Looked:
        """Work out what a state is worth; it is kept alive, so that its id stays its own."""
        if len(self._looked) >= MOST_REMEMBERED or len(self._left) >= MOST_REMEMBERED:
            self._forget()
        board = self._future.on_board(state.board)
        value = board.value(state.cpu, state.memory_mib, board.room_on(state.gpus))
        left_of = self._left.setdefault((state.board, state.gpus), {})
        self._looked[id(state)] = known = (state, board, value, left_of)
        return known

    def _forget(self) -> None:
        self._looked.clear()
        self._left.clear()

    def _left_of_gpus(self, demand: Demand, state: HostState, board: OnBoard) -> Room | None:
        """The room of the other GPUs; None when the demand does not fit on them."""
        found = choices(demand, state)
        return board.room_on(after(demand, state, self._least_loss(demand, state, found)).gpus) if found else None

    def _least_loss(self, demand: Demand, state: HostState, found: list[tuple[int, ...]]) -> tuple[int, ...]:
        """Of these ways to take a demand the one whose GPU loses least, whatever CPUs and memory the host has."""
        if len(found) == 1:
            return found[0]
        loss, gpus = self._future.on_board(state.board).loss_on_gpu, state.gpus
        return min(found, key=lambda one: (loss(gpus[one[0]], demand), one))

    def _least_cost(self, demand: Demand, state: HostState, found: list[tuple[int, ...]]) -> tuple[int, ...]:
        return min(found, key=lambda one: (self._cost(state, after(demand, state, one)), one))

    def _cost(self, before: HostState, left: HostState) -> float:
        total = 0.0
        for name, weight in self._policy.parts:
            if name is PolicyName.FRAGMENTATION:
                total += weight * self._future.loss(before, left)
            elif name in _COSTS:
                total += weight * _COSTS[name](left, self._policy)
        return total

    def _learn(self, demand: Demand) -> None:
        self._arrived[demand] += 1
        self._seen += 1
        if self._seen >= self._next_count:
            self._next_count *= 2
            sizes = ((len(host.gpus), *host.capacity) for host in self._hosts.values())
            self._future = Future(self._arrived, whole_hosts(sizes))
            self._changes_left = 0
            self._pricing += 1
            self._forget()
            self._index.forget_answers()

    def _price_anew(self) -> None:
        self._changes_left = max(LEAST_CHANGES, int(len(self._names) * PRICED_ANEW))
        self._pricing += 1
        self._future.price_anew(self._index.states())
        self._forget()
        self._index.doubt_answers()


def _free(left: HostState, _policy: Policy) -> float:
    """The free part of the host's GPUs, less where it is one piece, and a little for its CPUs."""
    gpus = sum(share for share, _ in left.gpus) / WHOLE
    pieces = sum(share * share for share, _ in left.gpus) / WHOLE**2
    return gpus - pieces / 8 + left.cpu / 1e6


def _used(left: HostState, policy: Policy) -> float:
    return -_free(left, policy)


def _utilised(left: HostState, policy: Policy) -> float:
    above = left.utilisation_percent > policy.threshold_percent
    return left.utilisation_percent / 100 + (1.0 if above else 0.0)


_COSTS: dict[PolicyName, Callable[[HostState, Policy], float]] = {
    PolicyName.BINPACK: _free,
    PolicyName.SPREAD: _used,
    PolicyName.LEAST_UTILISED: _utilised,
}
