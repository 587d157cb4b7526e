# SPDX-License-Identifier: Apache-2.0
"""Where a MIG instance goes: the GPU and start that lose the least of what could still be created there.

Source of the geometry: `nvidia-smi mig -lgipp`; an instance takes the memory slices from its start on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

SIZE_EXPONENT = 1.5
"""A lost fit of a profile counts its memory slices to this power."""

PACK = 0.1
"""How much a slice of an emptier GPU counts against it when nothing else differs."""


@dataclass(frozen=True)
class InstanceProfile:
    """A GPU instance profile. size: memory slices. starts: where it may begin."""

    name: str
    size: int
    starts: tuple[int, ...]

    def window(self, start: int) -> int:
        """The slices it takes, as bits."""
        return ((1 << self.size) - 1) << start


class MigFits:
    """How much still fits on a GPU whose slices are taken as `mask` says; the profiles are those of one model."""

    def __init__(self, profiles: Mapping[str, InstanceProfile]) -> None:
        self.profiles = dict(profiles)
        self._slices = max(one.window(max(one.starts)).bit_length() for one in profiles.values())
        self._weights = {name: one.size**SIZE_EXPONENT / len(profiles) for name, one in self.profiles.items()}
        self.most: Callable[[str, int], int] = cache(self._count_most)
        self.value: Callable[[int], float] = cache(self._work_out)
        self.best_start: Callable[[str, int], tuple[float, int] | None] = cache(self._find_start)

    def _find_start(self, name: str, mask: int) -> tuple[float, int] | None:
        """The loss of creating an instance at the best start, and that start; None when it does not fit."""
        profile = self.profiles[name]
        found = [
            (self.value(mask) - self.value(mask | profile.window(start)), start)
            for start in profile.starts
            if not mask & profile.window(start)
        ]
        if not found:
            return None
        loss, start = min(found)
        return loss + PACK * (self._slices - mask.bit_count()), start

    def _work_out(self, mask: int) -> float:
        return sum((weight * self.most(name, mask) for name, weight in self._weights.items()), 0.0)

    def _count_most(self, name: str, mask: int) -> int:
        """How many instances of a profile still fit."""
        profile = self.profiles[name]
        return max(
            (
                1 + self.most(name, mask | profile.window(start))
                for start in profile.starts
                if not mask & profile.window(start)
            ),
            default=0,
        )
