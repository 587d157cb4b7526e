# SPDX-License-Identifier: Apache-2.0
"""Fleets with measured vGPUs for tests of advice."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.unit.fleet_factory import leases_of, vm
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.advice.measured import FRAMEBUFFER, STEAL, UTILIZATION, MeasuredFleet, MeasuredVgpu, Point
from vgpuctl.scheduler.capacity import PlacedVm
from vgpuctl.scheduler.place import place

NOW = 1_800_000_000.0
GIB = float(1 << 30)
Curve = Callable[[int], float]
"""A value by minutes before now."""


class FleetBuilder:
    """Places VMs on hosts and gives them series."""

    def __init__(self, *capacities: HostCapacity) -> None:
        self._capacities = capacities
        self._leases: list[Lease] = []
        self._vms: dict[str, PlacedVm] = {}
        self._vgpus: list[MeasuredVgpu] = []
        self._waiting: list[VmRequest] = []

    def unread(self, name: str, profile: str, on: str) -> "FleetBuilder":
        """Place a VM that nobody measures."""
        self.vm(name, profile, on)
        self._vgpus.pop()
        return self

    def vm(self, name: str, profile: str, on: str | None = None, **series: object) -> "FleetBuilder":
        """Place a VM. series: for `measured`."""
        request = vm(profile, name=name, on=on)
        placement = place(request, self._capacities, self._leases)
        leases = leases_of(placement, vm_name=name)
        self._leases += leases
        uuid = leases[0].vm_uuid
        request = replace(request, host=None)
        self._vms[uuid] = PlacedVm(uuid, name, request, placement.host, NO_FOOTPRINT, tuple(leases))
        self._vgpus.append(measured(leases[0], **series))  # type: ignore[arg-type]
        return self

    def waits(self, name: str, *gpus: str) -> "FleetBuilder":
        """Queue a VM."""
        self._waiting.append(vm(*gpus, name=name))
        return self

    def build(self) -> MeasuredFleet:
        """The fleet, now."""
        return MeasuredFleet(
            now=NOW,
            capacities=tuple(self._capacities),
            leases=tuple(self._leases),
            vms=self._vms,
            vgpus=tuple(self._vgpus),
            waiting=tuple(self._waiting),
            waited_s=tuple(7200.0 for _ in self._waiting),
        )


def measured(
    lease: Lease,
    *,
    hours: Sequence[float] = (),
    use_hours: Sequence[float] = (),
    use: Curve | None = None,
    steal: Curve | None = None,
    framebuffer: Curve | None = None,
    minutes: int = 120,
    promised: float | None = None,
) -> MeasuredVgpu:
    """A vGPU with series. hours: framebuffer in bytes by hours, the newest last; use_hours: peaks of use."""

    def hourly(values: Sequence[float]) -> tuple[Point, ...]:
        first = NOW - 3600 * len(values)
        return tuple(Point(first + 3600 * at, value * 0.8, 0.0, value, 60) for at, value in enumerate(values))

    curves = {UTILIZATION: use, STEAL: steal, FRAMEBUFFER: framebuffer}
    series = {
        name: tuple(
            Point(NOW - 60 * before, value, value, value) for before in range(minutes, 0, -1) for value in [of(before)]
        )
        for name, of in curves.items()
        if of is not None
    }
    return MeasuredVgpu(lease, {FRAMEBUFFER: hourly(hours), UTILIZATION: hourly(use_hours)}, series, promised)
