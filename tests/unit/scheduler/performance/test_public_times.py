# SPDX-License-Identifier: Apache-2.0
"""Predicted times on measurements that others published: training jobs by batch size (tests/data/performance)."""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from vgpuctl.scheduler.performance.job_times import JobTime, TimedJob, fit_times

TABLE = Path(__file__).parents[3] / "data" / "performance" / "gavel_steps.csv"
FEWEST = 4
"""Sizes of a class on a board, below which none is left out: the others would be no curve."""


def read_steps() -> list[TimedJob]:
    """One step is a job; its size is the batch size."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [
        TimedJob(row["workload"], row["board"], float(row["batch"]), 1 / float(row["steps_per_s"]))
        for row in csv.DictReader(lines)
    ]


def inner_sizes(jobs: Sequence[TimedJob]) -> Iterator[tuple[TimedJob, dict[float, float]]]:
    """Each job that is neither the least nor the greatest of its class and board, with the seconds of the others."""
    boards: defaultdict[tuple[str, str], list[TimedJob]] = defaultdict(list)
    for one in jobs:
        boards[one.workload, one.board].append(one)
    for found in boards.values():
        sizes = {one.size: one.seconds for one in found if one.size is not None}
        for one in found:
            if len(sizes) >= FEWEST and one.size not in (min(sizes), max(sizes)):
                yield one, {size: seconds for size, seconds in sizes.items() if size != one.size}


def by_proportion(size: float, others: Mapping[float, float]) -> float:
    """Seconds that are proportional to the size."""
    return size * math.exp(fmean(math.log(seconds / other) for other, seconds in others.items()))


def by_line(size: float, others: Mapping[float, float]) -> float:
    """Seconds on the straight line of the logarithms between the sizes next to it."""
    below, above = max(one for one in others if one < size), min(one for one in others if one > size)
    part = math.log(size / below) / math.log(above / below)
    return math.exp((1 - part) * math.log(others[below]) + part * math.log(others[above]))


def test_sizes_that_were_left_out_are_predicted_better_than_by_proportion_or_a_line() -> None:
    jobs = read_steps()
    errors, proportion, line = list[float](), list[float](), list[float]()
    inside = 0
    for one, others in inner_sizes(jobs):
        assert one.size is not None
        found = fit_times(job for job in jobs if job != one).predict(one.workload, one.board, one.size)
        assert isinstance(found, JobTime), (one, found)
        errors.append(abs(found.seconds / one.seconds - 1))
        proportion.append(abs(by_proportion(one.size, others) / one.seconds - 1))
        line.append(abs(by_line(one.size, others) / one.seconds - 1))
        inside += found.low <= one.seconds <= found.high
    figures = {
        "predicted": len(errors),
        "median": median(errors),
        "mean": fmean(errors),
        "largest": max(errors),
        "inside": inside / len(errors),
        "mean by proportion": fmean(proportion),
        "mean by a line": fmean(line),
    }
    assert len(errors) == 35, figures
    assert median(errors) <= 0.055, figures
    assert fmean(errors) <= 0.075, figures
    assert max(errors) <= 0.3, figures
    assert inside >= 0.8 * len(errors), figures
    assert fmean(errors) < 0.3 * fmean(proportion), figures
    assert fmean(errors) < 0.95 * fmean(line), figures
    assert median(errors) < 0.8 * median(line), figures
