# SPDX-License-Identifier: Apache-2.0
"""The load of a GPU over the last hour, from samples of a minute."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

WINDOW_S = 3600.0
HALF_LIFE_S = 1200.0
"""A minute counts half as much as one that is twenty minutes younger."""

FEWEST_MINUTES, OLDEST_S = 5, 600.0
"""With fewer samples, or when the newest is older, the last reading of the host counts instead."""

_PEAK_PART = 0.25


@dataclass(frozen=True)
class RollingLoad:
    """mean, peak: parts from 0 to 1, decayed. minutes: with a sample. age_s: of the newest."""

    mean: float
    peak: float
    minutes: int
    age_s: float

    @property
    def percent(self) -> int:
        """One figure for placing: three parts of the mean and one of the peak, in whole percent."""
        return round(100 * ((1 - _PEAK_PART) * self.mean + _PEAK_PART * self.peak))


def rolling_load(samples: Iterable[tuple[float, float, float]], now: float) -> RollingLoad | None:
    """The load of the last hour; None where too little was measured.

    samples: begin of a minute in seconds since the epoch, mean and highest value as parts. Those outside the hour,
    also of a clock that was ahead, do not count.
    """
    weights = total = peak = 0.0
    minutes, newest = 0, float("-inf")
    for at, mean, high in samples:
        age_s = now - at
        if not -60 <= age_s <= WINDOW_S:
            continue
        weight = 0.5 ** (max(0.0, age_s) / HALF_LIFE_S)
        weights += weight
        total += weight * _part(mean)
        peak = max(peak, weight * _part(high))
        minutes += 1
        newest = max(newest, at)
    age_s = max(0.0, now - newest)
    if minutes < FEWEST_MINUTES or age_s > OLDEST_S:
        return None
    mean = total / weights
    return RollingLoad(mean, max(mean, peak), minutes, age_s)


def part_seen(age_s: float) -> float:
    """The part of the mean that something makes which has run for so long: all of it after the window."""
    return min(1.0, (1 - math.exp2(-age_s / HALF_LIFE_S)) / (1 - math.exp2(-WINDOW_S / HALF_LIFE_S)))


def _part(value: float) -> float:
    return min(1.0, max(0.0, value))
