# SPDX-License-Identifier: Apache-2.0
"""Proofs that no plan does with fewer moves, or makes more room: the Lagrangian bound of the packing problem.

Each card takes one of its ways: some VMs leave it, others come, some room is left. The cards are tied together by
three conditions alone: as many shares of a kind come somewhere as leave, a kind uses as many cards as it needs when
all are full of it (rounded up, a cut of Chvatal), and the room is as large as wanted. With
prices on these conditions every card is on its own, and any prices give a valid bound (Geoffrion 1974); they are
found by column generation (`master`). What VMs need beside cards, hosts that a VM may not go to, and the
order of the moves are left out, so the bound holds for the fleet as it is.
"""

from collections import Counter
from dataclasses import dataclass
from math import ceil, floor, isinf

from vgpuctl.scheduler.defrag.board import Kind, MoveBoard, State
from vgpuctl.scheduler.defrag.master import raise_bound

MOST_STATES = 6000
"""States of cards that are looked at; beyond it only the VMs that must leave are counted."""

ROUNDS = 400
"""Prices that are tried for one bound."""

SLACK = 1e-6


@dataclass(frozen=True)
class _Way:
    """A card without some of its VMs. left, kept: how many shares of each kind left it, and stayed."""

    cost: float
    left: tuple[tuple[int, int], ...]
    kept: tuple[tuple[int, int], ...]
    state: int


@dataclass
class _Outcome:
    """Of all cards at some prices: value, moves, room, how many more of each kind leave than
    come, and how many cards each kind uses."""

    value: float
    moves: float
    room: float
    surplus: list[float]
    used: list[float]


class Bound:
    """Bounds for the board as it is now. most: wanted VMs, beyond which more room does not count.

    is_complete: false where the cards have too many states, so that nothing is proven.
    """

    def __init__(self, board: MoveBoard, most: int) -> None:
        self._board = board
        self._top = most * board.wanted.each
        self._kinds: dict[Kind, int] = {}
        self._numbers: dict[tuple[State, frozenset[int]], int] = {}
        self._rooms: list[int] = []
        self._edges: list[list[tuple[int, int]]] = []
        self.is_complete = True
        for parts in board.parts:
            for part in parts:
                self._kinds.setdefault(part.kind, len(self._kinds))
        ways = [self._ways_of(card) for card in range(len(board.states))]
        self.is_complete = self.is_complete and self._explore()
        self._order = self._fullest_first() if self.is_complete else []
        self.prices: list[float] = []
        self._present = [present for _, present in self._numbers]
        self._groups = self._group(ways)
        self._fewest_cards = self._count_cards(ways) if self.is_complete else []

    def fewest_moves(self, wanted: int, known: float) -> int:
        """No plan makes room for so many with fewer moves. known: moves that suffice; the proof may end there."""

        def measure(prices: list[float]) -> tuple[float, list[float]]:
            *kinds, room = prices
            found = self._all(1.0, kinds, room)
            return found.value + room * wanted, [*self._missed(found), wanted - found.room]

        start = [0.0] * (2 * len(self._kinds)) + [known / max(1, wanted)]
        best, self.prices = raise_bound(measure, start, known, known - 1 + SLACK, ROUNDS)
        return max(0, ceil(best - SLACK))

    def most_room(self, moves: float, known: int) -> int:
        """No plan with so many moves makes room for more. known: the room that can be had."""

        def measure(prices: list[float]) -> tuple[float, list[float]]:
            *kinds, cost = prices
            found = self._all(cost, kinds, 1.0)
            limit = 0.0 if isinf(moves) else cost * moves
            return found.value - limit, [*self._missed(found), 0.0 if isinf(moves) else found.moves - moves]

        start = [0.0] * (2 * len(self._kinds) + 1)
        best, self.prices = raise_bound(measure, start, -float(known), -known - 1 + SLACK, ROUNDS)
        return max(known, floor(-best + SLACK))

    def _missed(self, found: _Outcome) -> list[float]:
        """By how much the conditions are missed: the shares of each kind, and the cards that it uses at least."""
        return [*found.surplus, *(least - used for least, used in zip(self._fewest_cards, found.used, strict=True))]

    def _count_cards(self, ways: list[list[_Way]]) -> list[int]:
        """How many cards each kind uses at least: its shares, by the most that one card takes."""
        found = []
        for kind in range(len(self._kinds)):
            more = [0] * len(self._rooms)
            for number in self._order:
                more[number] = max((more[to] + (one == kind) for one, to in self._edges[number]), default=0)
            total = sum(dict(card[0].kept).get(kind, 0) for card in ways)
            most = max(dict(one.kept).get(kind, 0) + more[one.state] for card in ways for one in card)
            found.append(ceil(total / max(1, most)))
        return found

    def price_of(self, piece: int) -> float:
        """What moving a VM costs at the last prices: a move, and the places of its shares elsewhere."""
        return 1.0 + sum(self.prices[self._kinds[part.kind]] for part in self._board.parts[piece])

    def _ways_of(self, card: int) -> list[_Way]:
        ways, board = [], self._board
        removals = board.removals(card)
        for one in removals:
            left, kept = Counter[int](), Counter[int]()
            for piece in board.on_card[card]:
                own = [self._kinds[part.kind] for part in board.parts[piece] if part.card == card]
                (left if piece in one.pieces else kept).update(own)
            number = self._number(one.state, frozenset(kept))
            ways.append(_Way(one.cost, tuple(sorted(left.items())), tuple(sorted(kept.items())), number))
        if len(board.on_card[card]) > 1 and len(removals) == 2:
            # Too many sets: nothing is known but that the card is emptied at best, by one VM at least.
            shares = max(len(board.parts[one]) for one in board.on_card[card])
            number = self._number(removals[1].state, frozenset(kind for kind, _ in ways[0].kept))
            ways[1] = _Way(1.0 / shares, (), ways[0].kept, number)
        return ways

    def _number(self, state: State, present: frozenset[int]) -> int:
        key = (state, present)
        if key not in self._numbers:
            self._numbers[key] = len(self._rooms)
            self._rooms.append(min(self._top, self._board.rules.room(state)))
            self._edges.append([])
        return self._numbers[key]

    def _explore(self) -> bool:
        """Find all states that shares lead to which come. False when there are too many."""
        states = list(self._numbers)
        for state, present in states:
            number = self._numbers[state, present]
            for kind, index in self._kinds.items():
                for after, _ in self._board.rules.fits(state, kind):
                    key = (after, present | {index})
                    if key not in self._numbers:
                        if len(states) >= MOST_STATES:
                            return False
                        states.append(key)
                    self._edges[number].append((index, self._number(*key)))
        return True

    def _fullest_first(self) -> list[int]:
        """The states in an order in which those come first that others lead to."""
        order: list[int] = []
        done = [False] * len(self._rooms)
        for start in range(len(self._rooms)):
            stack = [(start, 0)]
            while stack:
                number, at = stack.pop()
                if done[number]:
                    continue
                if at < len(self._edges[number]):
                    stack += [(number, at + 1), (self._edges[number][at][1], 0)]
                else:
                    done[number] = True
                    order.append(number)
        return order

    def _group(self, ways: list[list[_Way]]) -> list[tuple[int, list[tuple[list[_Way], bool]]]]:
        """The cards that count together, alike ones once: how often, and the ways of each and whether its room counts.

        Where a wanted VM has several shares the cards of a host are together, else each is alone.
        """
        board = self._board
        units = [[card] for card in range(len(board.states))] if board.wanted.each == 1 else board.cards_of
        found: dict[object, tuple[int, list[tuple[list[_Way], bool]]]] = {}
        for cards in units:
            unit = [(ways[card], board.host_of[card] in board.wanted.hosts) for card in cards]
            key = tuple(sorted(repr(one) for one in unit))
            count = found[key][0] if key in found else 0
            found[key] = (count + 1, unit)
        return list(found.values())

    def _all(self, cost: float, prices: list[float], room: float) -> _Outcome:
        """The least value of all cards at these prices, where they stand on their own."""
        kinds, cards = prices[: len(self._kinds)], prices[len(self._kinds) :]
        worth = self._worth(kinds, cards)
        needed = sum(map(float.__mul__, cards, map(float, self._fewest_cards)))
        whole = _Outcome(needed, 0.0, 0.0, [0.0] * len(kinds), [0.0] * len(kinds))
        for count, unit in self._groups:
            best: dict[int, tuple[float, tuple[tuple[_Way, int], ...]]] = {0: (0.0, ())}
            for ways, counts in unit:
                options: dict[int, tuple[float, _Way]] = {}
                for way in ways:
                    paid = cost * way.cost + sum(kinds[kind] * times for kind, times in way.left)
                    paid -= sum(cards[kind] for kind, _ in way.kept)
                    gains = worth[way.state] if counts else worth[way.state][:1]
                    for shares, gain in enumerate(gains):
                        if shares not in options or paid - gain < options[shares][0]:
                            options[shares] = (paid - gain, way)
                merged: dict[int, tuple[float, tuple[tuple[_Way, int], ...]]] = {}
                for so_far, (value, chosen) in best.items():
                    for shares, (more, way) in options.items():
                        total = min(self._top, so_far + shares)
                        if total not in merged or value + more < merged[total][0]:
                            merged[total] = (value + more, (*chosen, (way, shares)))
                best = merged
            each = self._board.wanted.each
            total = min(best, key=lambda shares: best[shares][0] - room * (shares // each))
            value, chosen = best[total]
            self._count(whole, count, value - room * (total // each), total // each, chosen, prices, worth)
        return whole

    def _count(
        self,
        whole: _Outcome,
        count: int,
        value: float,
        room: int,
        chosen: tuple[tuple[_Way, int], ...],
        prices: list[float],
        worth: list[list[float]],
    ) -> None:
        whole.value += count * value
        whole.room += count * room
        for way, shares in chosen:
            whole.moves += count * way.cost
            for kind, times in way.left:
                whole.surplus[kind] += count * times
            state, gain = way.state, worth[way.state][shares]
            present = {kind for kind, _ in way.kept}
            while gain > SLACK:
                for kind, after in self._edges[state]:
                    price = prices[kind] + (0.0 if kind in present else prices[len(self._kinds) + kind])
                    if len(worth[after]) > shares and abs(price + worth[after][shares] - gain) < SLACK:
                        whole.surplus[kind] -= count
                        present.add(kind)
                        state, gain = after, worth[after][shares]
                        break
                else:
                    break
            for kind in present:
                whole.used[kind] += count

    def _worth(self, kinds: list[float], cards: list[float]) -> list[list[float]]:
        """By state: the most that shares which come are worth, with room left for 0, 1, … wanted shares."""
        worth: list[list[float]] = [[]] * len(self._rooms)
        for number in self._order:
            own, present = [0.0] * (self._rooms[number] + 1), self._present[number]
            for kind, after in self._edges[number]:
                price = kinds[kind] if kind in present else kinds[kind] + cards[kind]
                if price <= 0:
                    continue
                for shares, gain in enumerate(worth[after]):
                    if shares < len(own) and price + gain > own[shares]:
                        own[shares] = price + gain
            worth[number] = own
        return worth
