# SPDX-License-Identifier: Apache-2.0
"""How long a job takes on each board: fitted from timed jobs, predicted with intervals, refused outside the data.

The logarithm of the seconds is a polynomial of the logarithm of the job's size, one workload class at a time: a cubic
one, or of a lower degree where a board has fewer than five sizes, so that it has more sizes than coefficients. These
are those that all boards share and what each board adds, which shrinks to none (normal-inverse-gamma; the shrinkage
with the largest marginal likelihood is taken). A class without sizes has constants alone.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import fmean

from vgpuctl.scheduler.performance.interval import LEVEL, Unpredictable, t_quantile
from vgpuctl.scheduler.performance.regression import solve_choice

FEWEST_OF_BOARD = 3
"""Timed jobs of a class on a board, below which nothing is predicted for it."""

FEWEST_SIZES = 3
"""Sizes of a class on a board, below which it is predicted for these alone."""

BEYOND = 1.25
"""How far beyond the measured sizes of a board a job may be, where they are wide enough apart themselves."""

_WIDE, _NONE = 1e6, 1e-9
"""Prior variance of what is as good as unknown, and of what is not fitted, in units of the noise."""

_SHAPES = (1.0, 100.0, 1e4)
"""Prior variances of what a board adds to the polynomial's form, in units of the noise."""

_WIDEST = 100.0
"""How many times its low end the high end of an interval may be."""

_POWERS = 4
_MOST_LOG = 600.0
_PRIOR_FREEDOM, _PRIOR_NOISE = 1.0, 0.02
"""One degree of freedom of belief that equal jobs differ by 2 %: more would outweigh a small table."""


@dataclass(frozen=True)
class TimedJob:
    """A job that was timed alone on a GPU. board: a key of the catalogue. size: None for a class without sizes.

    seconds: of a table; of readings, the GPU's time that the work used, which compares boards, but does not time a job.
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
    reach is 0 for a class without sizes. boards: jobs of each. sizes: those of each board, the least first. misfits: of
    boards whose sizes are not where their polynomial is: noise and degrees of freedom, which count instead.
    """

    workload: str
    boards: Mapping[str, int]
    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    noise: float
    freedom: float
    middle: float = 0.0
    reach: float = 0.0
    sizes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    misfits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
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
        reach = self._reach(row, board)
        low, high = _exp(middle - reach), _exp(middle + reach)
        return JobTime(_exp(middle), low, high, self.boards[board])

    def fastest(self, size: float | None) -> JobTime | Unpredictable:
        """Predict for one job on the fastest board, if those without a time for this size are known to be slower."""
        often = sorted(name for name, count in self.boards.items() if count >= FEWEST_OF_BOARD)
        answers = {name: self.predict(name, size) for name in often}
        known = {name: one for name, one in answers.items() if isinstance(one, JobTime)}
        found = min(known, key=lambda name: known[name].seconds, default=None)
        if found is None:
            return Unpredictable(f"{self.workload} has no time on any board")
        speed = self.speed(found)
        for name, answer in answers.items():
            if isinstance(answer, Unpredictable):
                other = self.speed(name)
                if not (isinstance(speed, BoardSpeed) and isinstance(other, BoardSpeed) and other.speed <= speed.speed):
                    return Unpredictable(f"its speed is declared against the fastest board: {answer.reason}")
        return known[found]

    def speed(self, board: str) -> BoardSpeed | Unpredictable:
        """The speed of a board, for a job of a size that as many boards as can be were timed near."""
        if board not in self._known:
            self._known[board] = self._speed(board)
        return self._known[board]

    def _speed(self, board: str) -> BoardSpeed | Unpredictable:
        if self.boards.get(board, 0) < FEWEST_OF_BOARD:
            return Unpredictable(self._too_little(board))
        refusal = self._refuse_size(board, self._compared)
        if refusal is not None:
            return Unpredictable(f"boards are compared at size {self._compared:.4g}: {refusal}")
        usable = self._usable(self._compared)
        rows = {name: self._row(name, self._compared) for name in usable}
        fastest = min(usable, key=lambda name: self._sum(rows[name]))
        apart = [one - other for one, other in zip(rows[fastest], rows[board], strict=True)]
        pair = board, fastest
        reach = max(map(self._quantile, pair)) * math.sqrt(max(0.0, *(self._variance(apart, one) for one in pair)))
        middle = self._sum(apart)
        if reach > math.log(_WIDEST) / 2:
            return Unpredictable(self._too_wide(max(pair, key=lambda one: self._noise(one)[0])))
        return BoardSpeed(_exp(middle), _exp(middle - reach), min(1.0, _exp(middle + reach)), self.boards[board])

    def _usable(self, size: float) -> list[str]:
        """The boards that were timed often enough, near a size."""
        often = sorted(name for name, count in self.boards.items() if count >= FEWEST_OF_BOARD)
        return [name for name in often if self._refuse_size(name, size) is None]

    @cached_property
    def _compared(self) -> float:
        """The size at which boards are compared: the middle of all, or the nearest that more boards were timed near."""
        middle = _exp(self.middle)
        if not self.reach or not self.sizes:
            return next((one for sizes in self.sizes.values() for one in sizes), middle)
        ends = sorted({one for board in self.sizes for one in self._near(board)})
        between = [math.sqrt(low * high) for low, high in pairwise(ends)]
        few = [one for sizes in self.sizes.values() if len(sizes) < FEWEST_SIZES for one in sizes]
        return min(
            (middle, *between, *few), key=lambda one: (-len(self._usable(one)), abs(math.log(one) - self.middle), one)
        )

    def _near(self, board: str) -> tuple[float, float]:
        """The sizes of a board, and as far beyond them as their polynomial is trusted."""
        low, high = self.sizes[board][0], self.sizes[board][-1]
        beyond = min(BEYOND, math.sqrt(high / low))
        return low / beyond, high * beyond

    def _reach(self, row: Sequence[float], board: str) -> float:
        """Half the interval of a job, of the logarithm."""
        noise, _freedom = self._noise(board)
        return self._quantile(board) * math.sqrt(max(0.0, self._variance(row, board)) + noise**2)

    def _noise(self, board: str) -> tuple[float, float]:
        return self.misfits.get(board, (self.noise, self.freedom))

    def _quantile(self, board: str) -> float:
        return t_quantile((1 + LEVEL) / 2, self._noise(board)[1])

    def _sum(self, row: Sequence[float]) -> float:
        return sum(one * mean for one, mean in zip(row, self.mean, strict=True))

    def _variance(self, row: Sequence[float], board: str) -> float:
        used = [place for place, one in enumerate(row) if one]
        times = (self._noise(board)[0] / self.noise) ** 2 if self.noise else 1.0
        return times * sum(self.covariance[one][other] * row[one] * row[other] for one in used for other in used)

    def _row(self, board: str, size: float | None) -> list[float]:
        return row_of(list(self.boards), board, size, self.middle, self.reach)

    def _too_little(self, board: str) -> str:
        times = self.boards.get(board, 0)
        return f"{self.workload} was measured {times} times on {board}, {FEWEST_OF_BOARD} are needed"

    def _too_wide(self, board: str) -> str:
        return (
            f"the times of {self.workload} on {board} follow no smooth curve: time more sizes, or the same ones again"
        )

    def _refuse(self, board: str, size: float | None) -> str | None:
        if self.is_read:
            return f"{self.workload} was never timed: readings compare boards, and tell no job's time"
        if self.boards.get(board, 0) < FEWEST_OF_BOARD:
            return self._too_little(board)
        if not self.sizes and size is not None:
            return f"{self.workload} was timed without sizes"
        if self.sizes and size is None:
            return f"{self.workload} was timed with sizes: name one"
        return self._refuse_size(board, size)

    def _refuse_size(self, board: str, size: float | None) -> str | None:
        timed = self.sizes.get(board, ())
        if size is not None and timed and size not in timed:
            low, high = self._near(board)
            if len(timed) < FEWEST_SIZES:
                sizes = " and ".join(f"{one:g}" for one in timed)
                needed = f"for others {FEWEST_SIZES} sizes are needed"
                return f"{self.workload} was timed with size {sizes} alone on {board}, not {size:g}: {needed}"
            if not low <= size <= high:
                sizes = f"sizes from {timed[0]:g} to {timed[-1]:g}"
                return f"{self.workload} was timed with {sizes} on {board}, not {size:g}"
        is_wide = not self.is_read and self._reach(self._row(board, size), board) > math.log(_WIDEST) / 2
        return self._too_wide(board) if is_wide else None


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

    def fastest(self, workload: str, size: float | None) -> JobTime | Unpredictable:
        """Predict the seconds of one job on the fastest board that was timed."""
        found = self._by_name.get(workload)
        return Unpredictable(f"no {workload} job was timed") if found is None else found.fastest(size)

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
    sizes = {name: tuple(sorted({one.size for one in found if one.board == name and one.size})) for name in names}
    powers = _POWERS if reach else 1
    own = {name: _coefficients(len(sizes[name])) for name in names}
    # A board with few sizes must not be fitted by a power that another board has alone.
    common = min(own[name] for name in [one for one in names if len(sizes[one]) >= FEWEST_SIZES] or names)
    best = None
    for shape in _SHAPES if reach and len(names) > 1 else _SHAPES[:1]:
        prior = [_WIDE if power < common else _NONE for power in range(powers)]
        for most in own.values():
            prior += [
                _NONE if power >= most else _WIDE if power in (0, *range(common, powers)) else shape
                for power in range(powers)
            ]
        choice = solve_choice(prior, len(found), squares, right, total)
        if best is None or choice[0] > best[0]:
            best = choice
    assert best is not None
    _, mean, inverse, _ = best
    apart = _apart(found, rows, values, mean)
    left = sum(value**2 for jobs in apart.values() for one in jobs.values() for value in one)
    # The fitted part no longer shows the noise: the jobs count less the effective number of coefficients. So what the
    # coefficients cost for being away from their prior is no noise here; that would count them twice.
    freedom = _PRIOR_FREEDOM + max(0.0, len(found) - _fitted(squares, inverse))
    noise = (_PRIOR_FREEDOM * _PRIOR_NOISE**2 + left) / freedom
    misfits = _misfits(apart, own, left + _PRIOR_FREEDOM * _PRIOR_NOISE**2, freedom)
    for name in misfits:
        left -= sum(value**2 for jobs in apart[name].values() for value in jobs)
        freedom -= boards[name] - own[name]
    freedom = max(_PRIOR_FREEDOM, freedom)
    noise = (_PRIOR_FREEDOM * _PRIOR_NOISE**2 + max(0.0, left)) / freedom
    return TimedClass(
        workload=workload,
        boards=boards,
        mean=tuple(mean),
        covariance=tuple(tuple(noise * value for value in row) for row in inverse),
        noise=math.sqrt(noise),
        freedom=freedom,
        middle=middle,
        reach=reach,
        sizes={name: one for name, one in sizes.items() if one},
        misfits=misfits,
        is_read=all(one.is_read for one in found),
    )


def _fitted(squares: Sequence[Sequence[float]], inverse: Sequence[Sequence[float]]) -> float:
    """The jobs that the coefficients take from the noise: the trace of 2H - H², where H maps jobs to what is fitted.

    Hastie, Tibshirani, The Elements of Statistical Learning, 5.4.1 and 7.6.
    """
    size = range(len(squares))
    hat = [[sum(row[other] * inverse[other][column] for other in size) for column in size] for row in squares]
    once = sum(row[place] for place, row in enumerate(hat))
    twice = sum(value * hat[column][line] for line, row in enumerate(hat) for column, value in enumerate(row))
    return 2 * once - twice


def _coefficients(sizes: int) -> int:
    """The coefficients of a board with so many sizes: fewer than sizes, so that a misfit shows."""
    return sizes if 1 <= sizes < FEWEST_SIZES else max(1, min(_POWERS, sizes - 1))


def _apart(
    found: Sequence[TimedJob], rows: Sequence[Sequence[float]], values: Sequence[float], mean: Sequence[float]
) -> dict[str, dict[float | None, list[float]]]:
    """How far jobs are from what was fitted, of the logarithm, by board and size."""
    apart: dict[str, dict[float | None, list[float]]] = {}
    for one, row, value in zip(found, rows, values, strict=True):
        fitted = sum(part * factor for part, factor in zip(row, mean, strict=True))
        apart.setdefault(one.board, {}).setdefault(one.size, []).append(value - fitted)
    return apart


def _misfits(
    apart: Mapping[str, Mapping[float | None, Sequence[float]]], own: Mapping[str, int], left: float, freedom: float
) -> dict[str, tuple[float, float]]:
    """The boards whose sizes are farther from their polynomial than jobs of the others: noise and degrees of freedom.

    A size that was timed often is one point of the curve: that its jobs agree does not say that the curve fits. left,
    freedom: of all jobs, with what is believed before. About the 99 % quantile of the F distribution decides.
    """
    found = {}
    for board, sizes in apart.items():
        points = len(sizes) - own[board]
        if points < 1 or len(sizes) < FEWEST_SIZES:
            continue
        jobs = [value for one in sizes.values() for value in one]
        others = max(0.0, left - sum(value**2 for value in jobs))
        usual = max(_PRIOR_NOISE**2 / 4, others / max(_PRIOR_FREEDOM, freedom - (len(jobs) - own[board])))
        misfit = sum(fmean(one) ** 2 for one in sizes.values()) / points
        if misfit > usual * (1 + 10 / points):
            found[board] = math.sqrt(misfit), float(points)
    return found


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
