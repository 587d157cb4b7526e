# SPDX-License-Identifier: Apache-2.0
"""When a request would fit: what is taken now and until when, and what is promised for later."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.lease import Lease, LeaseState, Slice
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.relieve import relieve

MOST_TIMES = 64
"""Points in time that are looked at for one request."""


@dataclass(frozen=True)
class Booking:
    """Slices that are taken from begin to end (seconds since the epoch; end infinite: for good).

    vm_uuid: the VM that holds them now, None for a promise. memory_mib: of its guest.
    """

    name: str
    host: str
    slices: tuple[Slice, ...]
    begin: float
    end: float
    vm_uuid: str | None = None
    memory_mib: int = 0

    def overlaps(self, begin: float, end: float) -> bool:
        """Whether it takes its slices at any time of a range."""
        return self.begin < end and begin < self.end


@dataclass(frozen=True)
class Start:
    """When and where a request fits."""

    at: float
    placement: Placement


def first_start(
    request: VmRequest, capacities: Sequence[HostCapacity], bookings: Sequence[Booking], not_before: float
) -> Start | None:
    """The first time from not_before on at which the request fits for as long as it runs.

    None when it never does, as far as the bookings tell.
    """
    length = math.inf if request.duration_s is None else request.duration_s
    times = sorted({not_before, *(one.end for one in bookings if not_before < one.end < math.inf)})
    for at in times[:MOST_TIMES]:
        found = place_at(request, capacities, bookings, at, at + length)
        if found is not None:
            return Start(at, found)
    return None


def place_at(
    request: VmRequest, capacities: Sequence[HostCapacity], bookings: Sequence[Booking], begin: float, end: float
) -> Placement | None:
    """Where the request fits from begin to end; everything that is taken in between counts all the time."""
    leases = [lease for one in bookings if one.overlaps(begin, end) for lease in leases_of(one)]
    return Fleet([_at(capacity, bookings, begin, end) for capacity in capacities], leases).place(request)


def leases_of(booking: Booking) -> list[Lease]:
    """A booking as the scheduler counts what is promised."""
    tenant, _, name = booking.name.partition(".")
    return [
        Lease(f"{booking.name}#{index}", booking.vm_uuid or booking.name, tenant, name or tenant, booking.host, index,
              held, LeaseState.RESERVED)
        for index, held in enumerate(booking.slices)
    ]  # fmt: skip


def _at(capacity: HostCapacity, bookings: Sequence[Booking], begin: float, end: float) -> HostCapacity:
    """The host without the VMs that do not run then, and with the memory of those that will."""
    here = [one for one in bookings if one.host == capacity.name]
    gone = [one for one in here if one.vm_uuid is not None and not one.overlaps(begin, end)]
    freed_mib = sum(one.memory_mib for one in gone)
    later_mib = sum(one.memory_mib for one in here if one.vm_uuid is None and one.overlaps(begin, end))
    facts = capacity.facts
    if gone:
        slices = [held for one in gone for held in one.slices]
        facts = relieve(facts, slices, {one.vm_uuid for one in gone if one.vm_uuid is not None}, freed_mib)
    promised_mib = max(0, capacity.promised_memory_mib - freed_mib) + later_mib
    return replace(capacity, facts=facts, promised_memory_mib=promised_mib)
