# SPDX-License-Identifier: Apache-2.0
"""Predictions held against measurements that the fit has not seen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.scheduler.performance.fit import fit
from vgpuctl.scheduler.performance.measurement import Measurement
from vgpuctl.scheduler.performance.model import Prediction


@dataclass(frozen=True)
class Judged:
    """predicted: of how many. error: root of the mean square, in throughput. inside: part in its 90 % interval."""

    predicted: int
    refused: int
    error: float
    inside: float


def judge_held_out(measured: Sequence[Measurement], *, folds: int) -> Judged:
    """Predict each part of the measurements from the others."""
    predicted = refused = inside = 0
    squares = 0.0
    for fold in range(folds):
        model = fit(one for number, one in enumerate(measured) if number % folds != fold)
        for one in measured[fold::folds]:
            found = model.predict(one.isolation, one.workload, one.profile, one.neighbours)
            if isinstance(found, Prediction):
                predicted += 1
                inside += found.low <= one.throughput <= found.high
                squares += (found.throughput - one.throughput) ** 2
            else:
                refused += 1
    return Judged(predicted, refused, math.sqrt(squares / max(1, predicted)), inside / max(1, predicted))
