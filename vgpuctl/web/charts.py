# SPDX-License-Identifier: Apache-2.0
"""Charts of the kept history as points of an SVG, and in words for those who do not see it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vgpuctl.telemetry.history import Sample
from vgpuctl.usecases.telemetry.serve_web import Chart
from vgpuctl.web.wording import amount, title

WIDTH, HEIGHT = 600, 100
MOST_LINES = 8
_BEYOND_ANY = 1e30
"""No measure has such a value; a number that is none is not below it either."""
_GAP = 1.5
"""Samples that are further apart than this many steps are not joined."""


@dataclass(frozen=True)
class ChartLine:
    """One series: its pieces as points of polylines; band: the area from the lowest to the highest value, as polygons;
    dots: samples with none beside them. last, mean, high: in words."""

    label: str
    pieces: tuple[str, ...]
    band: tuple[str, ...]
    dots: tuple[tuple[str, str], ...]
    last: str
    mean: str
    high: str


@dataclass(frozen=True)
class DrawnChart:
    """top: the value at the upper end, in words. left_out: series that are not drawn, beyond MOST_LINES."""

    title: str
    text: str
    top: str
    lines: tuple[ChartLine, ...]
    left_out: int
    since: float
    until: float

    @property
    def words(self) -> str:
        """The chart in a sentence."""
        said = (f"{one.label or 'value'} now {one.last}, mean {one.mean}, highest {one.high}" for one in self.lines)
        return f"{self.title}: {'; '.join(said)}"


def draw(chart: Chart) -> DrawnChart:
    """Lay a chart out. The scale begins at 0; ratios go to 1 at least."""
    finite = [(one.label, tuple(sample for sample in one.samples if _is_finite(sample))) for one in chart.series]
    found = [(label, samples) for label, samples in finite if samples]
    shown = sorted(found, key=lambda one: -max(sample.high for sample in one[1]))[:MOST_LINES]
    shown.sort(key=lambda one: one[0])
    highest = max((sample.high for _label, samples in shown for sample in samples), default=0.0)
    top = (
        max(1.0, math.ceil(4 * highest) / 4) if chart.measure.endswith("_ratio") else _round_up(highest, chart.measure)
    )
    lines = tuple(_line(label, samples, chart, top, has_band=len(shown) == 1) for label, samples in shown)
    return DrawnChart(
        title(chart.measure),
        chart.text,
        amount(chart.measure, top),
        lines,
        len(found) - len(shown),
        chart.since,
        chart.until,
    )


def _line(label: str, samples: Sequence[Sample], chart: Chart, top: float, *, has_band: bool) -> ChartLine:
    def x(sample: Sample) -> float:
        return WIDTH * min(max((sample.at + chart.step_s / 2 - chart.since) / (chart.until - chart.since), 0.0), 1.0)

    def y(value: float) -> float:
        return HEIGHT * (1 - min(max(value / top, 0.0), 1.0))

    pieces, band, dots = [], [], []
    for piece in _pieces(samples, chart.step_s):
        points = [f"{x(one):.1f},{y(one.mean):.1f}" for one in piece]
        if len(points) == 1:
            dots.append((f"{x(piece[0]):.1f}", f"{y(piece[0].mean):.1f}"))
            continue
        pieces.append(" ".join(points))
        if has_band:
            upper = [f"{x(one):.1f},{y(one.high):.1f}" for one in piece]
            lower = [f"{x(one):.1f},{y(one.low):.1f}" for one in reversed(piece)]
            band.append(" ".join([*upper, *lower]))
    count = sum(one.count for one in samples) or 1
    mean = sum(one.mean * one.count for one in samples) / count
    return ChartLine(
        label,
        tuple(pieces),
        tuple(band),
        tuple(dots),
        amount(chart.measure, samples[-1].mean),
        amount(chart.measure, mean),
        amount(chart.measure, max(one.high for one in samples)),
    )


def _is_finite(one: Sample) -> bool:
    return all(abs(value) < _BEYOND_ANY for value in (one.at, one.mean, one.low, one.high))


def _pieces(samples: Sequence[Sample], step_s: int) -> Iterator[list[Sample]]:
    piece: list[Sample] = []
    for one in samples:
        if piece and one.at - piece[-1].at > _GAP * step_s:
            yield piece
            piece = []
        piece.append(one)
    if piece:
        yield piece


def _round_up(value: float, measure: str) -> float:
    """The next 1, 2 or 5 times a power of ten (of two, for bytes) above a value."""
    if value <= 0:
        return 1.0
    if measure.endswith("_bytes"):
        return float(2 ** math.ceil(math.log2(value)))
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)
