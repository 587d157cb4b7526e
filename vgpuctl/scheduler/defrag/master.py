# SPDX-License-Identifier: Apache-2.0
"""The best prices of a few conditions, by column generation (Dantzig and Wolfe 1960) with a small revised simplex."""

from collections.abc import Callable
from math import inf

MOST_PIVOTS = 200
"""Exchanges of one column of the basis after one that is new, a guard against circles."""

SMOOTHED = 0.6
"""Part of the best prices so far in those that are asked next (Wentges 1997); the others are the master's."""

EPSILON = 1e-9

LEEWAY = 1e-5
"""By how much conditions may be missed in the mixture, against circles of exchanges; prices are proof all the same."""


class Master:
    """A mixture of known outcomes at the least cost that keeps the conditions `rows <= 0`.

    cost: of an outcome that is known to keep all of them.
    """

    def __init__(self, rows: int, cost: float) -> None:
        self._size = rows + 1
        self._costs = [cost]
        self._columns = [[0.0] * rows + [1.0]]
        # The basis begins with a slack for each condition, and the known outcome. -1 - row: the slack of a row.
        self._basis = [-1 - row for row in range(rows)] + [0]
        self._inverse = [[float(row == column) for column in range(self._size)] for row in range(self._size)]
        # Conditions that may be missed by a little, each by another amount, so that no exchange is without gain.
        self._values = [LEEWAY * (1 + row / (rows + 1)) for row in range(rows)] + [1.0]

    def add(self, cost: float, rows: list[float]) -> None:
        """Add an outcome."""
        self._costs.append(cost)
        self._columns.append([*rows, 1.0])

    def prices(self) -> list[float]:
        """The price of each condition at the least cost."""
        for _ in range(MOST_PIVOTS):
            duals = self._duals()
            entering, least = None, -EPSILON
            for row in range(self._size - 1):
                if -duals[row] < least and -1 - row not in self._basis:
                    entering, least = -1 - row, -duals[row]
            for number, column in enumerate(self._columns):
                reduced = self._costs[number] - sum(map(float.__mul__, duals, column))
                if reduced < least:
                    entering, least = number, reduced
            if entering is None or not self._pivot(entering):
                break
        return [max(0.0, -one) for one in self._duals()[:-1]]

    def _duals(self) -> list[float]:
        costs = [0.0 if one < 0 else self._costs[one] for one in self._basis]
        return [sum(costs[row] * self._inverse[row][at] for row in range(self._size)) for at in range(self._size)]

    def _pivot(self, entering: int) -> bool:
        if entering < 0:
            change = [row[-1 - entering] for row in self._inverse]
        else:
            change = [sum(map(float.__mul__, row, self._columns[entering])) for row in self._inverse]
        leaving, least = None, inf
        for row, by in enumerate(change):
            if by > EPSILON and self._values[row] / by < least:
                leaving, least = row, self._values[row] / by
        if leaving is None:
            return False
        pivot, inverse = change[leaving], self._inverse
        inverse[leaving] = [one / pivot for one in inverse[leaving]]
        self._values[leaving] /= pivot
        for row, by in enumerate(change):
            if row != leaving and by:
                inverse[row] = [one - by * other for one, other in zip(inverse[row], inverse[leaving], strict=True)]
                self._values[row] = max(0.0, self._values[row] - by * self._values[leaving])
        self._basis[leaving] = entering
        return True


def raise_bound(
    measure: Callable[[list[float]], tuple[float, list[float]]],
    prices: list[float],
    known: float,
    enough: float,
    rounds: int,
) -> tuple[float, list[float]]:
    """The best bound found, and its prices. It ends when the bound is more than enough, or no prices are better.

    measure: the bound at some prices, and by how much the conditions are missed there. known: a cost that can be had.
    """
    master = Master(len(prices), known)
    best, best_prices = -inf, prices
    for _ in range(rounds):
        value, missed = measure(prices)
        if value > best:
            best, best_prices = value, prices
        if best > enough:
            break
        master.add(value - sum(map(float.__mul__, prices, missed)), missed)
        wanted = master.prices()
        if max(map(abs, map(float.__sub__, wanted, best_prices)), default=0.0) < 1e-7:
            break
        prices = [SMOOTHED * old + (1 - SMOOTHED) * new for old, new in zip(best_prices, wanted, strict=True)]
    return best, best_prices
