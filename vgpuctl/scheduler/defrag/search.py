# SPDX-License-Identifier: Apache-2.0
"""A few moves that make as much room as is wanted: the cheapest hosts are cleared one after the other.

A VM that has no place gets one by moving others first. Every move has its place when its turn comes, so the moves are
in an order in which they can be made, and a circle of VMs goes through a free place or not at all.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import inf

from vgpuctl.scheduler.defrag.board import Clearing, HeldPart, MoveBoard, State, Step

MOST_CHOICES = 12
"""Cards that are looked at to make a place for a VM that has none."""

MOST_TRIES = 1500
"""Moves that are tried in one search."""

DEEPEST = 2
"""How long a chain of VMs may be that move so that one of them has a place."""

SLACK = 1e-6
"""By how much sums of parts of moves may be wrong."""


@dataclass(frozen=True)
class Limits:
    """Most moves in all, of one tenant's VMs, and seconds that VMs are down, all added up."""

    moves: float = inf
    moves_of_tenant: float = inf
    downtime_s: float = inf


NO_LIMITS = Limits()


class RoomSearch:
    """A search on one board, which is left with the moves of the last plan."""

    def __init__(self, board: MoveBoard, limits: Limits) -> None:
        self.board = board
        self.limits = limits
        self._nodes = 0
        everywhere = frozenset(range(len(board.free)))
        self._spare = 0
        self._tries = MOST_TRIES
        self._is_bound = any(one.hosts != everywhere for one in board.pieces)

    def clear_hosts(self, wanted: int, skipped: int = 0) -> list[Step]:
        """Clear hosts until so many wanted VMs fit, as far as that goes. skipped: of the first host's ways.

        The board is left as it is then.
        """
        board = self.board
        self._tries = MOST_TRIES
        failed: set[Hashable] = set()
        while (missing := wanted - board.room()) > 0:
            ways, skipped = self._ways(missing)[skipped:], 0
            if not any(self._try(way, depth, failed) for depth in range(DEEPEST + 1) for way in ways):
                break
        return list(board.steps)

    def _try(self, way: Clearing, depth: int, failed: set[Hashable]) -> bool:
        """Clear a host. False, with the board as it was, when its VMs have no places or that makes no more room."""
        board, looks = self.board, (depth, self._looks(way))
        if looks in failed:
            return False
        count, before = len(board.steps), board.room()
        if self._clear(way, depth) and board.room() > before:
            return True
        board.undo_to(count)
        failed.add(looks)
        return False

    def _ways(self, missing: int) -> list[Clearing]:
        """Ways to make more room, those that cost least for each wanted VM first."""
        board = self.board
        found = [one for host in range(len(board.free)) for one in board.clearings(host, missing)]
        return sorted(found, key=lambda one: (one.cost / one.room, one.cost, self._down(one), one.host))

    def _looks(self, way: Clearing) -> Hashable:
        """Equal for ways of which, when one fails, the other does."""
        board = self.board
        vms = [(sorted(repr(part.block) for part in board.parts[one]), board.pieces[one].needs) for one in way.pieces]
        hosts = frozenset(board.pieces[one].hosts - {way.host} for one in way.pieces) if self._is_bound else None
        return tuple(board.states[card] for card in board.cards_of[way.host]), tuple(sorted(map(repr, vms))), hosts

    def _down(self, way: Clearing) -> float:
        return sum(self.board.pieces[one].downtime_s for one in way.pieces)

    def _clear(self, way: Clearing, depth: int) -> bool:
        board = self.board
        self._spare = way.room - 1
        closed = frozenset(part.card for one in way.pieces for part in board.parts[one])
        order = sorted(way.pieces, key=lambda one: (-len(board.parts[one]), -sum(board.pieces[one].needs), one))
        return all(self._relocate(one, closed, depth) for one in order)

    def _relocate(self, piece: int, closed: frozenset[int], depth: int) -> bool:
        """Move a VM to where it costs least room, and others before it where it has no place."""
        if not self.may_move(piece) or not self._tries:
            return False
        self._tries -= 1
        board = self.board
        best: tuple[tuple[float, ...], tuple[HeldPart, ...], dict[int, State]] | None = None
        seen = set()
        for host in range(len(board.free)):
            for parts, states in board.places(piece, host, closed):
                kept = sum(len(board.on_card[one]) for one in states)
                looks = (*states.items(),) if len(states) > 1 else (*states.values(), *board.free[host], kept)
                if looks in seen and board.wanted.each == 1:
                    continue
                seen.add(looks)
                cost = (self._lost(host, piece, states), -kept)
                if cost[0] <= self._spare and (best is None or cost < best[0]):
                    best = (cost, parts, states)
        if best is not None:
            self._spare -= int(best[0][0])
            board.move(piece, best[1], best[2])
            return True
        return depth > 0 and self._make_place(piece, closed, depth)

    def _lost(self, host: int, piece: int, states: dict[int, State]) -> int:
        """How many fewer wanted VMs fit on a host with a VM more."""
        board = self.board
        if host not in board.wanted.hosts:
            return 0
        before = board.room_on(host)
        if not before:
            return 0
        old = {card: board.states[card] for card in states}
        for card, state in states.items():
            board.states[card] = state
        free = board.free[host]
        board.free[host] = [left - need for left, need in zip(free, board.pieces[piece].needs, strict=True)]
        after = board.room_on(host)
        board.free[host] = free
        for card, state in old.items():
            board.states[card] = state
        return before - after

    def _make_place(self, piece: int, closed: frozenset[int], depth: int) -> bool:
        """Move others away from a card so that a VM of one share has a place there."""
        board = self.board
        if len(board.parts[piece]) != 1:
            return False
        kind = board.parts[piece][0].kind
        ways: dict[Hashable, tuple[float, int, frozenset[int]]] = {}
        for card, host in enumerate(board.host_of):
            if card in closed or host == board.host(piece) or host not in board.pieces[piece].hosts:
                continue
            fitting = [one for one in board.removals(card) if one.pieces and board.rules.fits(one.state, kind)]
            if fitting:
                way = min(fitting, key=lambda one: one.cost)
                ways.setdefault((board.states[card], *board.free[host]), (way.cost, card, way.pieces))
        for _, card, pieces in sorted(ways.values(), key=lambda one: one[:2])[:MOST_CHOICES]:
            count, host, spare = len(board.steps), board.host_of[card], self._spare
            if all(self._relocate(one, closed | {card}, depth - 1) for one in sorted(pieces)):
                others = frozenset(range(len(board.states))) - {card}
                for parts, states in board.places(piece, host, others):
                    lost = self._lost(host, piece, states)
                    if lost <= self._spare and self.may_move(piece):
                        self._spare -= lost
                        board.move(piece, parts, states)
                        return True
            board.undo_to(count)
            self._spare = spare
        return False

    def may_move(self, piece: int) -> bool:
        """True if one more move, of this VM, is within the limits."""
        pieces, steps = self.board.pieces, self.board.steps
        if len(steps) >= self.limits.moves:
            return False
        down = sum(pieces[one.piece].downtime_s for one in steps) + pieces[piece].downtime_s
        own = sum(pieces[one.piece].tenant == pieces[piece].tenant for one in steps)
        return down <= self.limits.downtime_s and own < self.limits.moves_of_tenant

    def trim(self, wanted: int) -> list[Step]:
        """The moves on the board without those that the wanted room does not need; the later ones go first."""
        steps = list(self.board.steps)
        for at in range(len(steps) - 1, -1, -1):
            rest = [*steps[:at], *steps[at + 1 :]]
            if self.replay(rest) and self.board.room() >= wanted:
                steps = rest
        self.replay(steps)
        return steps

    def replay(self, steps: list[Step]) -> bool:
        """Make these moves from the start. False, with the board somewhere between, when one has no place."""
        board = self.board
        board.undo_to(0)
        for step in steps:
            host = board.host_of[step.after[0].card]
            closed = frozenset(board.cards_of[host]) - {part.card for part in step.after}
            places = board.places(step.piece, host, closed)
            if not places:
                return False
            board.move(step.piece, *places[0])
        return True

    def try_all(self, wanted: int, most: int, nodes: int) -> tuple[list[Step] | None, bool]:
        """Try all orders of at most so many moves. The fewest that are enough, and whether none was left out.

        nodes: states looked at before it gives up. The board is left at its start.
        """
        self._nodes = nodes
        found = None
        for limit in range(most + 1):
            if self._deepen(wanted, limit, {}) or self._nodes <= 0:
                found = list(self.board.steps) if self.board.room() >= wanted else None
                break
        self.board.undo_to(0)
        return found, self._nodes > 0

    def _deepen(self, wanted: int, left: int, seen: dict[object, int]) -> bool:
        board = self.board
        missing = wanted - board.room()
        if missing <= 0:
            return True
        self._nodes -= 1
        key = tuple(board.parts)
        if self._nodes <= 0 or seen.get(key, -1) >= left or fewest_to_leave(board, missing) > left + SLACK:
            return False
        seen[key] = left
        count = len(board.steps)
        for piece, parts, states in self._moves():
            board.move(piece, parts, states)
            if self._deepen(wanted, left - 1, seen):
                return True
            board.undo_to(count)
        return False

    def _moves(self) -> Iterator[tuple[int, tuple[HeldPart, ...], dict[int, State]]]:
        board = self.board
        for piece in range(len(board.pieces)):
            if self.may_move(piece):
                for host in range(len(board.free)):
                    for parts, states in board.places(piece, host, frozenset()):
                        yield piece, parts, states


def fewest_to_leave(board: MoveBoard, missing: int) -> float:
    """A lower bound of the moves for so many more wanted VMs: how few VMs must leave their cards; infinite for never.

    A knapsack over hosts: O(hosts x missing^2). What VMs need beside cards is left out.
    """
    best = [0.0] + [inf] * missing
    for host in sorted(board.wanted.hosts):
        costs = [cost for cost, _ in board.cheapest(host, missing)]
        for total in range(missing, 0, -1):
            for more in range(1, min(total, len(costs) - 1) + 1):
                best[total] = min(best[total], best[total - more] + costs[more])
    return best[missing]
