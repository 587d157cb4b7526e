# SPDX-License-Identifier: Apache-2.0
"""Intervals of predictions, and the answer where there is none."""

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

# Quantiles of Student's t distribution.
_NORMAL = NormalDist()


@lru_cache(maxsize=256)
def t_quantile(probability: float, freedom: float) -> float:
    """The quantile by the expansion in 1/freedom (Abramowitz and Stegun 26.7.5); right to 1 % from 4 degrees on."""
    z = _NORMAL.inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))


LEVEL = 0.9
"""Part of the VMs whose throughput, or of the jobs whose time, is inside the interval of its prediction."""


@dataclass(frozen=True)
class Unpredictable:
    """Why the measurements do not allow a prediction."""

    reason: str
