# SPDX-License-Identifier: Apache-2.0
"""Curves of measures over time that a scenario plays on a host: the file `/etc/vgpulab/curves` (docs/lab.md).

Line 1: `start SECONDS_SINCE_THE_EPOCH`. Then a line for each curve, `TARGET MEASURE REPEAT_S T:VALUE T:VALUE …`: linear
between its points, constant before the first and after the last one. REPEAT_S 0: it is played once.
"""

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CURVES = "/etc/vgpulab/curves"


@dataclass(frozen=True)
class Curve:
    """One curve. points: (seconds since the start, value), by time. repeat_s: 0 plays it once."""

    points: tuple[tuple[float, float], ...]
    repeat_s: float = 0.0

    def value(self, elapsed_s: float) -> float:
        """The value at a time since the start."""
        at = elapsed_s % self.repeat_s if self.repeat_s else elapsed_s
        after = bisect.bisect_right(self.points, at, key=lambda point: point[0])
        if after == 0:
            return self.points[0][1]
        if after == len(self.points):
            return self.points[-1][1]
        (left, low), (right, high) = self.points[after - 1], self.points[after]
        return low + (high - low) * (at - left) / (right - left)

    def integral(self, elapsed_s: float) -> float:
        """The value times seconds since the start: what a counter has counted of it."""
        if elapsed_s <= 0:
            return 0.0
        if self.repeat_s and elapsed_s > self.repeat_s:
            rounds = int(elapsed_s // self.repeat_s)
            return rounds * self.integral(self.repeat_s) + self.integral(elapsed_s - rounds * self.repeat_s)
        once = Curve(self.points)
        times = [0.0, *(at for at, _ in self.points if 0 < at < elapsed_s), elapsed_s]
        return sum(
            (once.value(left) + once.value(right)) / 2 * (right - left) for left, right in itertools.pairwise(times)
        )


@dataclass(frozen=True)
class Curves:
    """All curves of a host, by target and measure. started_at: seconds since the epoch."""

    started_at: float = 0.0
    curves: dict[tuple[str, str], Curve] = field(default_factory=dict)

    def value(self, target: str, measure: str, now: float) -> float | None:
        """The value of a measure now, None if no curve plays it."""
        curve = self.curves.get((target, measure))
        return None if curve is None else curve.value(now - self.started_at)

    def integral(self, target: str, measure: str, now: float) -> float | None:
        """The value of a measure times seconds since the start, None if no curve plays it."""
        curve = self.curves.get((target, measure))
        return None if curve is None else curve.integral(now - self.started_at)

    def labelled(self, target: str, measure: str, now: float) -> Iterator[tuple[str, float]]:
        """(label, value) of every curve of a measure with a label, as `xid/79`."""
        for (one, name), curve in self.curves.items():
            if one == target and name.startswith(f"{measure}/"):
                yield name.partition("/")[2], curve.value(now - self.started_at)


NONE = Curves()
_kept: dict[Path, tuple[tuple[int, int], Curves]] = {}


def read(root: Path) -> Curves:
    """The curves that a host plays; none without the file. Raises ValueError for a file that is not one."""
    path = root / CURVES.lstrip("/")
    try:
        info = path.stat()
        seen = (info.st_ino, info.st_mtime_ns)
        kept = _kept.get(path)
        if kept is None or kept[0] != seen:
            kept = _kept[path] = (seen, parse(path.read_text()))
    except FileNotFoundError:
        return NONE
    return kept[1]


def parse(text: str) -> Curves:
    """Read the file's text. Raises ValueError."""
    first, *lines = text.splitlines()
    word, started_at = first.split()
    if word != "start":
        raise ValueError(f"the curves begin with {word!r}, not with start")
    curves = {}
    for line in lines:
        target, measure, repeat_s, *points = line.split()
        pairs = [point.partition(":") for point in points]
        curves[target, measure] = Curve(tuple((float(at), float(value)) for at, _, value in pairs), float(repeat_s))
    return Curves(float(started_at), curves)


def render(curves: Curves) -> str:
    """The file's text."""
    lines = [f"start {curves.started_at:.3f}"]
    for (target, measure), curve in curves.curves.items():
        points = " ".join(f"{at:g}:{value:.10g}" for at, value in curve.points)
        lines.append(f"{target} {measure} {curve.repeat_s:g} {points}")
    return "\n".join(lines) + "\n"
