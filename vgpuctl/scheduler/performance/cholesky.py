# SPDX-License-Identifier: Apache-2.0
"""Symmetric positive definite systems of some dozens of unknowns, by Cholesky decomposition."""

import math
from collections.abc import Sequence

Matrix = list[list[float]]


def decompose(matrix: Sequence[Sequence[float]]) -> Matrix:
    """The lower triangle L with L Lᵀ = matrix. Raises ValueError when the matrix is not positive definite."""
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    for row in range(size):
        above = lower[row]
        for column in range(row + 1):
            other = lower[column]
            rest = matrix[row][column] - sum(above[one] * other[one] for one in range(column))
            if row != column:
                above[column] = rest / other[column]
            elif rest <= 0:
                raise ValueError("the matrix is not positive definite")
            else:
                above[column] = math.sqrt(rest)
    return lower


def solve(lower: Matrix, right: Sequence[float]) -> list[float]:
    """The solution of L Lᵀ x = right."""
    size = len(lower)
    half = [0.0] * size
    for row in range(size):
        half[row] = (right[row] - sum(lower[row][one] * half[one] for one in range(row))) / lower[row][row]
    found = [0.0] * size
    for row in reversed(range(size)):
        rest = half[row] - sum(lower[one][row] * found[one] for one in range(row + 1, size))
        found[row] = rest / lower[row][row]
    return found


def invert(lower: Matrix) -> Matrix:
    """The inverse of L Lᵀ."""
    size = len(lower)
    return [solve(lower, [float(one == column) for one in range(size)]) for column in range(size)]


def log_determinant(lower: Matrix) -> float:
    """The logarithm of the determinant of L Lᵀ."""
    return 2 * sum(math.log(lower[one][one]) for one in range(len(lower)))
