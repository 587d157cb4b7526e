# SPDX-License-Identifier: Apache-2.0
"""A robust trend with an interval: Theil-Sen slope, and Sen's interval of it, widened for autocorrelation.

Sources: Sen, Journal of the American Statistical Association 63 (1968); Yue and Wang, Water Resources Management 18
(2004), for the variance under autocorrelation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, fmean, median

LEVEL = 0.9
SURE, SURE_OF_FEW, FEW = 0.999, 0.99, 12
"""Level at which a slope counts as a rise: thousands of series are looked at every minute. Fewer than FEW points cannot
reach the higher one."""

FEWEST_POINTS, MOST_POINTS = 6, 48
"""More points are averaged into this many, so that the pairs stay few."""

_MOST_CORRELATION = 0.9
_NOISE = 1e-3
"""Residuals below this part of the whole change are rounding."""


@dataclass(frozen=True)
class Trend:
    """slope, low, high: per second; 90 % between. rises: True if the slope is above zero for sure.

    level: of the line at the last point. at: of the last point. points: how many it rests on. span_s: of all of them.
    """

    slope: float
    low: float
    high: float
    rises: bool
    level: float
    at: float
    points: int
    span_s: float

    def seconds_until(self, limit: float) -> "LimitReached | None":
        """When the line reaches a limit above it; None where it does not rise for sure."""
        if not self.rises:
            return None
        left = max(0.0, limit - self.level)
        return LimitReached(left / self.slope, left / self.high, left / self.low if self.low > 0 else math.inf)


@dataclass(frozen=True)
class LimitReached:
    """Seconds after the last point: expected, earliest and latest."""

    expected_s: float
    earliest_s: float
    latest_s: float


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """The trend of (time, value) in the order of time; None for too few points."""
    found = _averaged(points)
    count = len(found)
    if count < FEWEST_POINTS or found[-1][0] <= found[0][0]:
        return None
    slopes = sorted(
        (after[1] - before[1]) / (after[0] - before[0])
        for place, before in enumerate(found)
        for after in found[place + 1 :]
    )
    slope = median(slopes)
    start = median(value - slope * at for at, value in found)
    left = [value - start - slope * at for at, value in found]
    correlation = _correlation(left, least=_NOISE * abs(slope) * (found[-1][0] - found[0][0]))
    variance = count * (count - 1) * (2 * count + 5) / 18 * (1 + correlation) / (1 - correlation)
    low, high = _interval(slopes, LEVEL, variance)
    surely, _ = _interval(slopes, SURE if count >= FEW else SURE_OF_FEW, variance)
    last = found[-1][0]
    return Trend(slope, low, high, surely > 0, start + slope * last, last, count, last - found[0][0])


def _interval(slopes: Sequence[float], level: float, variance: float) -> tuple[float, float]:
    """The interval of the slope, of the sorted slopes of all pairs."""
    reach = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance)
    if reach >= len(slopes):
        return -math.inf, math.inf
    low = slopes[max(0, math.floor((len(slopes) - reach) / 2))]
    return low, slopes[min(len(slopes) - 1, math.ceil((len(slopes) + reach) / 2))]


def _averaged(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Means of neighbouring points, of equal spans of time, so that no two have one time."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    width = (last - first) / MOST_POINTS if len(points) > MOST_POINTS else 0.0
    groups: dict[float, list[tuple[float, float]]] = {}
    for at, value in points:
        key = float(min(MOST_POINTS - 1, int((at - first) / width))) if width else at
        groups.setdefault(key, []).append((at, value))
    return [(fmean(at for at, _ in one), fmean(value for _, value in one)) for one in groups.values()]


def _correlation(left: Sequence[float], *, least: float) -> float:
    """The autocorrelation of neighbouring residuals, never counted as negative; smaller ones than `least` have none."""
    middle = fmean(left)
    total = sum((one - middle) ** 2 for one in left)
    if total <= least**2 * len(left):
        return 0.0
    found = sum((one - middle) * (after - middle) for one, after in pairwise(left)) / total
    return min(_MOST_CORRELATION, max(0.0, found))
