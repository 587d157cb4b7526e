# SPDX-License-Identifier: Apache-2.0
"""Cards in states, the VMs on them, and how few VMs must leave a host before a wanted VM fits there."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

State = Hashable
"""Everything that is taken on one card."""

Kind = Hashable
"""What a share asks of a card."""

Block = Hashable
"""One share, as the state of its card knows it."""

Place = tuple[tuple["HeldPart", ...], dict[int, State]]
"""Where a VM could go, and the states of these cards with it."""

MOST_SETS = 600
"""States of one card without some of its VMs that are told apart; those of fewer VMs come first."""


class CardRules(Protocol):
    """What the cards take."""

    def fits(self, state: State, kind: Kind) -> Sequence[tuple[State, Block]]:
        """The states with one more share of a kind, and that share; the one that the scheduler chooses is first."""

    def without(self, state: State, block: Block) -> State:
        """The state after a share was released."""

    def room(self, state: State) -> int:
        """How many wanted shares the card takes."""


class HeldPart(NamedTuple):
    """One share of a VM on a card. card: its number on the board."""

    card: int
    kind: Kind
    block: Block


@dataclass(frozen=True)
class Piece:
    """A VM that may move. needs: of each resource of its host, in the order of `MoveBoard.free`.

    hosts: numbers of those it may go to.
    """

    name: str
    tenant: str
    parts: tuple[HeldPart, ...]
    needs: tuple[int, ...]
    hosts: frozenset[int]
    downtime_s: float = 0.0


@dataclass(frozen=True)
class WantedRoom:
    """The room to make: for VMs of `each` shares on one host. hosts: numbers of those on which it counts."""

    hosts: frozenset[int]
    each: int = 1
    needs: tuple[int, ...] = ()


class Step(NamedTuple):
    """One move. piece: its number. before, after: its shares."""

    piece: int
    before: tuple[HeldPart, ...]
    after: tuple[HeldPart, ...]


class Without(NamedTuple):
    """A card without some of its VMs. cost: the part of their moves that counts for this card."""

    cost: float
    pieces: frozenset[int]
    state: State


class Clearing(NamedTuple):
    """VMs that leave a host so that more wanted VMs fit there. room: how many more."""

    cost: float
    room: int
    host: int
    pieces: frozenset[int]


class MoveBoard:
    """Cards and the VMs on them, which moves change.

    states, host_of: of each card. free: of each host, what VMs may still take of each of its resources.
    """

    def __init__(
        self,
        rules: CardRules,
        states: Iterable[State],
        host_of: Iterable[int],
        free: Iterable[Sequence[int]],
        pieces: Sequence[Piece],
        wanted: WantedRoom,
    ) -> None:
        self.rules = rules
        self.states = list(states)
        self.host_of = tuple(host_of)
        self.free = [list(one) for one in free]
        self.pieces = pieces
        self.wanted = wanted
        self.parts = [one.parts for one in pieces]
        self.steps: list[Step] = []
        self.cards_of: list[list[int]] = [[] for _ in self.free]
        for card, host in enumerate(self.host_of):
            self.cards_of[host].append(card)
        self.on_card: list[set[int]] = [set() for _ in self.states]
        for number, piece in enumerate(pieces):
            for part in piece.parts:
                self.on_card[part.card].add(number)
        self._trail: list[dict[int, State]] = []
        self._removals: dict[Hashable, list[Without]] = {}
        self._cheapest: dict[Hashable, list[tuple[float, frozenset[int]]]] = {}
        self.prices: list[float] = [1.0] * len(pieces)

    def host(self, piece: int) -> int:
        """The host on which a VM is now."""
        return self.host_of[self.parts[piece][0].card]

    def room_on(self, host: int) -> int:
        """How many wanted VMs fit on a host."""
        if host not in self.wanted.hosts:
            return 0
        shares = sum(self.rules.room(self.states[card]) for card in self.cards_of[host])
        return min([shares // self.wanted.each, *self._times(self.free[host])])

    def room(self) -> int:
        """How many wanted VMs fit on all hosts."""
        return sum(map(self.room_on, range(len(self.free))))

    def _times(self, free: Sequence[int]) -> list[int]:
        """How often each resource that a wanted VM needs is there."""
        return [max(0, left) // need for need, left in zip(self.wanted.needs, free, strict=False) if need]

    def has_free(self, host: int, needs: Sequence[int]) -> bool:
        """True if the host has this much left beside its cards."""
        return all(need <= left for need, left in zip(needs, self.free[host], strict=True))

    def move(self, piece: int, after: tuple[HeldPart, ...], states: Mapping[int, State]) -> None:
        """Move a VM to another host. states: of its new cards, with it."""
        before = self.parts[piece]
        old = {part.card: self.states[part.card] for part in (*before, *after)}
        for part in before:
            self.states[part.card] = self.rules.without(self.states[part.card], part.block)
            self.on_card[part.card].discard(piece)
        for card, state in states.items():
            self.states[card] = state
            self.on_card[card].add(piece)
        self._take(piece, before, -1)
        self._take(piece, after, 1)
        self.parts[piece] = after
        self.steps.append(Step(piece, before, after))
        self._trail.append(old)

    def undo_to(self, count: int) -> None:
        """Take back all moves after the first so many."""
        while len(self.steps) > count:
            step = self.steps.pop()
            for part in step.after:
                self.on_card[part.card].discard(step.piece)
            for part in step.before:
                self.on_card[part.card].add(step.piece)
            for card, state in self._trail.pop().items():
                self.states[card] = state
            self._take(step.piece, step.after, -1)
            self._take(step.piece, step.before, 1)
            self.parts[step.piece] = step.before

    def _take(self, piece: int, parts: Sequence[HeldPart], times: int) -> None:
        free = self.free[self.host_of[parts[0].card]]
        for index, need in enumerate(self.pieces[piece].needs):
            free[index] -= times * need

    def places(self, piece: int, host: int, closed: frozenset[int]) -> list[Place]:
        """Where a VM could go on a host, with the states of the cards then: for one share each card, else the first.

        closed: cards that it may not use.
        """
        if host == self.host(piece) or host not in self.pieces[piece].hosts:
            return []
        if not self.has_free(host, self.pieces[piece].needs):
            return []
        cards = [card for card in self.cards_of[host] if card not in closed]
        kinds = [part.kind for part in self.parts[piece]]
        if len(kinds) == 1:
            found = [(card, self.rules.fits(self.states[card], kinds[0])[:1]) for card in cards]
            return [((HeldPart(card, kinds[0], one[0][1]),), {card: one[0][0]}) for card, one in found if one]
        given = self._several(kinds, cards, {})
        return [] if given is None else [given]

    def _several(
        self, kinds: Sequence[Kind], cards: Sequence[int], states: dict[int, State]
    ) -> tuple[tuple[HeldPart, ...], dict[int, State]] | None:
        """All shares of a VM on the first cards that take them together, a card of its own for each where that goes."""
        if not kinds:
            return (), states
        for card in sorted(cards, key=lambda one: one in states):
            for state, block in self.rules.fits(states.get(card, self.states[card]), kinds[0])[:1]:
                rest = self._several(kinds[1:], cards, {**states, card: state})
                if rest is not None:
                    return (HeldPart(card, kinds[0], block), *rest[0]), rest[1]
        return None

    def set_prices(self, prices: Sequence[float]) -> None:
        """Set what moving each VM costs where the cheapest are sought; 1 at the start."""
        self.prices = list(prices)
        self._removals.clear()
        self._cheapest.clear()

    def removals(self, card: int) -> list[Without]:
        """The states of a card without each set of its VMs, each with the cheapest set.

        A card with more than MOST_SETS of them is left out but for itself, and without any VM.
        """
        key = (self.states[card], frozenset(self.on_card[card]))
        if key not in self._removals:
            self._removals[key] = self._count_removals(card)
        return self._removals[key]

    def _count_removals(self, card: int) -> list[Without]:
        found: dict[State, Without] = {self.states[card]: Without(0.0, frozenset(), self.states[card])}
        for piece in sorted(self.on_card[card], key=lambda one: (self.prices[one], one)):
            for one in list(found.values()):
                longer = self._longer(one, piece, card)
                if longer.state not in found or longer.cost < found[longer.state].cost:
                    found[longer.state] = longer
            if len(found) > MOST_SETS:
                everyone = Without(0.0, frozenset(), self.states[card])
                for other in sorted(self.on_card[card]):
                    everyone = self._longer(everyone, other, card)
                return [Without(0.0, frozenset(), self.states[card]), everyone]
        return list(found.values())

    def _longer(self, one: Without, piece: int, card: int) -> Without:
        parts = self.parts[piece]
        state, own = one.state, [part.block for part in parts if part.card == card]
        for block in own:
            state = self.rules.without(state, block)
        return Without(one.cost + self.prices[piece] * len(own) / len(parts), one.pieces | {piece}, state)

    def cheapest(self, host: int, most: int) -> list[tuple[float, frozenset[int]]]:
        """The cheapest VMs to leave a host so that its cards take 0, 1, up to `most` more wanted VMs.

        The cost is a lower bound, which counts a VM with shares on several cards by these shares.
        """
        cards = self.cards_of[host]
        key = (host, most, *(self.states[card] for card in cards), *(frozenset(self.on_card[card]) for card in cards))
        before = self.room_on(host)
        if (key, before) not in self._cheapest:
            self._cheapest[key, before] = self._find_cheapest(host, before, most)
        return self._cheapest[key, before]

    def _find_cheapest(self, host: int, before: int, most: int) -> list[tuple[float, frozenset[int]]]:
        each = self.wanted.each
        top = (before + most) * each
        best: dict[int, tuple[float, frozenset[int]]] = {0: (0.0, frozenset())}
        for card in self.cards_of[host]:
            options: dict[int, Without] = {}
            for one in self.removals(card):
                room = self.rules.room(one.state)
                if room not in options or one.cost < options[room].cost:
                    options[room] = one
            merged: dict[int, tuple[float, frozenset[int]]] = {}
            for shares, (cost, pieces) in best.items():
                for room, one in options.items():
                    total = min(top, shares + room)
                    if total not in merged or cost + one.cost < merged[total][0]:
                        merged[total] = (cost + one.cost, pieces | one.pieces)
            best = merged
        found = []
        for more in range(most + 1):
            enough = [one for shares, one in best.items() if shares >= (before + more) * each]
            if not enough:
                break
            found.append(min(enough, key=lambda one: one[0]))
        return found

    def clearings(self, host: int, most: int) -> list[Clearing]:
        """The cheapest VMs that leave a host for one more wanted VM, for two more, up to `most`."""
        if host not in self.wanted.hosts or most < 1:
            return []
        before, found = self.room_on(host), []
        for more, (_, pieces) in enumerate(self.cheapest(host, most)):
            leaving = self._for_needs(host, before + more, pieces) if more else None
            if leaving is not None:
                found.append(Clearing(sum(self.prices[one] for one in leaving), more, host, leaving))
        return found

    def _for_needs(self, host: int, count: int, pieces: frozenset[int]) -> frozenset[int] | None:
        """The VMs, with others of the host until so many wanted VMs have what they need beside its cards."""
        here = {one for card in self.cards_of[host] for one in self.on_card[card]} - pieces
        free = list(self.free[host])
        for one in pieces:
            free = [left + need for left, need in zip(free, self.pieces[one].needs, strict=True)]
        while min(self._times(free), default=count) < count:
            short = [index for index, need in enumerate(self.wanted.needs) if free[index] < need * count]
            helping = [one for one in here if any(self.pieces[one].needs[index] for index in short)]
            if not helping:
                return None
            given = {one: sum(self.pieces[one].needs[at] for at in short) for one in helping}
            one = min(helping, key=lambda one: (self.prices[one], -given[one], one))
            here.discard(one)
            pieces |= {one}
            free = [left + need for left, need in zip(free, self.pieces[one].needs, strict=True)]
        return pieces
