# SPDX-License-Identifier: Apache-2.0
"""Fragmentation gradient descent (Weng et al., USENIX ATC'23), the published baseline, in plain Python.

The fragment of a host is the free part of its GPUs that a typical request cannot use, averaged over the typical
requests: the most frequent 95 %. A request goes where its fragment grows least. As in the authors' scheduler the score
is an integer from 0 to 100, and of equal hosts the first by name wins; with random ties FGD loses five points on openb.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from vgpuctl.scheduler.soft.host_state import WHOLE, Demand

POPULARITY = 0.95

Gpus = tuple[int, ...]


class _Typical(NamedTuple):
    part: float
    cpu: int
    gpus: int
    share: int
    boards: frozenset[str]


class Fgd:
    """A fleet that FGD places on. Memory of the GPUs is not counted, as in the paper."""

    def __init__(self, expected: Mapping[Demand, int]) -> None:
        """expected: how often each request comes, which FGD is told beforehand."""
        self._typical = _typical_of(expected)
        self._hosts: list[tuple[str, int, int, Gpus]] = []
        self._fragment = cache(self._work_out_fragment)
        self._best = cache(self._work_out_best)

    def add_host(self, board: str, cpu: int, memory_mib: int, gpus: int) -> None:
        """Add an empty host after the others; hosts are in the order of their names."""
        self._hosts.append((board, cpu, memory_mib, (WHOLE,) * gpus))

    def place(self, demand: Demand) -> tuple[int, Gpus] | None:
        """The host's number and the numbers of its GPUs, taken there; None when it fits nowhere."""
        best: tuple[int, int, Gpus] | None = None
        for number, (board, cpu, memory_mib, free) in enumerate(self._hosts):
            if demand.cpu <= cpu and demand.memory_mib <= memory_mib:
                found = self._best(demand, board, cpu, free)
                if found is not None and (best is None or found[0] > best[0]):
                    best = (found[0], number, found[1])
        if best is None:
            return None
        _, number, gpus = best
        board, cpu, memory_mib, free = self._hosts[number]
        self._hosts[number] = (board, cpu - demand.cpu, memory_mib - demand.memory_mib, _after(free, gpus, demand))
        return number, gpus

    def _work_out_best(self, demand: Demand, board: str, cpu: int, free: Gpus) -> tuple[int, Gpus] | None:
        if demand.gpus and demand.boards and board not in demand.boards:
            return None
        before = self._fragment(board, cpu, tuple(sorted(free)))
        best: tuple[int, Gpus] | None = None
        for gpus in _choices(demand, free):
            left = self._fragment(board, cpu - demand.cpu, tuple(sorted(_after(free, gpus, demand))))
            score = math.floor(100 / (1 + math.exp((left - before) / WHOLE)))
            if best is None or score > best[0]:
                best = (score, gpus)
        return best

    def _work_out_fragment(self, board: str, cpu: int, free: Gpus) -> float:
        total = 0.0
        for one in self._typical:
            fitting = sum(amount >= one.share for amount in free)
            is_usable = one.gpus and cpu >= one.cpu and fitting >= one.gpus and (not one.boards or board in one.boards)
            total += one.part * sum(amount for amount in free if not is_usable or amount < one.share)
        return total


def _typical_of(expected: Mapping[Demand, int]) -> list[_Typical]:
    kinds: Counter[tuple[int, int, int, frozenset[str]]] = Counter()
    for one, count in expected.items():
        kinds[one.cpu, one.gpus, one.share, one.boards] += count
    kept: list[tuple[tuple[int, int, int, frozenset[str]], int]] = []
    had = 0
    for kind, count in kinds.most_common():
        kept.append((kind, count))
        had += count
        if had >= POPULARITY * kinds.total():
            break
    return [_Typical(count / had, *kind) for kind, count in kept]


def _choices(demand: Demand, free: Gpus) -> Iterable[Gpus]:
    able = [number for number, amount in enumerate(free) if amount >= demand.share]
    if not demand.gpus:
        return [()]
    if len(able) < demand.gpus:
        return []
    if demand.gpus > 1 or demand.share == WHOLE:
        return [tuple(able[: demand.gpus])]
    first: dict[int, int] = {}
    for number in able:
        first.setdefault(free[number], number)
    return [(number,) for number in first.values()]


def _after(free: Gpus, gpus: Gpus, demand: Demand) -> Gpus:
    return tuple(amount - demand.share if number in gpus else amount for number, amount in enumerate(free))
