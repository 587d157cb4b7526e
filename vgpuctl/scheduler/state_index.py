# SPDX-License-Identifier: Apache-2.0
"""An index of a fleet by state: members (hosts or GPUs) in an equal state share one entry.

A decision looks at what is new since the same question was asked last, so its cost does not follow the size of the
fleet. The caller defines states and costs.
"""

import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)

Price = TypeVar("Price", float, tuple[float, ...])
"""Smallest best; of one index all are of one kind."""

Cost = Callable[[State], Price | None]
"""What choosing a member in this state costs; None when it cannot be chosen.

Of one question and one state the answer must always be the same.
"""

SMALLEST_LOG = 1024

MOST_REQUEST_CLASSES = 1024
"""Questions whose answers are kept; at more, all are dropped and asked again."""


@dataclass
class _StateClass(Generic[State]):
    """The members in one state. waiting: a heap of their names, with names that have left since."""

    number: int
    state: State
    members: set[str] = field(default_factory=set)
    waiting: list[str] = field(default_factory=list)

    def first(self) -> str:
        """The first member by name."""
        while self.waiting[0] not in self.members:
            heapq.heappop(self.waiting)
        return self.waiting[0]


@dataclass
class _Queue(Generic[Price]):
    """The answers to one question: a heap of (cost, first name, class number), up to `position` in the log.

    prices: the cost of each class in the heap. rounds: when it was asked, see `doubt_answers`.
    backlog: numbers to ask or name again, the newest last.
    A name in the heap may be one that has left, and a cost one that was computed again; both are put right when they
    come to the top.
    """

    position: int = -1
    backlog: list[int] = field(default_factory=list)
    heap: list[tuple[Price, str, int]] = field(default_factory=list)
    prices: dict[int, Price] = field(default_factory=dict)
    rounds: dict[int, int] = field(default_factory=dict)


class StateIndex(Generic[State, Price]):
    """Members by name, each in one state; `choose` answers for the whole fleet. Equal input gives an equal answer."""

    def __init__(self, most_asked: int | None = None) -> None:
        """most_asked: how many new states that will do one decision looks at, the newest first;

        the others wait for the next decision on the same question. None for all, which makes every answer the best.
        After `doubt_answers` it is also the number of old answers that one decision computes again.
        """
        self._most_asked = most_asked
        self._class_of: dict[str, _StateClass[State]] = {}
        self._classes: dict[State, _StateClass[State]] = {}
        self._by_number: dict[int, _StateClass[State]] = {}
        self._log: list[int] = []
        self._log_start = 0
        self._next_number = 0
        self._queues: dict[Hashable, _Queue[Price]] = {}
        self._round = 0

    def __len__(self) -> int:
        return len(self._class_of)

    def __contains__(self, name: str) -> bool:
        return name in self._class_of

    def state_of(self, name: str) -> State:
        """The state of a member. Raises KeyError for one that is not there."""
        return self._class_of[name].state

    def first_of(self, state: State) -> str:
        """The first member by name in this state. Raises KeyError when there is none."""
        return self._classes[state].first()

    def states(self) -> Iterator[tuple[State, int]]:
        """Every state that has members, with their number."""
        return ((one.state, len(one.members)) for one in self._classes.values())

    def put(self, name: str, state: State) -> None:
        """Add a member, or move it to another state."""
        old = self._class_of.get(name)
        if old is not None:
            if old.state == state:
                return
            self._leave(old, name)
        found = self._classes.get(state)
        if found is None:
            found = _StateClass(self._next_number, state)
            self._next_number += 1
            self._classes[state] = found
            self._by_number[found.number] = found
        found.members.add(name)
        heapq.heappush(found.waiting, name)
        if found.waiting[0] == name:
            self._log.append(found.number)
        self._class_of[name] = found

    def remove(self, name: str) -> None:
        """Take a member out. Raises KeyError when it is not there."""
        self._leave(self._class_of.pop(name), name)

    def forget_answers(self) -> None:
        """Drop what was worked out: the costs have changed."""
        self._queues.clear()

    def doubt_answers(self) -> None:
        """The costs have changed a little: earlier results are computed again where they come out best."""
        self._round += 1

    def choose(self, key: Hashable, cost: Cost[State, Price]) -> tuple[str, State] | None:
        """The member that costs least, of equal ones the first by name; None when none can be chosen.

        key: names what `cost` answers; answers are kept under it until `forget_answers`.
        """
        if len(self._queues) >= MOST_REQUEST_CLASSES and key not in self._queues:
            self._queues.clear()
        queue = self._queues.setdefault(key, _Queue())
        self._read_log(queue)
        self._ask(queue, cost)
        heap = queue.heap
        if not heap:
            return None
        _, name, number = heap[0]
        return name, self._by_number[number].state

    def _read_log(self, queue: _Queue[Price]) -> None:
        """Put the states that are new since the last time into the backlog."""
        start = queue.position - self._log_start
        if start < 0 or len(self._log) - start > 2 * len(self._by_number):
            queue.backlog = list(self._by_number)
        else:
            queue.backlog.extend(self._log[start:])
        queue.position = self._log_start + len(self._log)
        if len(self._log) > SMALLEST_LOG + 4 * len(self._by_number):
            self._log_start += len(self._log)
            self._log.clear()
        if len(queue.backlog) > SMALLEST_LOG + 4 * len(self._by_number):
            queue.backlog = [number for number in queue.backlog if number in self._by_number]
        if len(queue.heap) > SMALLEST_LOG + 4 * len(self._by_number):
            queue.prices = {number: price for number, price in queue.prices.items() if number in self._by_number}
            queue.rounds = {number: queue.rounds[number] for number in queue.prices}
            queue.heap = [(price, self._by_number[number].first(), number) for number, price in queue.prices.items()]
            heapq.heapify(queue.heap)

    def _ask(self, queue: _Queue[Price], cost: Cost[State, Price]) -> None:
        """Ask the backlog for its costs until enough is asked and the heap's first entry is a live one."""
        asked, most = 0, self._most_asked
        heap, backlog, prices, by_number = queue.heap, queue.backlog, queue.prices, self._by_number
        while backlog:
            if most is not None and asked >= most:
                self._put_right(queue, cost)
                if heap:
                    return
            number = backlog.pop()
            found = by_number.get(number)
            if found is None:
                continue
            price = prices.get(number)
            if price is None:
                price = cost(found.state)
                if price is None:
                    continue
                asked += 1
                prices[number] = price
                queue.rounds[number] = self._round
            heapq.heappush(heap, (price, found.first(), number))
        self._put_right(queue, cost)

    def _put_right(self, queue: _Queue[Price], cost: Cost[State, Price]) -> None:
        """Make the heap's first entry one of a live class under its first name, and of this round if it can be."""
        heap, asked = queue.heap, 0
        while heap:
            price, name, number = heap[0]
            found = self._by_number.get(number)
            if found is None:
                heapq.heappop(heap)
                queue.prices.pop(number, None)
                queue.rounds.pop(number, None)
            elif price != queue.prices[number]:
                heapq.heappop(heap)
            elif queue.rounds[number] != self._round and (self._most_asked is None or asked < self._most_asked):
                asked += 1
                queue.rounds[number] = self._round
                anew = cost(found.state)
                if anew is None:
                    heapq.heappop(heap)
                    del queue.prices[number], queue.rounds[number]
                else:
                    queue.prices[number] = anew
                    heapq.heapreplace(heap, (anew, found.first(), number))
            elif found.first() != name:
                heapq.heapreplace(heap, (price, found.first(), number))
            else:
                return

    def _leave(self, old: _StateClass[State], name: str) -> None:
        old.members.discard(name)
        if not old.members:
            del self._classes[old.state]
            del self._by_number[old.number]
