# SPDX-License-Identifier: Apache-2.0
"""An index of members whose states come back: few different ones, so each is asked once per question, for good.

state_index is the other kind, for states that are new most of the time.
"""

import bisect
import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)

Price = tuple[float, ...]

Cost = Callable[[State], Price | None]
"""What choosing a member in this state costs, smallest best; None when it cannot be chosen. Always the same answer."""

SPARE_CLASSES = 4096
"""Classes kept beyond four for each member; at more, those without members are forgotten and every question is new."""

MOST_REQUEST_CLASSES = 4096
"""Questions whose answers are kept; at more, all are dropped and asked again."""


class _CountedClass(Generic[State]):
    """One state and its members. waiting: a heap of their names, with names that have left since.

    parked: the questions that met it empty, to be told when a member comes.
    """

    __slots__ = ("members", "parked", "state", "waiting")

    def __init__(self, state: State) -> None:
        self.state = state
        self.members: set[str] = set()
        self.waiting: list[str] = []
        self.parked: list[tuple[_Order, Price]] = []

    def first(self) -> str:
        """The first member by name."""
        while self.waiting[0] not in self.members:
            heapq.heappop(self.waiting)
        return self.waiting[0]


class _Order:
    """The answers to one question: (price, number of the class), sorted, of classes not known to be empty."""

    __slots__ = ("asked", "entries")

    def __init__(self) -> None:
        self.asked = 0
        self.entries: list[tuple[Price, int]] = []


class ClassIndex(Generic[State]):
    """Members by name, each in one state; `choose` answers for all of them. Equal members give an equal answer."""

    def __init__(self) -> None:
        self._class_of: dict[str, int] = {}
        self._numbers: dict[State, int] = {}
        self._classes: list[_CountedClass[State]] = []
        self._orders: dict[Hashable, _Order] = {}

    def put(self, name: str, state: State) -> None:
        """Add a member, or move it to another state."""
        number = self._numbers.get(state)
        if number is None:
            if len(self._classes) > SPARE_CLASSES + 4 * len(self._class_of):
                self._forget_empty()
            number = self._numbers[state] = len(self._classes)
            self._classes.append(_CountedClass(state))
        old = self._class_of.get(name)
        if old == number:
            return
        if old is not None:
            self._classes[old].members.discard(name)
        self._class_of[name] = number
        found = self._classes[number]
        if found.parked and not found.members:
            for order, price in found.parked:
                bisect.insort(order.entries, (price, number))
            found.parked.clear()
        found.members.add(name)
        heapq.heappush(found.waiting, name)
        if len(found.waiting) > 64 + 4 * len(found.members):
            found.waiting = sorted(found.members)

    def discard(self, name: str) -> None:
        """Take a member out if it is there."""
        number = self._class_of.pop(name, None)
        if number is not None:
            self._classes[number].members.discard(name)

    def choose(self, key: Hashable, cost: Cost[State]) -> tuple[str, Price] | None:
        """The member that costs least, of equal ones the first by name, and its price; None when none can be chosen.

        key: names what `cost` answers; answers are kept under it.
        """
        order = self._orders.get(key)
        if order is None:
            if len(self._orders) >= MOST_REQUEST_CLASSES:
                self._forget()
            order = self._orders[key] = _Order()
        classes = self._classes
        if order.asked < len(classes):
            self._ask(order, cost)
        entries = order.entries
        best: Price | None = None
        name = ""
        at = 0
        while at < len(entries):
            price, number = entries[at]
            if best is not None and price != best:
                break
            found = classes[number]
            if not found.members:
                del entries[at]
                found.parked.append((order, price))
                continue
            first = found.first()
            if best is None or first < name:
                best, name = price, first
            at += 1
        return None if best is None else (name, best)

    def _ask(self, order: _Order, cost: Cost[State]) -> None:
        fresh = []
        for number in range(order.asked, len(self._classes)):
            price = cost(self._classes[number].state)
            if price is not None:
                fresh.append((price, number))
        order.asked = len(self._classes)
        order.entries.extend(fresh)
        order.entries.sort()

    def _forget_empty(self) -> None:
        kept = [found for found in self._classes if found.members]
        self._forget()
        self._classes = kept
        self._numbers = {found.state: number for number, found in enumerate(kept)}
        self._class_of = {name: number for number, found in enumerate(kept) for name in found.members}

    def _forget(self) -> None:
        self._orders.clear()
        for found in self._classes:
            found.parked.clear()
