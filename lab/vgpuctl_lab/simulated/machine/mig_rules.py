# SPDX-License-Identifier: Apache-2.0
"""Which MIG instances fit beside those that are there, and where a new one goes (reference 5.2).

A set of instances is valid when their ranges do not overlap, each begins at a start of its profile, compute slices add
up to at most those there are, each profile stays within its maximum, and at most one has the media engines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# By compute slices of the GPU instance: (slices, id, most, starts) of its compute-instance profiles; an id is NVML's
# constant too. NVIDIA mig-parted, known_configs.go.
_COMPUTE = {
    1: ((1, 0, 1, (0,)),),
    2: ((1, 0, 2, (0, 1)), (2, 1, 1, (0,))),
    3: ((1, 0, 3, (0, 1, 2)), (2, 1, 1, (0,)), (3, 2, 1, (0,))),
    4: ((1, 0, 4, (0, 1, 2, 3)), (2, 1, 2, (0, 2)), (4, 3, 1, (0,))),
    7: ((1, 0, 7, tuple(range(7))), (2, 1, 3, (0, 2, 4)), (3, 2, 2, (0, 4)), (4, 3, 1, (0,)), (7, 4, 1, (0,))),
}


@dataclass(frozen=True)
class Part:
    """A profile as the rules see it: of a GPU instance in memory slots, of a compute instance in compute slices."""

    id: int
    slices: int
    size: int
    most: int
    starts: tuple[int, ...]
    takes_media: bool = False


@dataclass(frozen=True)
class Space:
    """What instances lie in. slices: of compute that there are. placed: (part, start) of each instance."""

    slices: int
    parts: tuple[Part, ...]
    placed: tuple[tuple[Part, int], ...]

    def fits_at(self, part: Part, start: int) -> bool:
        """Whether one more instance can begin at a start of its profile."""
        return bool(self._allowed(part)) and self._is_free(start, part.size)

    def remaining(self, part: Part) -> int:
        """How many more fit together; starts rise and sizes are equal, so taking each that is free is best."""
        found, end, allowed = 0, 0, self._allowed(part)
        for start in part.starts:
            if found < allowed and start >= end and self._is_free(start, part.size):
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
        return min(fitting, key=lambda start: (self._places_taken(start, part.size), start), default=None)

    def _allowed(self, part: Part) -> int:
        of_this = sum(one.id == part.id for one, _ in self.placed)
        by_slices = (self.slices - sum(one.slices for one, _ in self.placed)) // part.slices
        by_most = max(part.most - of_this, 0)
        if part.takes_media and by_most:
            by_most = 0 if any(one.takes_media for one, _ in self.placed) else 1
        return min(by_slices, by_most)

    def _is_free(self, start: int, size: int) -> bool:
        return not any(overlap(start, size, other, one.size) for one, other in self.placed)

    def _places_taken(self, start: int, size: int) -> int:
        return sum(
            overlap(start, size, other, part.size) and self._is_free(other, part.size)
            for part in self.parts
            for other in part.starts
        )


def overlap(start: int, size: int, other: int, other_size: int) -> bool:
    """Whether two ranges share something."""
    return start < other + other_size and other < start + size


def compute_parts(slices: int) -> Sequence[Part]:
    """The compute-instance profiles of a GPU instance with so many compute slices."""
    return [Part(part_id, size, size, most, starts) for size, part_id, most, starts in _COMPUTE.get(slices, ())]
