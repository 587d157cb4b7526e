# SPDX-License-Identifier: Apache-2.0
"""The expected future use of a host in GPUs: the value that the policy `fragmentation` keeps highest.

The future is the distribution of typical requests, given or counted as they arrive, and a request for a whole host as
if it had come once, so that the largest hosts are kept for requests nobody has seen yet. The value has two parts:
what the free parts of the GPUs are worth when expected shares are packed into them (packing.py beside this file), less
where the host lacks the CPUs or the memory to use them; and, at a small price for each, how many of every typical
request alone would still fit. The less room the fleet has for a request, the higher its price, so empty hosts are kept
for those that want many GPUs.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import mul
from typing import Any

from vgpuctl.scheduler.soft.host_state import WHOLE, Demand, GpuFree, GpusFree, HostState
from vgpuctl.scheduler.soft.packing import Packing, packing_of

POPULARITY = 0.97
"""Typical are the requests that ask for most GPUs together, up to this share of all requested GPUs."""

UNSEEN = 1.0
"""How often a request for a whole host counts as having come."""

WHOLE_HOST = 0.9
"""Part of the host's CPUs and memory that a request for a whole host wants."""

CPU_RATIO = 1.1
MEMORY_RATIO = 2.0
"""Requests of one GPU amount whose CPU and memory differ by less than about this ratio count as one."""

BACKED = 0.75
"""Part of the GPUs' worth that counts only as far as the host has CPUs and memory for as many expected requests."""

DEAREST = 0.02
"""Price of room for one more of the dearest typical request, in GPUs."""

SIZE_EXPONENT = 0.5
"""The price grows with the request's GPUs to this power."""

CPU_STEP = 1000
MEMORY_STEP_MIB = 4096
"""Amounts are rounded down to these before they are valued, so that what was worked out serves more states."""

MOST_COUNTED = 1024

Counts = tuple[int, ...]
"""How many of each typical request; of none when it is empty."""

Room = tuple[Counts, float]
"""How many of each typical request alone the GPUs of a host have room for, and what their free parts are worth."""

MOST_REMEMBERED = 100_000
"""Answers kept of each kind; at more, all are dropped, which costs time and changes no answer."""


class Future:
    """Typical requests with their weights. It remembers what it worked out, for states come back."""

    def __init__(self, counts: Mapping[Demand, int], unseen: Iterable[Demand] = ()) -> None:
        """counts: how often each request came, or is expected. unseen: requests that may come, from `whole_hosts`."""
        expected: dict[Demand, float] = dict(typical_requests(counts))
        for one in unseen:
            expected[one] = expected.get(one, 0) + UNSEEN
        self._weights = {
            one: count * (one.gpus * one.share / WHOLE) ** SIZE_EXPONENT for one, count in expected.items()
        }
        self._prices = _in_gpus(self._weights)
        self._packing = packing_of(counts)
        self._boards: dict[str, OnBoard] = {}
        self._of_types: dict[frozenset[Demand], OnBoard] = {}

    def price_anew(self, states: Iterable[tuple[HostState, int]]) -> None:
        """Raise the price of each typical request as the fleet's room for it alone shrinks.

        states: those of the fleet's hosts, each with their number.
        """
        room = dict.fromkeys(self._weights, 0)
        for state, hosts in states:
            for one, fitting in self.on_board(state.board).fitting(state):
                room[one] += hosts * fitting
        self._prices = _in_gpus({one: weight / (room[one] + 1) for one, weight in self._weights.items()})
        for board in self._of_types.values():
            board.set_prices(self._prices)

    def value(self, state: HostState) -> float:
        """How much of the typical requests still fits; 0 on a host where nothing does."""
        board = self.on_board(state.board)
        return board.value(state.cpu, state.memory_mib, board.room_on(state.gpus))

    def loss(self, before: HostState, after: HostState) -> float:
        """The loss of going from one state of a host to the other."""
        return self.value(before) - self.value(after)

    def on_board(self, board: str) -> "OnBoard":
        """The same for hosts of one model of GPU."""
        found = self._boards.get(board)
        if found is None:
            allowed = [one for one in self._prices if not one.boards or board in one.boards]
            found = self._of_types.get(frozenset(allowed))
            if found is None:
                found = self._of_types[frozenset(allowed)] = OnBoard(allowed, self._packing)
                found.set_prices(self._prices)
            self._boards[board] = found
        return found


class OnBoard:
    """The typical requests that one model of GPU may serve, and what is known of its hosts' states."""

    def __init__(self, requests: Sequence[Demand], packing: Packing) -> None:
        """It values nothing before `set_prices`."""
        self._requests = requests
        self._packing = packing
        self._prices: list[float] = []
        self._by_cpu: dict[int, list[int]] = {}
        self._by_memory: dict[int, list[int]] = {}
        self._by_rest: dict[tuple[int, int], tuple[Counts, float]] = {}
        self._by_gpu: dict[GpuFree, Counts] = {}
        self._by_gpus: dict[GpusFree, Room] = {}
        self._gpu_values: dict[GpuFree, float] = {}

    def set_prices(self, prices: Mapping[Demand, float]) -> None:
        """Value what is asked from now on at these prices."""
        self._prices = [prices[one] for one in self._requests]
        self._gpu_values.clear()

    def fitting(self, state: HostState) -> Iterator[tuple[Demand, int]]:
        """How many of each request alone fit on a host."""
        counts, _ = self.room_on(state.gpus)
        limits, _ = self._limits_for((state.cpu // CPU_STEP, state.memory_mib // MEMORY_STEP_MIB))
        return zip(self._requests, map(min, counts, limits), strict=False)

    def value(self, cpu: int, memory_mib: int, room: Room) -> float:
        """The worth of the free part of a host. room: from `room_on`."""
        rest = (cpu // CPU_STEP, memory_mib // MEMORY_STEP_MIB)
        limits, backed = self._by_rest.get(rest) or self._limits_for(rest)
        counts, worth = room
        usable = (1 - BACKED) * worth + BACKED * min(worth, backed)
        return sum(map(mul, self._prices, map(min, counts, limits)), usable)

    def room_on(self, gpus: GpusFree) -> Room:
        """The requests that the GPUs have room for."""
        room = self._by_gpus.get(gpus)
        if room is None:
            sums = map(sum, zip(*map(self._counts_on_gpu, gpus), strict=True))
            counts = tuple(
                [min(one // want.gpus, MOST_COUNTED) for one, want in zip(sums, self._requests, strict=False)]
            )
            worths = self._packing.worths
            _make_room(self._by_gpus)
            room = (counts if any(counts) else (), sum((worths[share] for share, _ in gpus), 0.0))
            self._by_gpus[gpus] = room
        return room

    def value_of_gpu(self, free: GpuFree) -> float:
        """The worth of a GPU of a host without limits."""
        value = self._gpu_values.get(free)
        if value is None:
            _make_room(self._gpu_values)
            value = sum(map(mul, self._prices, self._counts_on_gpu(free)), self._packing.worths[free[0]])
            self._gpu_values[free] = value
        return value

    def loss_on_gpu(self, free: GpuFree, demand: Demand) -> float:
        """The loss of a GPU with this much free by taking a share, whatever CPUs and memory its host has.

        It orders the GPUs of one host as `loss` does where those do not limit, for a small part of the work.
        """
        return self.value_of_gpu(free) - self.value_of_gpu((free[0] - demand.share, free[1] - demand.gpu_memory_mib))

    def _counts_on_gpu(self, free: GpuFree) -> Counts:
        row = self._by_gpu.get(free)
        if row is None:
            _make_room(self._by_gpu)
            row = self._by_gpu[free] = tuple(_on_gpu(one, free) for one in self._requests)
        return row

    def _limits_for(self, rest: tuple[int, int]) -> tuple[Counts, float]:
        """How many of each request these steps of CPUs and memory have room for, and how many GPUs they let be used."""
        found = self._by_rest.get(rest)
        if found is None:
            cpus = self._limits(self._by_cpu, rest[0], CPU_STEP, [one.cpu for one in self._requests])
            memories = self._limits(
                self._by_memory, rest[1], MEMORY_STEP_MIB, [one.memory_mib for one in self._requests]
            )
            backed = self._packing.gpus_for(rest[0] * CPU_STEP, rest[1] * MEMORY_STEP_MIB)
            _make_room(self._by_rest)
            found = self._by_rest[rest] = (tuple(map(min, cpus, memories)), backed)
        return found

    def _limits(self, memory: dict[int, list[int]], steps: int, step: int, wants: Sequence[int]) -> list[int]:
        """How many of each request fit into an amount."""
        found = memory.get(steps)
        if found is None:
            _make_room(memory)
            amount = steps * step
            found = memory[steps] = [min(amount // want, MOST_COUNTED) if want else MOST_COUNTED for want in wants]
        return found


def whole_hosts(sizes: Iterable[tuple[int, int, int]]) -> list[Demand]:
    """A request for a whole host with several GPUs; of hosts with equally many it is the one with most CPUs.

    sizes: GPUs, CPUs in thousandths and memory in MiB of each host.
    """
    largest: dict[int, tuple[int, int]] = {}
    for gpus, cpu, memory_mib in sizes:
        if gpus > 1:
            largest[gpus] = max(largest.get(gpus, (0, 0)), (cpu, memory_mib))
    return [
        Demand(int(cpu * WHOLE_HOST), int(memory_mib * WHOLE_HOST), gpus, WHOLE)
        for gpus, (cpu, memory_mib) in sorted(largest.items())
    ]


def _in_gpus(weights: Mapping[Demand, float]) -> dict[Demand, float]:
    """Prices in the proportions of the weights."""
    dearest = max(weights.values(), default=1.0)
    return {one: weight / dearest * DEAREST for one, weight in weights.items()}


def _make_room(memory: dict[Any, Any]) -> None:
    if len(memory) >= MOST_REMEMBERED:
        memory.clear()


def typical_requests(counts: Mapping[Demand, int]) -> dict[Demand, int]:
    """The requests that ask for most GPUs together, those that differ little merged into their mean."""
    asked = {one: count * one.gpus * one.share for one, count in counts.items() if one.gpus and one.share}
    goal = POPULARITY * sum(asked.values())
    had = 0
    alike: dict[tuple[object, ...], list[tuple[Demand, int]]] = {}
    for one, amount in sorted(asked.items(), key=lambda item: (-item[1], item[0][:5], sorted(item[0].boards))):
        if had >= goal:
            break
        had += amount
        step = (_step(one.cpu, CPU_RATIO), _step(one.memory_mib, MEMORY_RATIO))
        key = (one.gpus, one.share, one.gpu_memory_mib, one.boards, *step)
        alike.setdefault(key, []).append((one, counts[one]))
    kept: dict[Demand, int] = {}
    for group in alike.values():
        total = sum(count for _, count in group)
        cpu = sum(one.cpu * count for one, count in group) // total
        memory_mib = sum(one.memory_mib * count for one, count in group) // total
        kept[group[0][0]._replace(cpu=cpu, memory_mib=memory_mib)] = total
    return kept


def _step(amount: int, ratio: float) -> int:
    return round(math.log(max(amount, 1)) / math.log(ratio))


def _on_gpu(one: Demand, free: GpuFree) -> int:
    times = free[0] // one.share
    if one.gpu_memory_mib:
        times = min(times, free[1] // one.gpu_memory_mib)
    return times if one.gpus == 1 else min(times, 1)
