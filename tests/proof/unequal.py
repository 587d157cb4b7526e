# SPDX-License-Identifier: Apache-2.0
"""Predicted times of jobs on unequal cards, held against simulated fleets whose truth is known.

A job multiplies matrices: it takes an overhead, and work that grows with the third power of the size, on a card whose
efficiency grows with the size too. Boards differ in overhead, speed and the size at which they are half efficient, and
workload classes in how much of the speed they use. Each fleet is random; its table has some sizes, each timed a few
times with noise. The fit is judged on sizes between those: its error against the true time, and the part of new jobs
that the 90 % interval holds. The fit is not told any of this.

Speeds of boards from readings are judged apart: the GPU's time that VMs of one class use on each board.

The last line is JSON: `python -m tests.proof.unequal [--fleets 50] [--seed 1] [--noise 0.04]`
"""

import argparse
import json
import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from vgpuctl.scheduler.performance.job_times import BoardSpeed, JobTime, TimedJob, fit_times

BOARDS = {"nvidia-t4": 8.1, "nvidia-a40": 37.4, "nvidia-l40s": 91.6, "nvidia-h100-pcie-80gb": 51.2, "nvidia-l4": 30.3}
"""Peaks in TFLOPS of single precision, to have plausible ratios."""
SIZES = (1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
FEW_BOARDS, FEW_SIZES = dict(list(BOARDS.items())[:3]), SIZES[::2]
"""A small table, of which little is left to tell its noise."""


@dataclass(frozen=True)
class TrueCard:
    """The true time of a job. overhead_s: of each job. peak: operations a second. half: size of half efficiency."""

    overhead_s: float
    peak: float
    half: float

    def seconds(self, size: float, times: int) -> float:
        """A job of so many multiplications."""
        return times * (self.overhead_s + 2 * size**3 / (self.peak * size / (size + self.half)))


def draw(dice: random.Random, boards: Mapping[str, float] = BOARDS) -> dict[str, TrueCard]:
    """The truth of one class on each board."""
    uses = dice.uniform(0.3, 0.9)
    return {
        board: TrueCard(
            dice.uniform(1e-5, 5e-4), peak * 1e12 * uses * dice.lognormvariate(0, 0.25), dice.uniform(200, 2500)
        )
        for board, peak in boards.items()
    }


@dataclass(frozen=True)
class Judged:
    """errors: relative, of predicted against true seconds. inside: of jobs, in the interval. refused: beside jobs."""

    errors: Sequence[float]
    inside: int
    jobs: int
    refused: int


def judge(
    dice: random.Random,
    noise: float,
    repeats: int,
    sizes: Sequence[int] = SIZES,
    boards: Mapping[str, float] = BOARDS,
) -> Judged:
    """Draw a fleet, fit a table of it, and compare."""
    truth = draw(dice, boards)
    table = [
        TimedJob("matmul", board, float(size), card.seconds(size, 100) * dice.lognormvariate(0, noise))
        for board, card in truth.items()
        for size in sizes
        for _ in range(repeats)
    ]
    fitted = fit_times(table)
    errors = list[float]()
    inside = jobs = refused = 0
    for board, card in truth.items():
        for _ in range(40):
            size = math.exp(dice.uniform(math.log(sizes[0]), math.log(sizes[-1])))
            found = fitted.predict("matmul", board, size)
            if not isinstance(found, JobTime):
                refused += 1
                continue
            true = card.seconds(size, 100)
            errors.append(abs(found.seconds / true - 1))
            inside += found.low <= true * dice.lognormvariate(0, noise) <= found.high
            jobs += 1
    return Judged(errors, inside, jobs, refused)


def judge_all(
    fleets: int,
    noise: float,
    repeats: int,
    seed: int,
    sizes: Sequence[int] = SIZES,
    boards: Mapping[str, float] = BOARDS,
) -> dict[str, float]:
    """The figures over many fleets."""
    dice = random.Random(f"{seed} {noise} {repeats}")
    found = [judge(dice, noise, repeats, sizes, boards) for _ in range(fleets)]
    errors = sorted(error for one in found for error in one.errors)
    return {
        "error_mean": round(fmean(errors), 4),
        "error_95": round(errors[int(0.95 * len(errors))], 4),
        "inside_90": round(sum(one.inside for one in found) / sum(one.jobs for one in found), 4),
        "refused": sum(one.refused for one in found),
    }


def judge_readings(fleets: int, vms: int, seed: int) -> dict[str, float]:
    """The speeds of boards that readings of VMs tell: of a class whose VMs differ by a fifth, alone on GPUs."""
    dice = random.Random(f"{seed} {vms}")
    errors, inside = list[float](), 0
    for _ in range(fleets):
        speeds = {board: dice.uniform(0.25, 1.0) for board in BOARDS}
        demand = dice.uniform(0.05, 0.15)
        jobs = [
            TimedJob("answers", board, None, demand / speed * dice.lognormvariate(0, 0.2), is_read=True)
            for board, speed in speeds.items()
            for _ in range(vms)
        ]
        fitted = fit_times(jobs)
        found = {board: fitted.speed("answers", board) for board in BOARDS}
        fastest = next(board for board, one in found.items() if isinstance(one, BoardSpeed) and one.low == one.high)
        for board, one in found.items():
            assert isinstance(one, BoardSpeed), one
            if board != fastest:
                true = min(1.0, speeds[board] / speeds[fastest])
                errors.append(abs(one.speed / true - 1))
                inside += one.low <= true <= one.high
    return {"error_mean": round(fmean(errors), 4), "inside_90": round(inside / len(errors), 4)}


def main() -> int:
    """Judge tables of one, two and four rows for each size and board."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.02, 0.04, 0.08], help="deviation of a timed job")
    given = parser.parse_args()
    figures = {}
    for noise in given.noise:
        for repeats in (1, 2, 4):
            found = figures[f"noise {noise}, {repeats} rows"] = judge_all(given.fleets, noise, repeats, given.seed)
            print(f"noise {noise:.0%}, {repeats} rows for each size and board: {found}")
    for noise in given.noise:
        found = judge_all(given.fleets, noise, 1, given.seed, FEW_SIZES, FEW_BOARDS)
        figures[f"noise {noise}, small table"] = found
        print(f"noise {noise:.0%}, one row for each of {len(FEW_SIZES)} sizes on {len(FEW_BOARDS)} boards: {found}")
    for vms in (5, 20, 80):
        found = figures[f"readings of {vms} VMs"] = judge_readings(4 * given.fleets, vms, given.seed)
        print(f"speeds from readings of {vms} VMs on each board: {found}")
    print(json.dumps({"given": vars(given), "figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
