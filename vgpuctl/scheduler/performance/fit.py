# SPDX-License-Identifier: Apache-2.0
"""Fits the model of throughput: Bayesian linear regression with shrinkage, one workload class at a time.

slowdown = 1 + sum over neighbours of (common + of their class + of their class for this profile), with noise in
proportion to the slowdown, of each VM and of each measurement. A cost that was rarely measured shrinks to the common
one. How much, and how large the noise of a VM is against that of a measurement, is averaged over a grid by marginal
likelihood (normal-inverse-gamma, as in Gelman et al., Bayesian Data Analysis, 3rd edition, chapters 14 and 15).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import product

from vgpuctl.scheduler.performance.measurement import Measurement
from vgpuctl.scheduler.performance.model import ClassModel, PerformanceModel, pair_term
from vgpuctl.scheduler.performance.regression import PRIOR_SHAPE, solve_choice

_COMMON = 1e4
"""Prior variance of the common cost, in units of the noise: as good as unknown."""

_CLASS_GRID, _PROFILE_GRID, _VM_GRID = (1.0, 10.0, 100.0), (0.03, 1.0, 30.0), (0.0, 0.5, 2.0, 8.0)
"""Prior variances of classes and profiles, and variance between VMs, in units of the noise."""

_ROUNDS = 3
_LEAST_WEIGHT = 1e-3


def fit(measurements: Iterable[Measurement], *, made_at: float = 0.0, source: str = "") -> PerformanceModel:
    """Fit every workload class of every isolation. Equal measurements in any order give an equal model."""
    groups: defaultdict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for one in measurements:
        groups[one.isolation, one.workload].append(one)
    classes = tuple(_fit_class(key, groups[key]) for key in sorted(groups))
    return PerformanceModel(classes, made_at, source)


def _fit_class(key: tuple[str, str], given: Sequence[Measurement]) -> ClassModel:
    found = sorted(given, key=lambda one: (one.vm, one.profile, one.neighbours, one.throughput))
    profiles = Counter(one.profile for one in found)
    pairs = Counter(name for one in found for name in set(one.neighbours))
    terms = ["", *sorted(pairs)]
    if len(profiles) > 1:
        terms += sorted({pair_term(name, one.profile) for one in found for name in one.neighbours})
    places = {term: place for place, term in enumerate(terms)}
    rows = [_row(one, places) for one in found]
    fitted = _Fitted(terms, len(terms))
    slowdowns = [1 / one.throughput for one in found]
    weights = [max(1.0, one) for one in slowdowns]
    for _ in range(_ROUNDS):
        fitted = _average(terms, rows, slowdowns, weights, [one.vm for one in found])
        expected = [1 + sum(fitted.mean[place] * times for place, times in row.items()) for row in rows]
        weights = [max(0.5, one) for one in expected]
    return ClassModel(
        isolation=key[0],
        workload=key[1],
        terms=tuple(terms),
        mean=tuple(fitted.mean),
        covariance=tuple(map(tuple, fitted.covariance)),
        noise=math.sqrt(fitted.noise),
        vm_noise=math.sqrt(fitted.vm_noise),
        freedom=2 * PRIOR_SHAPE + len(found),
        measurements=len(found),
        vms=len({one.vm for one in found}),
        most_neighbours=max(len(one.neighbours) for one in found),
        profiles=dict(sorted(profiles.items())),
        pairs=dict(sorted(pairs.items())),
    )


def _row(one: Measurement, places: dict[str, int]) -> dict[int, float]:
    row: dict[int, float] = {}
    for name, times in Counter(one.neighbours).items():
        for term in ("", name, pair_term(name, one.profile)):
            if term in places:
                row[places[term]] = row.get(places[term], 0.0) + times
    return row


class _Fitted:
    """Moments of the unknowns, and variances of a measurement and of a VM."""

    def __init__(self, terms: Sequence[str], size: int) -> None:
        self.terms = terms
        self.mean = [0.0] * size
        self.covariance = [[0.0] * size for _ in range(size)]
        self.noise = 0.0
        self.vm_noise = 0.0


class _Sums:
    """Cross products of the weighted rows, whole and by VM, from which every choice of the grid is solved."""

    def __init__(
        self,
        size: int,
        rows: Sequence[dict[int, float]],
        slowdowns: Sequence[float],
        weights: Sequence[float],
        vms: Sequence[str],
    ) -> None:
        self.size = size
        self.count = len(rows)
        self.squares = [[0.0] * size for _ in range(size)]
        self.right = [0.0] * size
        self.total = 0.0
        by_vm: dict[str, tuple[list[float], list[float]]] = {}
        for row, slowdown, weight, vm in zip(rows, slowdowns, weights, vms, strict=True):
            value = (slowdown - 1) / weight
            self.total += value * value
            sums, counts = by_vm.setdefault(vm, ([0.0] * size, [0.0, 0.0]))
            counts[0] += 1
            counts[1] += value
            for place, times in row.items():
                sums[place] += times / weight
                self.right[place] += times / weight * value
                for other, also in row.items():
                    self.squares[place][other] += times * also / weight**2
        self.vms = list(by_vm.values())

    def with_vms(self, ratio: float) -> tuple[list[list[float]], list[float], float, float]:
        """The same with the inverse covariance of VMs that differ, and the log determinant of that covariance."""
        squares, right, total, determinant = [list(row) for row in self.squares], list(self.right), self.total, 0.0
        if ratio == 0:
            return squares, right, total, determinant
        for sums, (count, value) in self.vms:
            part = ratio / (1 + count * ratio)
            determinant += math.log1p(count * ratio)
            total -= part * value * value
            used = [place for place in range(self.size) if sums[place]]
            for place in used:
                right[place] -= part * sums[place] * value
                for other in used:
                    squares[place][other] -= part * sums[place] * sums[other]
        return squares, right, total, determinant


def _average(
    terms: Sequence[str],
    rows: Sequence[dict[int, float]],
    slowdowns: Sequence[float],
    weights: Sequence[float],
    vms: Sequence[str],
) -> _Fitted:
    """The mixture of all choices of the grid, by their marginal likelihood."""
    sums = _Sums(len(terms), rows, slowdowns, weights, vms)
    has_profiles = any("@" in term for term in terms)
    profile_grid = _PROFILE_GRID if has_profiles else _PROFILE_GRID[:1]
    vm_grid = _VM_GRID if len(sums.vms) < sums.count else _VM_GRID[:1]
    found = []
    for ratio in vm_grid:
        parts = sums.with_vms(ratio)
        for of_class, of_profile in product(_CLASS_GRID, profile_grid):
            prior = [_COMMON if not one else of_profile if "@" in one else of_class for one in terms]
            found.append((*solve_choice(prior, sums.count, *parts), ratio))
    best = max(likelihood for likelihood, *_ in found)
    kept = [(math.exp(one[0] - best), *one[1:]) for one in found]
    total = sum(one[0] for one in kept)
    kept = [one for one in kept if one[0] / total > _LEAST_WEIGHT]
    total = sum(one[0] for one in kept)
    size = len(terms)
    mixed = _Fitted(terms, size)
    for weight, mean, _, noise, ratio in kept:
        part = weight / total
        mixed.noise += part * noise
        mixed.vm_noise += part * noise * ratio
        for place in range(size):
            mixed.mean[place] += part * mean[place]
    for weight, mean, inverse, noise, _ in kept:
        part = weight / total
        away = [mean[place] - mixed.mean[place] for place in range(size)]
        for place in range(size):
            row = mixed.covariance[place]
            for other in range(size):
                row[other] += part * (noise * inverse[place][other] + away[place] * away[other])
    return mixed
