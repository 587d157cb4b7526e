# SPDX-License-Identifier: Apache-2.0
"""Where a MIG instance goes: the GPU and start that lose the least of what could still be created there.

Source of the geometry: `nvidia-smi mig -lgipp`; an instance takes the memory slices from its start on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from vgpuctl.scheduler.state_index import StateIndex

SIZE_EXPONENT = 1.5
"""A lost fit of a profile counts its memory slices to this power."""

PACK = 0.1
"""How much a slice of an emptier GPU counts against it when nothing else differs."""


@dataclass(frozen=True)
class MigProfile:
    """A GPU instance profile. size: memory slices. starts: where it may begin."""

    name: str
    size: int
    starts: tuple[int, ...]

    def window(self, start: int) -> int:
        """The slices it takes, as bits."""
        return ((1 << self.size) - 1) << start


class MigFits:
    """How much still fits on a GPU whose slices are taken as `mask` says; the profiles are those of one model.

    weights: how often each profile is expected, by name; all equal when left out.
    """

    def __init__(self, profiles: Mapping[str, MigProfile], weights: Mapping[str, float] | None = None) -> None:
        self.profiles = dict(profiles)
        self._slices = max(one.window(max(one.starts)).bit_length() for one in profiles.values())
        total = sum(weights.values()) if weights else len(profiles)
        self._weights = {
            name: (weights.get(name, 0.0) if weights else 1.0) / total * one.size**SIZE_EXPONENT
            for name, one in self.profiles.items()
        }
        self._most: Callable[[str, int], int] = cache(self._count_most)
        self.value: Callable[[int], float] = cache(self._work_out)
        self.best_start: Callable[[str, int], tuple[float, int] | None] = cache(self._find_start)

    def most(self, name: str, mask: int) -> int:
        """How many instances of a profile still fit."""
        return self._most(name, mask)

    def _find_start(self, name: str, mask: int) -> tuple[float, int] | None:
        """What creating an instance loses at the best start, and that start; None when it does not fit."""
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
        return sum((weight * self._most(name, mask) for name, weight in self._weights.items()), 0.0)

    def _count_most(self, name: str, mask: int) -> int:
        profile = self.profiles[name]
        return max(
            (
                1 + self._most(name, mask | profile.window(start))
                for start in profile.starts
                if not mask & profile.window(start)
            ),
            default=0,
        )


class MigFleet:
    """GPUs of one model by name, with an index of their masks."""

    def __init__(self, fits: MigFits) -> None:
        self._fits = fits
        self._index: StateIndex[int, float] = StateIndex()

    def put(self, gpu: str, mask: int) -> None:
        """Add a GPU, or tell which of its slices are taken now."""
        self._index.put(gpu, mask)

    def choose(self, profile: str) -> tuple[str, int] | None:
        """The GPU and the start for one instance, of equal ones the first by name; None when it fits nowhere."""

        def cost(mask: int) -> float | None:
            found = self._fits.best_start(profile, mask)
            return None if found is None else found[0]

        chosen = self._index.choose(profile, cost)
        if chosen is None:
            return None
        gpu, mask = chosen
        found = self._fits.best_start(profile, mask)
        assert found is not None
        return gpu, found[1]
