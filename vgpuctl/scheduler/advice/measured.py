# SPDX-License-Identifier: Apache-2.0
"""The data of advice: the fleet as it is, with the kept readings of its vGPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.units import MIB
from vgpuctl.model.vm import VmRequest, printed_name
from vgpuctl.scheduler.advice.replayed_fleet import ReplayedFleet
from vgpuctl.scheduler.capacity import PlacedVm

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0

UTILIZATION, STEAL, SHARE, FRAMEBUFFER = (
    "utilization_ratio",
    "steal_ratio",
    "share_utilization_ratio",
    "framebuffer_used_bytes",
)
"""Measures of a vGPU in the kept history (agent/wire/measures.py)."""

POWER = "power_watts"
"""A measure of a GPU there."""


class Point(NamedTuple):
    """One step of a series. at: its begin, seconds since the epoch. minutes: of the step that have a value."""

    at: float
    mean: float
    low: float
    high: float
    minutes: int = 1


Points = tuple[Point, ...]

OLDEST_MINUTE_S, OLDEST_HOUR_S = 15 * MINUTE_S, 2 * HOUR_S
"""A step of a minute, or of an hour, that began earlier tells nothing of now."""


def is_of_now(points: Points, now: float, oldest_s: float = OLDEST_MINUTE_S) -> bool:
    """True if the newest point is so new that what was measured is still so. oldest_s: by the step."""
    return bool(points) and now - points[-1].at <= oldest_s


@dataclass(frozen=True)
class MeasuredVgpu:
    """One vGPU with a lease. hours, minutes: series by measure, in steps of an hour and of a minute.

    promised: part of the GPU's time that it is promised, None where nobody tells.
    """

    lease: Lease
    hours: Mapping[str, Points] = field(default_factory=dict)
    minutes: Mapping[str, Points] = field(default_factory=dict)
    promised: float | None = None

    @property
    def place(self) -> tuple[str, str]:
        """Host and GPU."""
        return self.lease.host, self.lease.share.gpu

    @property
    def vm(self) -> str:
        """The VM as events name it."""
        return printed_name(self.lease.tenant, self.lease.vm_name)

    @property
    def hourly(self) -> Points:
        """The hours of framebuffer in use."""
        return self.hours.get(FRAMEBUFFER, ())

    @property
    def size_bytes(self) -> float | None:
        """The framebuffer that the profile promises."""
        size = self.lease.share.framebuffer_mib
        return None if size is None else float(size * MIB)

    @cached_property
    def measured_hours(self) -> float:
        """How many hours of framebuffer were measured, by the minutes with a value."""
        return hours_of(self.hourly)

    def of(self, measure: str) -> Points:
        """The minutes of a measure."""
        return self.minutes.get(measure, ())

    @cached_property
    def use(self) -> dict[int, float]:
        """The used part of the GPU's time by minute."""
        return {int(one.at // MINUTE_S): max(0.0, one.mean) for one in self.of(UTILIZATION)}

    @cached_property
    def stolen(self) -> dict[int, float]:
        """At most how much of the GPU's time its neighbours took, by minute."""
        return {int(one.at // MINUTE_S): max(0.0, one.mean) for one in self.of(STEAL)}


@dataclass(frozen=True)
class MeasuredFleet:
    """now: seconds since the epoch, UTC. vms: by UUID. waiting: requests in the queue, the oldest first.

    waited_s: of each of them. power: minutes of the power draw in watts, by host and GPU.
    """

    now: float
    capacities: tuple[HostCapacity, ...] = ()
    leases: tuple[Lease, ...] = ()
    vms: Mapping[str, PlacedVm] = field(default_factory=dict)
    vgpus: tuple[MeasuredVgpu, ...] = ()
    waiting: tuple[VmRequest, ...] = ()
    waited_s: tuple[float, ...] = ()
    power: Mapping[tuple[str, str], Points] = field(default_factory=dict)

    @cached_property
    def by_gpu(self) -> dict[tuple[str, str], list[MeasuredVgpu]]:
        """The vGPUs by host and GPU, in order."""
        found: dict[tuple[str, str], list[MeasuredVgpu]] = {}
        for one in sorted(self.vgpus, key=lambda one: (*one.place, one.lease.id)):
            found.setdefault(one.place, []).append(one)
        return found

    @cached_property
    def unread(self) -> frozenset[tuple[str, str]]:
        """The GPUs with a share of a running VM whose use nobody has measured lately: none of them is known as calm."""
        told = {one.lease.id for one in self.vgpus if is_of_now(one.of(UTILIZATION), self.now)}
        running = (one for one in self.leases if one.state is LeaseState.RUNNING and one.id not in told)
        return frozenset((one.host, one.share.gpu) for one in running)

    @cached_property
    def replayed(self) -> ReplayedFleet:
        """The hosts and leases, to replay changes on."""
        return ReplayedFleet(self.capacities, self.leases)

    @cached_property
    def shares_of_vm(self) -> dict[str, int]:
        """How many leases each VM has, by UUID."""
        found: dict[str, int] = {}
        for lease in self.leases:
            found[lease.vm_uuid] = found.get(lease.vm_uuid, 0) + 1
        return found

    def capacity(self, host: str) -> HostCapacity | None:
        """One host, None where its facts are not known."""
        return next((one for one in self.capacities if one.name == host), None)


def hours_of(points: Points) -> float:
    """How many hours a series of hours has, by the minutes with a value."""
    return sum(min(60, one.minutes) for one in points) / 60


def share_minutes(vgpus: Sequence[MeasuredVgpu]) -> list[int]:
    """The minutes in which any of these vGPUs was measured, in order."""
    return sorted({minute for one in vgpus for minute in one.use})
