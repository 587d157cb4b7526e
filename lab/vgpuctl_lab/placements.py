# SPDX-License-Identifier: Apache-2.0
"""Placement ids of mixed-size mode: at which GiB of its region a vGPU of one type may begin (reference 3.3)."""

from enum import Enum, auto

from vgpuctl.catalog import Board

_SMALLEST_PART = 16
_HALVED_48_GIB = frozenset({8, 32})
_ADA_48_GIB = frozenset(place for start in range(2, 48, 6) for place in (start, start + 1))


class Layout(Enum):
    """How places lie: halves of halves (before Ada), the same with fewer for 1 GiB types, equal parts (Blackwell)."""

    HALVES = auto()
    HALVES_ADA = auto()
    EVEN = auto()


def layout_of(board: Board) -> Layout:
    """The layout of a board's architecture."""
    if board.architecture.startswith("Blackwell"):
        return Layout.EVEN
    return Layout.HALVES_ADA if board.architecture in ("Ada Lovelace", "Hopper") else Layout.HALVES


def placements(layout: Layout, region_gib: int, size_gib: int, most: int) -> tuple[int, ...]:
    """The ids at which a vGPU of a size may begin. most: instances of its type on the region."""
    if layout is Layout.EVEN:
        return tuple(sorted({region_gib * number // most for number in range(most)}))
    power = 1 << (most.bit_length() - 1)
    found: set[int] = set()

    def halve(low: int, high: int, parts: int, *, is_left: bool) -> None:
        if parts > _SMALLEST_PART:
            return
        both = 2 * parts == most
        one = (power < most and power == parts) or (parts == 1 and most == 1)
        if both or (one and is_left):
            found.add(low)
        if (both or (one and not is_left)) and high >= size_gib:
            found.add(high - size_gib)
        middle = (low + high) // 2
        halve(low, middle, 2 * parts, is_left=True)
        halve(middle, high, 2 * parts, is_left=False)

    halve(0, region_gib, 1, is_left=True)
    if (region_gib, size_gib) == (48, 1):
        found -= _HALVED_48_GIB if layout is Layout.HALVES else _ADA_48_GIB
    return tuple(sorted(found))
