# SPDX-License-Identifier: Apache-2.0
"""What the future would still get out of a host: the value that the policy `fragmentation` keeps highest.

The future is the distribution of typical requests, given or counted as they arrive. For each typical request the
value counts how many of it alone would still fit, with diminishing weight for more of the same: a host that can
still take something of everything is worth more than one with much room for one kind.
"""

import math
from collections.abc import Mapping, Sequence
from operator import getitem

from vgpuctl.scheduler.host_state import WHOLE, Demand, GpuFree, HostState

POPULARITY = 0.95
"""Typical are the most frequent requests that make up this share of all."""

CPU_RATIO = 1.1
MEMORY_RATIO = 2.0
"""Requests of one GPU amount whose CPU and memory differ by less than about this ratio count as one."""

CURVE = 0.5
SIZE_EXPONENT = 1.5
"""Value of n fitting requests of a size: size ** SIZE_EXPONENT * n ** CURVE."""

CPU_STEP = 100
MEMORY_STEP_MIB = 256
"""Amounts are rounded down to these before they are valued, so that more states are equal."""

MOST_COUNTED = 1024

MOST_REMEMBERED = 100_000
"""Values kept for each model of GPU; at more, all are dropped, which costs time and changes no answer."""


class Future:
    """Typical requests with their weights. `value` remembers what it worked out, for states come back."""

    def __init__(
        self, counts: Mapping[Demand, int], *, curve: float = CURVE, size_exponent: float = SIZE_EXPONENT
    ) -> None:
        """counts: how often each request came, or is expected."""
        self._types = typical_requests(counts)
        self._curve = curve
        self._size_exponent = size_exponent
        self._boards: dict[str, _OnBoard] = {}

    def value(self, state: HostState) -> float:
        """How much of the typical requests still fits; 0 on a host where nothing does."""
        board = self._boards.get(state.board)
        if board is None:
            board = self._boards[state.board] = self._on_board(state.board)
        return board.value(state.cpu, state.memory_mib, state.gpus)

    def loss(self, before: HostState, after: HostState) -> float:
        """What is given up by going from one state to the other."""
        return self.value(before) - self.value(after)

    def loss_on_gpu(self, board: str, free: GpuFree, demand: Demand) -> float:
        """What a GPU with this much free gives up by taking a share, whatever CPUs and memory its host has.

        It orders the GPUs of one host as `loss` does where those do not limit, for a small part of the work.
        """
        found = self._boards.get(board)
        if found is None:
            found = self._boards[board] = self._on_board(board)
        return found.loss_on_gpu(free, demand)

    def _on_board(self, board: str) -> "_OnBoard":
        allowed = {one: count for one, count in self._types.items() if not one.boards or board in one.boards}
        total = sum(self._types.values())
        tables = []
        for one, count in allowed.items():
            weight = count / total * (one.gpus * one.share / WHOLE) ** self._size_exponent
            tables.append([weight * number**self._curve for number in range(MOST_COUNTED + 1)])
        return _OnBoard(list(allowed), tables)


class _OnBoard:
    """The typical requests that one model of GPU may serve, and what is known of its hosts' states."""

    def __init__(self, types: list[Demand], tables: list[list[float]]) -> None:
        self._types = types
        self._tables = tables
        self._values: dict[tuple[int, int, tuple[GpuFree, ...]], float] = {}
        self._by_cpu: dict[int, list[int]] = {}
        self._by_memory: dict[int, list[int]] = {}
        self._by_gpu: dict[GpuFree, list[int]] = {}
        self._by_gpus: dict[tuple[GpuFree, ...], list[int]] = {}
        self._gpu_losses: dict[tuple[GpuFree, int, int], float] = {}
        self._has_several = any(one.gpus > 1 for one in types)

    def value(self, cpu: int, memory_mib: int, gpus: tuple[GpuFree, ...]) -> float:
        key = (cpu // CPU_STEP, memory_mib // MEMORY_STEP_MIB, gpus)
        found = self._values.get(key)
        if found is None:
            if len(self._values) >= MOST_REMEMBERED:
                for memory in (
                    self._values,
                    self._by_gpus,
                    self._by_gpu,
                    self._by_cpu,
                    self._by_memory,
                    self._gpu_losses,
                ):
                    memory.clear()
            found = self._values[key] = self._work_out(*key)
        return found

    def loss_on_gpu(self, free: GpuFree, demand: Demand) -> float:
        key = (free, demand.share, demand.gpu_memory_mib)
        loss = self._gpu_losses.get(key)
        if loss is None:
            left = (free[0] - demand.share, free[1] - demand.gpu_memory_mib)
            loss = self._gpu_losses[key] = self._value_of_gpu(free) - self._value_of_gpu(left)
        return loss

    def _value_of_gpu(self, free: GpuFree) -> float:
        """Each fit counts as much as the first."""
        return sum((table[1] * _on_gpu(one, free) for one, table in zip(self._types, self._tables, strict=True)), 0.0)

    def _work_out(self, cpu: int, memory: int, gpus: tuple[GpuFree, ...]) -> float:
        if not gpus:
            return 0.0
        by_cpu = self._by_cpu.get(cpu)
        if by_cpu is None:
            by_cpu = self._by_cpu[cpu] = [_times(cpu, one.cpu // CPU_STEP) for one in self._types]
        by_memory = self._by_memory.get(memory)
        if by_memory is None:
            steps = [one.memory_mib // MEMORY_STEP_MIB for one in self._types]
            by_memory = self._by_memory[memory] = [_times(memory, step) for step in steps]
        by_gpus = self._by_gpus.get(gpus)
        if by_gpus is None:
            by_gpus = self._by_gpus[gpus] = self._counts_on(gpus)
        return sum(map(getitem, self._tables, map(min, by_gpus, by_cpu, by_memory)))

    def _counts_on(self, gpus: Sequence[GpuFree]) -> list[int]:
        rows: list[list[int]] = []
        for free in gpus:
            row = self._by_gpu.get(free)
            if row is None:
                row = self._by_gpu[free] = [_on_gpu(one, free) for one in self._types]
            rows.append(row)
        counts = list(map(sum, zip(*rows, strict=True)))
        if self._has_several:
            counts = [count // one.gpus for count, one in zip(counts, self._types, strict=True)]
        return counts


def typical_requests(counts: Mapping[Demand, int]) -> dict[Demand, int]:
    """The most frequent requests for GPUs, those that differ little merged into their mean."""
    goal = POPULARITY * sum(counts.values())
    had = 0
    alike: dict[tuple[object, ...], list[tuple[Demand, int]]] = {}
    for one, count in sorted(counts.items(), key=lambda item: (-item[1], item[0][:5], sorted(item[0].boards))):
        if had >= goal:
            break
        had += count
        if one.gpus and one.share:
            step = (_step(one.cpu, CPU_RATIO), _step(one.memory_mib, MEMORY_RATIO))
            key = (one.gpus, one.share, one.gpu_memory_mib, one.boards, *step)
            alike.setdefault(key, []).append((one, count))
    kept: dict[Demand, int] = {}
    for group in alike.values():
        total = sum(count for _, count in group)
        cpu = sum(one.cpu * count for one, count in group) // total
        memory_mib = sum(one.memory_mib * count for one, count in group) // total
        kept[group[0][0]._replace(cpu=cpu, memory_mib=memory_mib)] = total
    return kept


def _step(amount: int, ratio: float) -> int:
    return round(math.log(max(amount, 1)) / math.log(ratio))


def _times(have: int, want: int) -> int:
    return min(have // want, MOST_COUNTED) if want else MOST_COUNTED


def _on_gpu(one: Demand, free: GpuFree) -> int:
    times = free[0] // one.share
    if one.gpu_memory_mib:
        times = min(times, free[1] // one.gpu_memory_mib)
    return times if one.gpus == 1 else min(times, 1)
