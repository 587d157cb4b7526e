# SPDX-License-Identifier: Apache-2.0
"""The fleet of the store with the past readings of its vGPUs, as findings and advice need it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from vgpuctl.agent.wire.measures import GPU, VGPU
from vgpuctl.model.lease import Lease
from vgpuctl.model.network import Backend
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.vm import OvnVmRequest, VmState
from vgpuctl.scheduler.advice.measured import (
    FRAMEBUFFER,
    HOUR_S,
    MINUTE_S,
    POWER,
    SHARE,
    STEAL,
    UTILIZATION,
    MeasuredFleet,
    MeasuredVgpu,
    Point,
    Points,
)
from vgpuctl.scheduler.capacity import PlacedVm
from vgpuctl.scheduler.guest_place import footprint_of_vm
from vgpuctl.usecases.network.ports import with_networks
from vgpuctl.usecases.observed.capacities import cached_capacities
from vgpuctl.usecases.running.history import Past
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.telemetry.history import Sample, Subject

_LEAST_SHARE = 0.01
"""Below this the quotient of use and share is mostly rounding."""


@dataclass(frozen=True)
class Windows:
    """How far back series are read, in seconds; 0 reads none. hours: steps of an hour. minutes: by measure.

    power: minutes of the GPUs' power draw.
    """

    hours: float
    minutes: Mapping[str, float]
    power: float = 0.0


def read_fleet_measured(services: Services, past: Past, windows: Windows) -> MeasuredFleet:
    """Read the store and the past. No host is contacted. Raises one of PAST_PROBLEMS."""
    with services.store.reading() as session:
        now = session.now()
        capacities = tuple(cached_capacities(session, services.inventory, services.say))
        leases = session.leases()
        vms = [vm for vm in session.vms() if vm.state in (VmState.RUNNING, VmState.STOPPED)]
        queue = [(request, now - entry.queued_at) for entry in session.queue() for request in entry.requests]
        carried = session.vms_in(Backend.OVN)
    by_vm: defaultdict[str, list[Lease]] = defaultdict(list)
    for lease in leases:
        by_vm[lease.vm_uuid].append(lease)
    placed = {
        vm.uuid: PlacedVm(
            vm_uuid=vm.uuid,
            name=vm.printed_name,
            request=OvnVmRequest.of(vm.request) if vm.uuid in carried else vm.request,
            host=vm.host,
            footprint=footprint_of_vm(vm, own) if vm.state is VmState.RUNNING else NO_FOOTPRINT,
            leases=own,
        )
        for vm in vms
        for own in [tuple(by_vm[vm.uuid])]
    }
    return MeasuredFleet(
        now=now,
        capacities=capacities,
        leases=tuple(leases),
        vms=placed,
        vgpus=tuple(read_vgpus(past, leases, now, windows)),
        waiting=tuple(with_networks(services, request) for request, _ in queue),
        waited_s=tuple(waited for _, waited in queue),
        power=_power(past, now, windows.power) if windows.power else {},
    )


def _power(past: Past, now: float, window_s: float) -> dict[tuple[str, str], Points]:
    found = past.series(GPU, POWER, since=now - window_s, until=now + MINUTE_S)
    return {
        (subject.host, subject.gpu): tuple(Point(one.at, one.mean, one.low, one.high, one.minutes) for one in samples)
        for subject, samples in found.items()
    }


def read_vgpus(past: Past, leases: Sequence[Lease], now: float, windows: Windows) -> list[MeasuredVgpu]:
    """The leases with their series; those without any are left out. Raises one of PAST_PROBLEMS."""
    names = _Names(leases)
    minutes: defaultdict[str, dict[str, Points]] = defaultdict(dict)
    for measure, window_s in windows.minutes.items():
        found = past.series(VGPU, measure, since=now - window_s, until=now + MINUTE_S)
        for lease_id, points in names.points_of(found).items():
            minutes[lease_id][measure] = points
    hours: defaultdict[str, dict[str, Points]] = defaultdict(dict)
    for measure in (FRAMEBUFFER, UTILIZATION) if windows.hours else ():
        found = past.series(VGPU, measure, since=now - windows.hours, until=now + MINUTE_S, step_s=int(HOUR_S))
        for lease_id, points in names.points_of(found).items():
            hours[lease_id][measure] = points
    return [
        MeasuredVgpu(lease, hours.get(lease.id, {}), minutes.get(lease.id, {}), _promised(minutes.get(lease.id, {})))
        for lease in leases
        if lease.id in minutes or lease.id in hours
    ]


class _Names:
    """The leases by the names of subjects: by device, else the only one of a VM, GPU and profile."""

    def __init__(self, leases: Iterable[Lease]) -> None:
        self._by_device: dict[tuple[str, str, str, str], str] = {}
        self._by_vm: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for one in leases:
            for device in {*one.share.names, one.share.vfio_device}:
                self._by_device[one.host, device, one.tenant, one.vm_name] = one.id
            self._by_vm[one.host, one.share.gpu, one.tenant, one.vm_name, one.share.profile].append(one.id)

    def points_of(self, series: "Mapping[Subject, Sequence[Sample]]") -> dict[str, Points]:
        """The series by the lease's id. Those of VMs that are gone, or of others, are left out."""
        found: defaultdict[str, list[Point]] = defaultdict(list)
        for subject, samples in series.items():
            lease_id = self._by_device.get((subject.host, subject.object, subject.tenant, subject.vm))
            if lease_id is None:
                same = self._by_vm.get((subject.host, subject.gpu, subject.tenant, subject.vm, subject.profile), [])
                lease_id = same[0] if len(same) == 1 else None
            if lease_id is not None:
                found[lease_id] += [Point(one.at, one.mean, one.low, one.high, one.minutes) for one in samples]
        return {lease_id: tuple(sorted(points)) for lease_id, points in found.items()}


def _promised(minutes: Mapping[str, Points]) -> float | None:
    """The part of the GPU's time that is promised: use divided by the use of the promise."""
    shares = {one.at: one.mean for one in minutes.get(SHARE, ())}
    found = [
        one.mean / shares[one.at]
        for one in minutes.get(UTILIZATION, ())
        if shares.get(one.at, 0.0) > _LEAST_SHARE and one.mean > 0
    ]
    return min(1.0, median(found)) if found else None


REPLAYED = (UTILIZATION, STEAL, SHARE)
