# SPDX-License-Identifier: Apache-2.0
"""The worth of the free part of a GPU, to be filled with the expected shares.

The worth of a share size is its dual price in the fractional bin packing of the expected shares into GPUs: the part of
a GPU that one share more costs when all are packed as well as they can be. So 810 of 1000 may be worth a whole GPU,
because hardly anything fills the rest, and small shares that only fill what is left over are worth nothing.
The prices are found by column generation (Gilmore and Gomory, 1961): a pattern is what one GPU may carry, and of all
patterns only those are looked at that the knapsack problem finds worth more than a GPU at the prices so far.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from vgpuctl.scheduler.soft.host_state import WHOLE, Demand

MOST_SIZES = 32
"""Share sizes that are priced: those that ask for most GPUs together. Others are worth nothing of their own."""

ENOUGH_CPU, ENOUGH_MEMORY = 0.8, 0.1
"""Parts of the CPUs and memory that expected requests want on average with which a GPU counts as usable.

Requests differ more in memory than in CPUs, so light ones use the GPUs of a host that is short of memory.
"""

MOST_ROUNDS = 400
"""Patterns that are tried; where these do not suffice the prices are lowered until no pattern is worth more than 1."""

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Packing:
    """worths: of 0, 1, … 1000 thousandths of a GPU that are free, in GPUs; leftovers that no share fills are worth 0.

    cpu, memory_mib: what a host must have for each GPU that is to be used, CPUs in thousandths; 0 when that is nothing.
    Memory of the GPUs is not priced: shares are packed by compute, and memory limits only what fits.
    """

    worths: Sequence[float]
    cpu: float
    memory_mib: float

    def gpus_for(self, cpu: int, memory_mib: int) -> float:
        """How many GPUs this much of a host lets be used."""
        by_cpu = cpu / self.cpu if self.cpu else math.inf
        return min(by_cpu, memory_mib / self.memory_mib if self.memory_mib else math.inf)


def packing_of(counts: Mapping[Demand, int]) -> Packing:
    """How requests pack that come, or are expected, so often."""
    wanting = {one: count for one, count in counts.items() if one.gpus and one.share}
    expected: Counter[int] = Counter()
    for one, count in wanting.items():
        expected[one.share] += one.gpus * count
    worths = worth_of_free_shares(expected)
    gpus = sum(worths[share] * count for share, count in expected.items())
    cpu = sum(one.cpu * count for one, count in wanting.items())
    memory_mib = sum(one.memory_mib * count for one, count in wanting.items())
    if not gpus:
        return Packing(worths, 0.0, 0.0)
    return Packing(worths, ENOUGH_CPU * cpu / gpus, ENOUGH_MEMORY * memory_mib / gpus)


def worth_of_free_shares(expected: Mapping[int, float]) -> list[float]:
    """The worth of 0, 1, … 1000 thousandths of a GPU, in GPUs: the most that expected shares fitting there are worth.

    expected: how often each share size, in thousandths, comes. A whole GPU is worth 1, whatever is expected.
    """
    asked = sorted((size * count, size) for size, count in expected.items() if 0 < size < WHOLE and count > 0)
    sizes = sorted((size for _, size in asked[-MOST_SIZES:]), reverse=True)
    prices = share_prices({size: expected[size] for size in sizes})
    unit = math.gcd(WHOLE, *sizes)
    worth, _ = _most_worth([size // unit for size in sizes], [prices[size] for size in sizes], WHOLE // unit)
    return [*(worth[free // unit] for free in range(WHOLE)), 1.0]


def share_prices(expected: Mapping[int, float]) -> dict[int, float]:
    """The dual price of each share size, in GPUs: no pattern is worth more than 1, and all together are worth most.

    The simplex method on patterns, with the inverse of the basis kept.
    """
    sizes = sorted(expected, reverse=True)
    unit = math.gcd(WHOLE, *sizes)
    units = [size // unit for size in sizes]
    rows = range(len(sizes))
    prices = [1.0 / (WHOLE // size) for size in sizes]
    inverse = [[prices[row] if row == column else 0.0 for column in rows] for row in rows]
    gpus = [expected[size] * price for size, price in zip(sizes, prices, strict=True)]
    for _ in range(MOST_ROUNDS):
        worth, last = _most_worth(units, prices, WHOLE // unit)
        if worth[-1] <= 1 + TOLERANCE:
            break
        pattern = _pattern(units, last)
        column = [sum(map(mul, row, pattern)) for row in inverse]
        step, out = min((gpus[row] / column[row], row) for row in rows if column[row] > TOLERANCE)
        leaving = [one / column[out] for one in inverse[out]]
        inverse = [
            [one - times * other for one, other in zip(row, leaving, strict=True)]
            for row, times in zip(inverse, column, strict=True)
        ]
        inverse[out] = leaving
        gpus = [max(amount - times * step, 0.0) for amount, times in zip(gpus, column, strict=True)]
        gpus[out] = step
        prices = list(map(sum, zip(*inverse, strict=True)))
    worth, _ = _most_worth(units, prices, WHOLE // unit)
    return {size: max(price, 0.0) / max(worth[-1], 1.0) for size, price in zip(sizes, prices, strict=True)}


def _most_worth(sizes: Sequence[int], prices: Sequence[float], room: int) -> tuple[list[float], list[int]]:
    """The knapsack problem: for 0 … room the most that sizes fitting there are worth, and the size taken last.

    The last size is a position in `sizes`, -1 where the room before it is worth as much.
    """
    priced = [
        (size, price, number) for number, (size, price) in enumerate(zip(sizes, prices, strict=True)) if price > 0
    ]
    most, last = [0.0], [-1]
    for here in range(1, room + 1):
        best, taken = most[-1], -1
        for size, price, number in priced:
            if size <= here and most[here - size] + price > best:
                best, taken = most[here - size] + price, number
        most.append(best)
        last.append(taken)
    return most, last


def _pattern(sizes: Sequence[int], last: Sequence[int]) -> list[int]:
    """How often each size is taken in the best filling of the whole room."""
    times, here = [0] * len(sizes), len(last) - 1
    while here > 0:
        taken = last[here]
        if taken < 0:
            here -= 1
        else:
            times[taken] += 1
            here -= sizes[taken]
    return times
