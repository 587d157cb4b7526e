# SPDX-License-Identifier: Apache-2.0
"""The best moves that were found on a board, and what is proven of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from vgpuctl.scheduler.defrag.board import MoveBoard, Step
from vgpuctl.scheduler.defrag.bound import Bound
from vgpuctl.scheduler.defrag.search import SLACK, Limits, RoomSearch, fewest_to_leave

FIRST_WAYS = 6
"""Ways to begin that are tried, the cheapest first."""

SMALL = 12
"""VMs that may move of a fleet where all orders of moves are tried when a proof is missing."""

NODES = 3000
"""States looked at then."""


@dataclass(frozen=True)
class Solution:
    """Moves in order. before, room: wanted VMs that fit without and with them.

    most_room: no plan within the limits makes room for more, or not for more than were wanted.
    fewest_moves: no plan makes room for as many with fewer.
    """

    steps: tuple[Step, ...]
    before: int
    room: int
    most_room: int
    fewest_moves: int

    @property
    def is_optimal(self) -> bool:
        """True if it is proven that nothing is better."""
        return self.room == self.most_room and len(self.steps) == self.fewest_moves


def solve(board: MoveBoard, wanted: int | None, limits: Limits, nodes: int = NODES) -> Solution:
    """Make room for so many wanted VMs (None: for as many as possible) with few moves, then short downtimes.

    The board is left at its start. nodes: for trying all orders on a small board; 0 where that proves nothing.
    """
    before, everyone = board.room(), _room_of_all(board)
    target = everyone if wanted is None else min(wanted, everyone)
    if target <= before:
        return Solution((), before, before, max(before, target), 0)
    attempts = _BestMoves(board, RoomSearch(board, limits), before)
    bound: Bound | None = None
    if wanted is not None:
        attempts.run(target)
        attempts.fewest = ceil(fewest_to_leave(board, attempts.room - before) - SLACK)
    if attempts.room < target:
        bound = Bound(board, target)
        target = bound.most_room(limits.moves, attempts.room) if bound.is_complete else target
        attempts.run(target)
    for priced in (False, True):
        if priced and not attempts.is_done(target) and attempts.room > before:
            bound = bound or Bound(board, target)
            if not bound.is_complete:
                break
            attempts.fewest = bound.fewest_moves(attempts.room, len(attempts.best))
            board.set_prices([bound.price_of(one) for one in range(len(board.pieces))])
        for skipped in range(FIRST_WAYS):
            if attempts.is_done(target):
                break
            known = attempts.room
            attempts.run(target, skipped)
            if attempts.room > known and bound is not None and bound.is_complete:
                attempts.fewest = bound.fewest_moves(attempts.room, len(attempts.best))
    board.set_prices([1.0] * len(board.pieces))
    if nodes and len(board.pieces) <= SMALL and not attempts.is_done(target):
        target = attempts.try_all(target, nodes)
    return Solution(tuple(attempts.best), before, attempts.room, target, attempts.fewest)


class _BestMoves:
    """The best moves of several searches. fewest: proven for their room."""

    def __init__(self, board: MoveBoard, search: RoomSearch, room: int) -> None:
        self.board = board
        self.search = search
        self.best: list[Step] = []
        self.room = room
        self.fewest = 0

    def is_done(self, target: int) -> bool:
        """True if nothing better is possible."""
        return self.room >= target and len(self.best) <= self.fewest

    def run(self, target: int, skipped: int = 0) -> None:
        """Search once, and keep what is better. The board is left at its start."""
        self.search.clear_hosts(target, skipped)
        reached = self.board.room()
        steps = self.search.trim(reached)
        if _worth(self.board, reached, steps) > _worth(self.board, self.room, self.best):
            self.best, self.room = steps, reached
        self.board.undo_to(0)

    def try_all(self, target: int, nodes: int) -> int:
        """Try every order of moves. Returns for how many there is room at most, as far as that is proven."""
        deepest = min(self.search.limits.moves, 2 * len(self.board.pieces))
        while self.room < target:
            steps, is_proven = self.search.try_all(target, int(deepest), nodes)
            if steps is not None:
                self.best, self.room, self.fewest = steps, target, len(steps)
            elif is_proven and deepest == self.search.limits.moves:
                target -= 1
            else:
                break
        if self.fewest < len(self.best):
            steps, is_proven = self.search.try_all(self.room, len(self.best) - 1, nodes)
            self.best = self.best if steps is None else steps
            self.fewest = len(self.best) if is_proven or steps is not None else self.fewest
        return target


def _worth(board: MoveBoard, room: int, steps: Sequence[Step]) -> tuple[float, ...]:
    return (room, -len(steps), -sum(board.pieces[one.piece].downtime_s for one in steps))


def _room_of_all(board: MoveBoard) -> int:
    """How many wanted VMs would fit if every VM that may move were gone."""
    host_room = 0
    for host in board.wanted.hosts:
        shares = 0
        for card in board.cards_of[host]:
            shares += max(board.rules.room(one.state) for one in board.removals(card))
        host_room += shares // board.wanted.each
    return host_room
