# SPDX-License-Identifier: Apache-2.0
"""Plans of moves on small boards of MIG cards, against all plans there are."""

from collections.abc import Sequence
from functools import cache
from itertools import product
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.scheduler.defrag.board import HeldPart, MoveBoard, Piece, WantedRoom
from vgpuctl.scheduler.defrag.bound import Bound
from vgpuctl.scheduler.defrag.search import NO_LIMITS, Limits, RoomSearch, fewest_to_leave
from vgpuctl.scheduler.defrag.solve import Solution, solve

SHAPES = {"1g": (1, (0, 1, 2, 3)), "2g": (2, (0, 2)), "4g": (4, (0,))}
"""Instances of a card with four slices: how many each takes, and where it may begin."""


def _window(kind: str, start: int) -> int:
    return ((1 << SHAPES[kind][0]) - 1) << start


@cache
def _most(kind: str, mask: int) -> int:
    free = [start for start in SHAPES[kind][1] if not mask & _window(kind, start)]
    return max((1 + _most(kind, mask | _window(kind, start)) for start in free), default=0)


class Slices:
    """Cards that are bits of taken slices."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    def fits(self, state: Any, kind: Any) -> Sequence[tuple[Any, Any]]:
        starts = [one for one in SHAPES[kind][1] if not state & _window(kind, one)]
        return [(state | _window(kind, start), (kind, start)) for start in starts]

    def without(self, state: Any, block: Any) -> Any:
        return state & ~_window(*block)

    def room(self, state: Any) -> int:
        return _most(self.wanted, state)


def board_of(
    wanted: str,
    *cards: str,
    each: int = 1,
    per_host: int = 1,
    bound: Sequence[str] = (),
    needs: Sequence[int] = (),
    free: int = 0,
) -> MoveBoard:
    """A board of cards such as `a1..` or `.bb.`: a letter for each VM, `#` for what never moves.

    bound: VMs that may go nowhere. needs, free: memory of each VM in order of its letter, and of each host.
    """
    masks = [sum(1 << at for at, one in enumerate(card) if one != ".") for card in cards]
    hosts = range(-(-len(cards) // per_host))
    names = sorted({one for card in cards for one in card} - {".", "#"})
    pieces = []
    for index, name in enumerate(names):
        (card,) = [number for number, text in enumerate(cards) if name in text]
        start, size = cards[card].index(name), cards[card].count(name)
        kind = next(one for one, shape in SHAPES.items() if shape[0] == size)
        where = frozenset[int]() if name in bound else frozenset(hosts)
        own = (needs[index],) if needs else ()
        pieces.append(Piece(name, name.lower(), (HeldPart(card, kind, (kind, start)),), own, where, 10.0 + index))
    host_of = [number // per_host for number in range(len(cards))]
    memory = [[free] if needs else [] for _ in hosts]
    return MoveBoard(Slices(wanted), masks, host_of, memory, pieces, WantedRoom(frozenset(hosts), each))


def moves(found: Solution, board: MoveBoard) -> list[tuple[str, int]]:
    """Each VM that moves, and its new card."""
    return [(board.pieces[one.piece].name, one.after[0].card) for one in found.steps]


def fewest_by_force(board: MoveBoard, wanted: int, limits: Limits = NO_LIMITS, most: int = 3) -> float:
    """The fewest moves that make room for so many, by trying every sequence of them."""
    if board.room() >= wanted:
        return 0
    search, seen = RoomSearch(board, limits), set[Any]()
    edge: list[tuple[Any, ...]] = [()]
    for count in range(1, most + 1):
        later: list[tuple[Any, ...]] = []
        for path in edge:
            for piece, host in product(range(len(board.pieces)), range(len(board.free))):
                board.undo_to(0)
                for step in path:
                    board.move(*step)
                if not search.may_move(piece):
                    continue
                for parts, states in board.places(piece, host, frozenset()):
                    board.move(piece, parts, states)
                    if board.room() >= wanted:
                        board.undo_to(0)
                        return count
                    if tuple(board.parts) not in seen:
                        seen.add(tuple(board.parts))
                        later.append((*path, (piece, parts, states)))
                    board.undo_to(len(path))
        edge = later
    board.undo_to(0)
    return inf


CARDS = st.sampled_from(
    ["....", "a...", "aab.", "a.b.", "..aa", "aabb", "abc.", "aaaa", "#...", "a#..", "aa.b", ".a.b"]
)


@given(st.lists(CARDS, min_size=2, max_size=3), st.sampled_from(["1g", "2g", "4g"]), st.integers(1, 2))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_no_sequence_of_moves_is_better_than_the_plan(cards: list[str], wanted: str, more: int) -> None:
    renamed = []
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    for card in cards:
        names = {one: one if one in ".#" else next(letters) for one in dict.fromkeys(card)}
        renamed.append("".join(names[one] for one in card))
    board = board_of(wanted, *renamed)
    target = board.room() + more
    limits = Limits(moves=3)
    known = fewest_by_force(board, target)
    found = solve(board, target, limits)
    assert not board.steps
    if known <= limits.moves:
        assert (found.room >= target, len(found.steps)) == (True, known)
    else:
        assert found.room < target
    assert found.is_optimal
    # What is proven without trying everything is never wrong.
    if known <= limits.moves:
        assert fewest_to_leave(board, more) <= known
        assert Bound(board, target).fewest_moves(target, int(known)) <= known
        assert Bound(board, target).most_room(known, board.room()) >= target


def test_the_card_with_the_fewest_vms_is_emptied() -> None:
    board = board_of("4g", "abc.", "de..", "###.")
    found = solve(board, 1, NO_LIMITS)
    assert sorted(moves(found, board)) in ([("d", 0), ("e", 2)], [("d", 2), ("e", 0)])
    assert found.is_optimal
    assert (found.before, found.room) == (0, 1)


def test_a_vm_without_a_place_gets_one_by_moving_another_first() -> None:
    board = board_of("4g", "aa##", "b.#.", "c#.#")
    found = solve(board, 1, NO_LIMITS)
    assert found.room == 0
    board = board_of("4g", "aa..", ".b#.", "c.##", "d###")
    found = solve(board, 1, NO_LIMITS)
    assert found.room == 1
    order = moves(found, board)
    assert order[-1][0] == "a"
    assert len(order) == 2


def test_two_vms_change_places_by_way_of_a_free_one_or_not_at_all() -> None:
    # `a` may leave only when `b` has left, and the other way round: host 0 and 1 have memory for one of them.
    def boards(spare: str) -> MoveBoard:
        pieces = [
            Piece("a", "t", (HeldPart(0, "2g", ("2g", 0)),), (), frozenset({0, 1, 2})),
            Piece("b", "t", (HeldPart(1, "1g", ("1g", 0)),), (), frozenset({0, 1, 2})),
        ]
        masks = [0b1111, 0b1101, sum(1 << at for at, one in enumerate(spare) if one != ".")]
        return MoveBoard(Slices("2g"), masks, range(3), [[]] * 3, pieces, WantedRoom(frozenset({0})))

    board = boards("#.##")
    found = solve(board, 1, NO_LIMITS)
    assert (found.room, moves(found, board)) == (1, [("b", 2), ("a", 1)])
    board = boards("####")
    assert solve(board, 1, NO_LIMITS).room == 0


def test_no_step_needs_what_a_later_one_frees() -> None:
    board = board_of("4g", "aab.", "c.d.", "ee..", "f#..", ".g##")
    found = solve(board, 2, NO_LIMITS)
    assert found.room == 2
    taken: list[Any] = list(board.states)
    for step in found.steps:
        (before,), (after,) = step.before, step.after
        given: Any = after.block
        released: Any = before.block
        assert not taken[after.card] & _window(*given)
        taken[after.card] |= _window(*given)
        taken[before.card] &= ~_window(*released)


@pytest.mark.parametrize(
    ("limits", "room"),
    [
        (Limits(moves=1), 1),
        (Limits(moves=0), 0),
        (Limits(downtime_s=11.0), 1),
        (Limits(downtime_s=9.0), 0),
        (Limits(moves_of_tenant=1), 2),
        (Limits(moves_of_tenant=0), 0),
    ],
)
def test_limits_are_kept_and_as_much_room_made_as_they_allow(limits: Limits, room: int) -> None:
    found = solve(board_of("4g", "a...", "b...", "##.."), 2, limits)
    assert found.room == room
    assert len(found.steps) == room


def test_of_plans_with_as_many_moves_the_shorter_downtime_is_taken() -> None:
    board = board_of("4g", "b...", "a...", "###.")
    assert [name for name, _ in moves(solve(board, 1, NO_LIMITS), board)] == ["a"]


def test_room_is_made_where_memory_is_short_and_not_cards() -> None:
    board = board_of("1g", "a...", "####", "#...", needs=(8,), free=0)
    board = MoveBoard(
        Slices("1g"), board.states, board.host_of, [[0], [0], [9]], board.pieces, WantedRoom(frozenset({0}), 1, (4,))
    )
    found = solve(board, 1, NO_LIMITS)
    assert (found.before, found.room, moves(found, board)) == (0, 2, [("a", 2)])


def test_a_vm_that_wants_two_cards_gets_them_on_one_host() -> None:
    board = board_of("4g", "a...", "....", "bc..", "....", "##..", "###.", each=2, per_host=2)
    found = solve(board, 1, NO_LIMITS)
    assert [name for name, _ in moves(found, board)] == ["a"]
    assert found.is_optimal


def test_what_may_go_nowhere_stays() -> None:
    board = board_of("4g", "a...", "bc..", "##..", bound="a")
    assert sorted(name for name, _ in moves(solve(board, 1, NO_LIMITS), board)) == ["b", "c"]


def test_as_much_room_as_can_be_is_proven_to_be_all() -> None:
    board = board_of("4g", "a...", "b...", "c...", "d...")
    found = solve(board, None, NO_LIMITS)
    assert (found.room, found.most_room, len(found.steps), found.fewest_moves) == (3, 3, 3, 3)
