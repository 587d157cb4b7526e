# SPDX-License-Identifier: Apache-2.0
"""Bayesian linear regression with a normal-inverse-gamma prior, solved from cross products."""

import math
from collections.abc import Sequence

from vgpuctl.scheduler.performance.cholesky import decompose, invert, log_determinant, solve

PRIOR_SHAPE, PRIOR_NOISE = 2.0, 0.06
"""Four degrees of freedom of belief that measurements differ by 6 %."""


def solve_choice(
    prior: Sequence[float],
    count: int,
    squares: Sequence[Sequence[float]],
    right: Sequence[float],
    total: float,
    determinant: float = 0.0,
) -> tuple[float, list[float], list[list[float]], float]:
    """Log marginal likelihood, mean and unscaled covariance of the unknowns, and the noise, of one choice."""
    size = len(prior)
    precision = [
        [squares[row][column] + (1 / prior[row] if row == column else 0.0) for column in range(size)]
        for row in range(size)
    ]
    lower = decompose(precision)
    mean = solve(lower, right)
    left = max(0.0, total - sum(one * other for one, other in zip(mean, right, strict=True)))
    shape = PRIOR_SHAPE + count / 2
    start = PRIOR_SHAPE * PRIOR_NOISE**2
    scale = start + left / 2
    likelihood = (
        -0.5 * log_determinant(lower)
        - 0.5 * sum(math.log(one) for one in prior)
        - 0.5 * determinant
        + PRIOR_SHAPE * math.log(start)
        - shape * math.log(scale)
    )
    return likelihood, mean, invert(lower), scale / shape
