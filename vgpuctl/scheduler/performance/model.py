# SPDX-License-Identifier: Apache-2.0
"""The fitted model of throughput, and what it predicts.

The slowdown of a VM, 1/throughput, is 1 plus a cost for each neighbour. Under time slices a neighbour that always has
work costs 1 (each waits for the other), one that never has work costs 0. fit.py estimates the costs."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from vgpuctl.scheduler.performance.interval import LEVEL, Unpredictable, t_quantile
from vgpuctl.scheduler.performance.job_times import JobTimes
from vgpuctl.scheduler.performance.measurement import Neighbour

FEWEST_MEASUREMENTS, FEWEST_VMS, FEWEST_OF_PAIR = 8, 3, 3
"""Below these nothing is predicted: measurements and VMs of the class, measurements beside a class of neighbours."""

SLOWEST_SLOWDOWN = 0.5
"""A neighbour does not make a VM more than twice as fast, whatever noise says."""


@dataclass(frozen=True)
class Prediction:
    """Throughput of one VM against running alone.

    low, high: 90 % of such VMs are between them. measurements, vms: of its class, which this rests on.
    """

    throughput: float
    low: float
    high: float
    measurements: int
    vms: int


@dataclass(frozen=True)
class ClassModel:
    """The costs of neighbours for one workload class under one isolation.

    terms: the unknowns, "" for what is common to all neighbours, a class of neighbours, or a class and a profile as
    "training@A40-8Q". mean, covariance: of the unknowns. noise: standard deviation of a measurement of a VM against
    what the model expects of it, vm_noise: of a VM against others of its class; both relative. freedom: degrees of
    freedom. profiles, pairs: how many measurements there are of a profile, and beside a class of neighbours.
    """

    isolation: str
    workload: str
    terms: tuple[str, ...]
    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    noise: float
    vm_noise: float
    freedom: float
    measurements: int
    vms: int
    most_neighbours: int
    profiles: Mapping[str, int] = field(default_factory=dict)
    pairs: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {term: place for place, term in enumerate(self.terms)}

    def predict(self, profile: str, neighbours: Sequence[str]) -> Prediction | Unpredictable:
        """Predict for neighbours of these classes."""
        refusal = self._refuse(profile, neighbours)
        if refusal is not None:
            return Unpredictable(refusal)
        weights: dict[int, float] = {}
        for name, times in Counter(neighbours).items():
            for term in ("", name, pair_term(name, profile)):
                place = self._places.get(term)
                if place is not None:
                    weights[place] = weights.get(place, 0.0) + times
        slowdown = max(SLOWEST_SLOWDOWN, 1 + sum(self.mean[one] * weight for one, weight in weights.items()))
        variance = sum(
            self.covariance[one][other] * weight * times
            for one, weight in weights.items()
            for other, times in weights.items()
        )
        variance += slowdown**2 * (self.noise**2 + self.vm_noise**2)
        reach = t_quantile((1 + LEVEL) / 2, self.freedom) * math.sqrt(variance)
        low, high = 1 / (slowdown + reach), 1 / max(SLOWEST_SLOWDOWN, slowdown - reach)
        return Prediction(1 / slowdown, low, high, self.measurements, self.vms)

    def cost_of(self, neighbour: str) -> tuple[float, float]:
        """The mean and standard deviation of a neighbour's cost in slowdown, over all profiles."""
        places = [self._places[one] for one in ("", neighbour) if one in self._places]
        variance = sum(self.covariance[one][other] for one in places for other in places)
        return sum(self.mean[one] for one in places), math.sqrt(max(0.0, variance))

    def _refuse(self, profile: str, neighbours: Sequence[str]) -> str | None:
        what = f"{self.workload} under {self.isolation}"
        if self.measurements < FEWEST_MEASUREMENTS or self.vms < FEWEST_VMS:
            return f"{what} was measured {self.measurements} times on {self.vms} VMs, which is too little"
        if profile not in self.profiles:
            return f"{what} was never measured with profile {profile}"
        if len(neighbours) > self.most_neighbours:
            return f"{what} was measured with at most {self.most_neighbours} neighbours, not {len(neighbours)}"
        for name in sorted(set(neighbours)):
            if self.pairs.get(name, 0) < FEWEST_OF_PAIR:
                return f"{what} was measured {self.pairs.get(name, 0)} times beside {name}, which is too little"
        return None


@dataclass(frozen=True)
class PerformanceModel:
    """The models of all classes. made_at: seconds since the epoch, UTC. source: what it was fitted from.

    times: how long jobs take on each board.
    """

    classes: tuple[ClassModel, ...] = ()
    made_at: float = 0.0
    source: str = ""
    times: JobTimes = field(default_factory=JobTimes)

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], ClassModel]:
        return {(one.isolation, one.workload): one for one in self.classes}

    @cached_property
    def _known(self) -> dict[object, Prediction | Unpredictable]:
        return {}

    def predict(
        self, isolation: str, workload: str, profile: str, neighbours: Sequence[str]
    ) -> Prediction | Unpredictable:
        """Predict the throughput of one VM beside neighbours of these classes."""
        key = (isolation, workload, profile, tuple(sorted(neighbours)))
        if key not in self._known:
            found = self._by_key.get((isolation, workload))
            self._known[key] = (
                Unpredictable(f"no {workload} VM was measured under {isolation}")
                if found is None
                else found.predict(profile, key[3])
            )
        return self._known[key]


@dataclass(frozen=True)
class Impact:
    """The effect of one more VM on a GPU. own: its throughput. losses: each neighbour, before and after."""

    own: Prediction
    losses: tuple[tuple[Neighbour, Prediction, Prediction], ...] = ()

    @property
    def lost(self) -> float:
        """Throughput that is lost, in VMs that run alone: its own, and what it takes from its neighbours."""
        own = max(0.0, 1 - self.own.throughput)
        return own + sum(before.throughput - after.throughput for _, before, after in self.losses)


def predict_impact(
    model: PerformanceModel, isolation: str, added: Neighbour, neighbours: Sequence[Neighbour]
) -> Impact | Unpredictable:
    """Predict for a VM that joins these neighbours on one GPU. The first that cannot be predicted is the answer."""
    workload, profile = added
    own = model.predict(isolation, workload, profile, [name for name, _ in neighbours])
    if isinstance(own, Unpredictable):
        return own
    losses = []
    for place, (name, size) in enumerate(neighbours):
        others = [other for number, (other, _) in enumerate(neighbours) if number != place]
        before = model.predict(isolation, name, size, others)
        after = model.predict(isolation, name, size, [*others, workload])
        if isinstance(before, Unpredictable):
            return before
        if isinstance(after, Unpredictable):
            return after
        losses.append(((name, size), before, after))
    return Impact(own, tuple(losses))


def pair_term(neighbour: str, profile: str) -> str:
    """The name of the unknown of a class of neighbours for VMs of one profile."""
    return f"{neighbour}@{profile}"
