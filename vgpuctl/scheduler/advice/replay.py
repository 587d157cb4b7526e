# SPDX-License-Identifier: Apache-2.0
"""Replays the kept minutes of the vGPUs of a GPU under another scheduler or other company.

The demand of a vGPU is not seen. It is what it used, and in minutes with steal more: what it uses in minutes without,
as far as the steal allows, which is an upper bound itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from vgpuctl.scheduler.advice.measured import MeasuredVgpu, share_minutes

EQUAL_SHARE, FIXED_SHARE = "equal-share", "fixed-share"
FEWEST_FREE_MINUTES = 10


@dataclass(frozen=True)
class VgpuDemand:
    """The wanted time of one vGPU by minute. is_bound: True if only the steal bounds it."""

    by_minute: Mapping[int, float]
    is_bound: bool


@dataclass(frozen=True)
class Outcome:
    """Sums over minutes of parts of the GPU's time. delivered: of what was promised and wanted; wanted: all of that.

    used: all time that was used. minutes: how many were replayed.
    """

    delivered: float
    wanted: float
    used: float
    minutes: int

    @property
    def missing_hours(self) -> float:
        """Hours of GPU time that were promised, wanted and not given."""
        return (self.wanted - self.delivered) / 60


def demand_of(vgpu: MeasuredVgpu) -> VgpuDemand:
    """Estimate the demand of one vGPU."""
    free = [use for minute, use in vgpu.use.items() if vgpu.stolen.get(minute, 0.0) <= 0]
    is_bound = len(free) < FEWEST_FREE_MINUTES
    usual = 0.0 if is_bound else median(free)
    found = {}
    for minute, use in vgpu.use.items():
        stolen = vgpu.stolen.get(minute, 0.0)
        found[minute] = use + (stolen if is_bound else min(stolen, max(0.0, usual - use)))
    return VgpuDemand(found, is_bound and any(vgpu.stolen.values()))


def as_measured(vgpus: Sequence[MeasuredVgpu], demands: Mapping[str, VgpuDemand]) -> Outcome:
    """The present, as it was measured."""
    return _outcome(vgpus, demands, {one.lease.id: one.use for one in vgpus})


def under_scheduler(vgpus: Sequence[MeasuredVgpu], demands: Mapping[str, VgpuDemand], policy: str) -> Outcome:
    """The outcome under equal or fixed share: no more than the share, whoever is idle."""
    minutes = share_minutes(vgpus)
    running = {minute: sum(minute in one.use for one in vgpus) for minute in minutes}
    got = {}
    for one in vgpus:
        wants = demands[one.lease.id].by_minute
        got[one.lease.id] = {
            minute: min(want, 1 / running[minute] if policy == EQUAL_SHARE else one.promised or 0.0)
            for minute, want in wants.items()
        }
    return _outcome(vgpus, demands, got)


def under_best_effort(vgpus: Sequence[MeasuredVgpu], demands: Mapping[str, VgpuDemand]) -> Outcome:
    """The outcome if a GPU without idle time gives it in proportion to demand: a careful guess."""
    totals: dict[int, float] = {}
    for one in vgpus:
        for minute, want in demands[one.lease.id].by_minute.items():
            totals[minute] = totals.get(minute, 0.0) + want
    got = {
        one.lease.id: {
            minute: want / max(1.0, totals[minute]) for minute, want in demands[one.lease.id].by_minute.items()
        }
        for one in vgpus
    }
    return _outcome(vgpus, demands, got)


def _outcome(
    vgpus: Sequence[MeasuredVgpu], demands: Mapping[str, VgpuDemand], got: Mapping[str, Mapping[int, float]]
) -> Outcome:
    delivered = wanted = used = 0.0
    for one in vgpus:
        promised = one.promised or 0.0
        for minute, want in demands[one.lease.id].by_minute.items():
            given = got[one.lease.id].get(minute, 0.0)
            wanted += min(want, promised)
            delivered += min(given, want, promised)
            used += given
    return Outcome(delivered, wanted, used, len(share_minutes(vgpus)))
