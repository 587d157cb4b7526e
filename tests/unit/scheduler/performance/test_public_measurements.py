# SPDX-License-Identifier: Apache-2.0
"""The model on measurements that others published: training jobs in pairs on one GPU (tests/data/performance)."""

import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from tests.unit.scheduler.performance.judged import judge_held_out
from vgpuctl.scheduler.performance.measurement import Measurement
from vgpuctl.specs.performance_table import read_performance_table

TABLE = Path(__file__).parents[3] / "data" / "performance" / "gavel_p100.csv"


def test_held_out_pairs_are_predicted_better_than_by_the_mean_of_their_class() -> None:
    measured = read_performance_table(TABLE)
    judged = judge_held_out(measured, folds=4)
    by_class: defaultdict[str, list[Measurement]] = defaultdict(list)
    for one in measured:
        by_class[one.workload].append(one)
    mean = {name: fmean(one.throughput for one in found) for name, found in by_class.items()}
    baseline = math.sqrt(fmean((one.throughput - mean[one.workload]) ** 2 for one in measured))
    assert judged.predicted >= 0.7 * len(measured)
    assert judged.error < 0.7 * baseline
    assert judged.inside >= 0.85
