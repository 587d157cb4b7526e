# SPDX-License-Identifier: Apache-2.0
"""The rule of MIG placement (reference 5.2): which instances fit together, and where one more goes.

The planner and the simulated hosts of the lab use this statement of the rule. The independent second one, with which
the tests compare it, is the kernel module's `mig_rules.c` (docs/decisions/lab-rules.md).
A set of instances is valid when their ranges do not overlap, each begins at a start of its profile, compute slices add
up to at most those there are, each profile stays within its maximum, and at most one has the media engines.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


@dataclass(frozen=True)
class Part:
    """A profile as the rule sees it: of a GPU instance in memory slots, of a compute instance in compute slices."""

    name: str
    slices: int
    size: int
    starts: tuple[int, ...]
    max_count: int

    @property
    def takes_media(self) -> bool:
        """True if the profile has the media engines, by the end of its name."""
        return self.name.endswith(("+me", "+me.all"))


class Limit(StrEnum):
    """The limits that do not depend on where instances lie."""

    COUNT = "count"
    SLICES = "slices"
    MEDIA = "media"


def window(start: int, size: int) -> int:
    """A bit for each memory slot (or compute slice) of a range."""
    return ((1 << size) - 1) << start


def exceeded(slices: int, parts: Sequence[Part]) -> tuple[Limit, Part] | None:
    """The first limit that these instances exceed together, with a profile that does; None when they keep all.

    slices: of compute that there are.
    """
    for part, count in Counter(parts).items():
        if count > part.max_count:
            return Limit.COUNT, part
    if sum(part.slices for part in parts) > slices:
        return Limit.SLICES, parts[-1]
    with_media = [part for part in parts if part.takes_media]
    return (Limit.MEDIA, with_media[-1]) if len(with_media) > 1 else None


def search(wanted: Sequence[tuple[Part, Sequence[int]]], taken: int = 0) -> list[int] | None:
    """Find a start for every instance, from its own list of starts; None when they do not fit.

    taken: a bit for each slot that is not free. Limits are not looked at. Depth first in the order given; states of
    the slots from which the rest did not fit are remembered.
    """
    dead: set[tuple[int, int]] = set()
    chosen: list[int] = []

    def fits(index: int, taken: int) -> bool:
        if index == len(wanted):
            return True
        if (index, taken) in dead:
            return False
        part, starts = wanted[index]
        for start in starts:
            bits = window(start, part.size)
            if bits & taken:
                continue
            chosen.append(start)
            if fits(index + 1, taken | bits):
                return True
            chosen.pop()
        dead.add((index, taken))
        return False

    return chosen if fits(0, taken) else None


@dataclass(frozen=True)
class Space:
    """The space of instances: a GPU's memory slots, or a GPU instance's compute slices.

    slices: of compute that there are. placed: (part, start) of each instance.
    """

    slices: int
    parts: tuple[Part, ...]
    placed: tuple[tuple[Part, int], ...] = ()

    def fits_at(self, part: Part, start: int) -> bool:
        """True if one more instance can begin at a start of its profile."""
        return self._allows(part) and self._is_free(part, start)

    def remaining(self, part: Part) -> int:
        """How many more fit together; starts rise and sizes are equal, so taking each that is free is best."""
        found, end = 0, 0
        for start in part.starts:
            if start >= end and self._is_free(part, start) and self._allows(*[part] * (found + 1)):
                found, end = found + 1, start + part.size
        return found

    def first_start(self, part: Part) -> int | None:
        """The lowest start: the driver's choice for a compute instance."""
        return next((start for start in part.starts if self.fits_at(part, start)), None)

    def best_start(self, part: Part) -> int | None:
        """The start that takes the fewest places from others, of equals the lowest: the choice for a GPU instance.

        It gives the order seen on real boards: seven 1g at 6, 4, 5, 0, 1, 2, 3, and two 3g at 4, 0.
        """
        fitting = [start for start in part.starts if self.fits_at(part, start)]
        return min(fitting, key=lambda start: (self._places_taken(window(start, part.size)), start), default=None)

    @cached_property
    def _taken(self) -> int:
        return sum(window(start, part.size) for part, start in self.placed)

    def _allows(self, *more: Part) -> bool:
        return exceeded(self.slices, [*(part for part, _ in self.placed), *more]) is None

    def _is_free(self, part: Part, start: int) -> bool:
        return not window(start, part.size) & self._taken

    def _places_taken(self, bits: int) -> int:
        return sum(
            bool(window(start, part.size) & bits) and self._is_free(part, start)
            for part in self.parts
            for start in part.starts
        )
