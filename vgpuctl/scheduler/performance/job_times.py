# SPDX-License-Identifier: Apache-2.0
"""How long a job takes on each board: fitted from timed jobs, predicted with intervals, refused outside the data.

The logarithm of the seconds is a cubic polynomial of the logarithm of the job's size, one workload class at a time. Its
coefficients are those that all boards share and what each board adds, which shrinks to none (normal-inverse-gamma; the
shrinkage with the largest marginal likelihood is taken). A class without sizes has constants alone.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from vgpuctl.scheduler.performance.interval import LEVEL, Unpredictable, t_quantile
from vgpuctl.scheduler.performance.regression import solve_choice

FEWEST_OF_BOARD = 3
"""Timed jobs of a class on a board, below which nothing is predicted for it."""

BEYOND = 1.25
"""How far beyond the measured sizes of a board a job may be."""

_WIDE = 1e6
"""Prior variance of what is as good as unknown, in units of the noise."""

_SHAPES = (1.0, 100.0, 1e4)
"""Prior variances of what a board adds to the polynomial's form, in units of the noise."""

_POWERS = 4
_MOST_LOG = 600.0
_PRIOR_FREEDOM, _PRIOR_NOISE = 4.0, 0.02
"""Four degrees of freedom of belief that equal jobs differ by 2 %."""


@dataclass(frozen=True)
class TimedJob:
    """A job that was timed alone on a GPU. board: a key of the catalogue. size: None for a class without sizes.

    seconds: of a table; of readings, the GPU's time that the work used, which compares boards and is no job's time.
    """

    workload: str
    board: str
    size: float | None
    seconds: float
    is_read: bool = False


@dataclass(frozen=True)
class JobTime:
    """Seconds of one job. low, high: 90 % of such jobs are between them. measured: jobs of the class on the board."""

    seconds: float
    low: float
    high: float
    measured: int


@dataclass(frozen=True)
class BoardSpeed:
    """The speed of a board for a class, against the fastest board that was measured. low, high: of the board, 90 %."""

    speed: float
    low: float
    high: float
    measured: int


@dataclass(frozen=True)
class TimedClass:
    """The fit of one class. mean, covariance: of the coefficients, those of all boards first, then board by board.

    noise: standard deviation of a job, of the logarithm. middle, reach: the logarithm of a size is scaled by these;
    reach is 0 for a class without sizes. boards: jobs of each. sizes: the least and the largest of each board.
    """

    workload: str
    boards: Mapping[str, int]
    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    noise: float
    freedom: float
    middle: float = 0.0
    reach: float = 0.0
    sizes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    is_read: bool = False

    @cached_property
    def _known(self) -> dict[str, BoardSpeed | Unpredictable]:
        return {}

    def predict(self, board: str, size: float | None) -> JobTime | Unpredictable:
        """Predict for one job on a GPU of a board, alone."""
        refusal = self._refuse(board, size)
        if refusal is not None:
            return Unpredictable(refusal)
        row = self._row(board, size)
        middle = self._sum(row)
        reach = self._quantile * math.sqrt(max(0.0, self._variance(row)) + self.noise**2)
        low, high = _exp(middle - reach), _exp(middle + reach)
        return JobTime(_exp(middle), low, high, self.boards[board])

    def speed(self, board: str) -> BoardSpeed | Unpredictable:
        """The speed of a board, for a job in the middle of the measured sizes."""
        if board not in self._known:
            self._known[board] = self._speed(board)
        return self._known[board]

    def _speed(self, board: str) -> BoardSpeed | Unpredictable:
        if self.boards.get(board, 0) < FEWEST_OF_BOARD:
            return Unpredictable(self._too_little(board))
        usable = sorted(name for name, count in self.boards.items() if count >= FEWEST_OF_BOARD)
        rows = {name: self._row(name, _exp(self.middle)) for name in usable}
        fastest = min(usable, key=lambda name: self._sum(rows[name]))
        apart = [one - other for one, other in zip(rows[fastest], rows[board], strict=True)]
        reach = self._quantile * math.sqrt(max(0.0, self._variance(apart)))
        middle = self._sum(apart)
        return BoardSpeed(_exp(middle), _exp(middle - reach), min(1.0, _exp(middle + reach)), self.boards[board])

    @property
    def _quantile(self) -> float:
        return t_quantile((1 + LEVEL) / 2, self.freedom)

    def _sum(self, row: Sequence[float]) -> float:
        return sum(one * mean for one, mean in zip(row, self.mean, strict=True))

    def _variance(self, row: Sequence[float]) -> float:
        used = [place for place, one in enumerate(row) if one]
        return sum(self.covariance[one][other] * row[one] * row[other] for one in used for other in used)

    def _row(self, board: str, size: float | None) -> list[float]:
        return row_of(list(self.boards), board, size, self.middle, self.reach)

    def _too_little(self, board: str) -> str:
        times = self.boards.get(board, 0)
        return f"{self.workload} was measured {times} times on {board}, {FEWEST_OF_BOARD} are needed"

    def _refuse(self, board: str, size: float | None) -> str | None:
        if self.is_read:
            return f"{self.workload} was never timed: readings compare boards, and tell no job's time"
        if self.boards.get(board, 0) < FEWEST_OF_BOARD:
            return self._too_little(board)
        if not self.sizes:
            return None if size is None else f"{self.workload} was timed without sizes"
        if size is None:
            return f"{self.workload} was timed with sizes: name one"
        low, high = self.sizes[board]
        if not low / BEYOND <= size <= high * BEYOND:
            return f"{self.workload} was timed with sizes from {low:g} to {high:g} on {board}, not {size:g}"
        return None


@dataclass(frozen=True)
class JobTimes:
    """The fits of all classes, by name."""

    classes: tuple[TimedClass, ...] = ()

    @cached_property
    def _by_name(self) -> dict[str, TimedClass]:
        return {one.workload: one for one in self.classes}

    def predict(self, workload: str, board: str, size: float | None) -> JobTime | Unpredictable:
        """Predict the seconds of one job."""
        found = self._by_name.get(workload)
        return Unpredictable(f"no {workload} job was timed") if found is None else found.predict(board, size)

    def speed(self, workload: str, board: str) -> BoardSpeed | Unpredictable | None:
        """The speed of a board for a class; None where the class was never measured, so that boards are equal."""
        found = self._by_name.get(workload)
        return None if found is None else found.speed(board)

    def boards(self, workload: str) -> set[str]:
        """The boards that a class was measured on."""
        found = self._by_name.get(workload)
        return set() if found is None else set(found.boards)

    def with_later(self, later: "JobTimes") -> "JobTimes":
        """Both; of a class that both have, the later fit. Readings do not replace what was timed."""
        found = dict(self._by_name)
        for one in later.classes:
            before = found.get(one.workload)
            if before is None or before.is_read or not one.is_read:
                found[one.workload] = one
        return JobTimes(tuple(found[name] for name in sorted(found)))


def fit_times(jobs: Iterable[TimedJob]) -> JobTimes:
    """Fit every class. Equal jobs in any order give an equal fit. A class that was timed does without its readings."""
    groups: defaultdict[str, list[TimedJob]] = defaultdict(list)
    for one in jobs:
        groups[one.workload].append(one)
    classes = []
    for workload in sorted(groups):
        timed = [one for one in groups[workload] if not one.is_read]
        classes.append(_fit_class(workload, timed or groups[workload]))
    return JobTimes(tuple(classes))


def _fit_class(workload: str, given: Sequence[TimedJob]) -> TimedClass:
    found = sorted(given, key=lambda one: (one.board, one.size or 0.0, one.seconds))
    boards = dict(sorted(Counter(one.board for one in found).items()))
    logs = [math.log(one.size) for one in found if one.size is not None]
    middle = (max(logs) + min(logs)) / 2 if logs else 0.0
    reach = (max(logs) - min(logs)) / 2 if logs else 0.0
    names = list(boards)
    rows = [row_of(names, one.board, one.size, middle, reach) for one in found]
    values = [math.log(one.seconds) for one in found]
    size = len(rows[0])
    squares = [[sum(row[one] * row[other] for row in rows) for other in range(size)] for one in range(size)]
    right = [sum(row[one] * value for row, value in zip(rows, values, strict=True)) for one in range(size)]
    total = sum(value * value for value in values)
    powers = _POWERS if reach else 1
    best = None
    for shape in _SHAPES if reach and len(names) > 1 else _SHAPES[:1]:
        prior = [_WIDE] * powers + [_WIDE if place % powers == 0 else shape for place in range(powers * len(names))]
        choice = solve_choice(prior, len(found), squares, right, total)
        if best is None or choice[0] > best[0]:
            best = choice
    assert best is not None
    _, mean, inverse, _ = best
    left = max(0.0, total - sum(one * other for one, other in zip(mean, right, strict=True)))
    # What was fitted no longer tells of the noise: the jobs count less the effective number of coefficients.
    fitted = sum(squares[one][other] * inverse[other][one] for one in range(size) for other in range(size))
    freedom = _PRIOR_FREEDOM + max(0.0, len(found) - fitted)
    noise = (_PRIOR_FREEDOM * _PRIOR_NOISE**2 + left) / freedom
    sizes: dict[str, tuple[float, float]] = {}
    for one in found:
        if one.size is None:
            continue
        low, high = sizes.get(one.board, (one.size, one.size))
        sizes[one.board] = min(low, one.size), max(high, one.size)
    return TimedClass(
        workload=workload,
        boards=boards,
        mean=tuple(mean),
        covariance=tuple(tuple(noise * value for value in row) for row in inverse),
        noise=math.sqrt(noise),
        freedom=freedom,
        middle=middle,
        reach=reach,
        sizes=sizes,
        is_read=all(one.is_read for one in found),
    )


def _exp(value: float) -> float:
    """The exponential of a logarithm of seconds, bounded for a file that somebody wrote by hand."""
    return math.exp(max(-_MOST_LOG, min(_MOST_LOG, value)))


def row_of(names: Sequence[str], board: str, size: float | None, middle: float, reach: float) -> list[float]:
    """The powers of the scaled size for all boards, and for its own."""
    scaled = (math.log(size) - middle) / reach if reach and size is not None else 0.0
    powers = [scaled**power for power in range(_POWERS if reach else 1)]
    row = list(powers)
    for name in names:
        row += powers if name == board else [0.0] * len(powers)
    return row
