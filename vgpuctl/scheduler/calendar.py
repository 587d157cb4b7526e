# SPDX-License-Identifier: Apache-2.0
"""When a request would fit: what is taken now and until when, and what is promised for later."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.numa import NO_FOOTPRINT, Footprint
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.reservation import Window
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.relieve import relieve
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of

MOST_TIMES = 64
"""Points in time that are looked at for one request."""


@dataclass(frozen=True)
class Booking:
    """Shares that are taken from begin to end (seconds since the epoch; end infinite: for good).

    vm_uuid: the VM that holds them now, None for a promise. footprint: what its guest takes.
    """

    name: str
    host: str
    shares: tuple[Share, ...]
    begin: float
    end: float
    vm_uuid: str | None = None
    footprint: Footprint = NO_FOOTPRINT

    def overlaps(self, begin: float, end: float) -> bool:
        """True if it takes its shares at any time of a range."""
        return self.begin < end and begin < self.end


@dataclass(frozen=True)
class Start:
    """When and where requests fit together."""

    at: float
    placements: tuple[Placement, ...]


def first_start(
    requests: Sequence[VmRequest], capacities: Sequence[HostCapacity], bookings: Sequence[Booking], not_before: float
) -> Start | None:
    """The first time from not_before on at which the requests fit together for as long as the longest runs.

    None when they never do, as far as the bookings tell.
    """
    length = max(math.inf if one.duration_s is None else one.duration_s for one in requests)
    for at in _times(bookings, not_before):
        found = place_over(requests, capacities, bookings, [(at, at + length)])
        if found is not None:
            return Start(at, tuple(found))
    return None


def first_windows(
    request: VmRequest, capacities: Sequence[HostCapacity], bookings: Sequence[Booking], windows: Sequence[Window]
) -> float | None:
    """The first time, from the first window's begin on, to which the windows could be moved together."""
    begin = windows[0][0]
    for at in _times(bookings, begin):
        moved = [(one + at - begin, other + at - begin) for one, other in windows]
        if place_over([request], capacities, bookings, moved) is not None:
            return at
    return None


def place_over(
    requests: Sequence[VmRequest],
    capacities: Sequence[HostCapacity],
    bookings: Sequence[Booking],
    windows: Sequence[Window],
) -> list[Placement] | None:
    """Where the requests fit together in all windows, None if nowhere. A booking in any window counts all the time."""
    return place_together(_fleet_over(capacities, bookings, windows), requests)


def emptied(capacities: Sequence[HostCapacity], bookings: Sequence[Booking]) -> Fleet:
    """The fleet when every VM has ended and nothing is promised: what it refuses, it refuses at any time."""
    return _fleet_over(capacities, bookings, ())


def _fleet_over(capacities: Sequence[HostCapacity], bookings: Sequence[Booking], windows: Sequence[Window]) -> Fleet:
    there = {one.name: one for one in bookings if _is_in(one, windows)}
    leases = distinct([lease for one in there.values() for lease in leases_of(one)])
    return Fleet([_at(capacity, bookings, windows) for capacity in capacities], leases)


def distinct(leases: Sequence[Lease]) -> list[Lease]:
    """The leases with each function of a host once: what follows each other on it is not taken twice at a time."""
    found: dict[tuple[str, str], Lease] = {}
    for lease in leases:
        held = lease.share
        kind = kind_of(held.sharing)
        is_alone = kind.is_on_vf or kind.takes is Takes.CARD
        key = held.function if is_alone else lease.id
        found.setdefault((lease.host, key), lease)
    return list(found.values())


def _times(bookings: Sequence[Booking], not_before: float) -> list[float]:
    return sorted({not_before, *(one.end for one in bookings if not_before < one.end < math.inf)})[:MOST_TIMES]


def _is_in(booking: Booking, windows: Sequence[Window]) -> bool:
    return any(booking.overlaps(begin, end) for begin, end in windows)


def leases_of(booking: Booking) -> list[Lease]:
    """A booking as the scheduler counts what is promised."""
    tenant, _, name = booking.name.partition("/")
    return [
        Lease(f"{booking.name}#{index}", booking.vm_uuid or booking.name, tenant, name or tenant, booking.host, index,
              held, LeaseState.RESERVED)
        for index, held in enumerate(booking.shares)
    ]  # fmt: skip


def _at(capacity: HostCapacity, bookings: Sequence[Booking], windows: Sequence[Window]) -> HostCapacity:
    """The host without the VMs that do not run then, and with what those take that will."""
    here = [one for one in bookings if one.host == capacity.name]
    gone = [one for one in here if one.vm_uuid is not None and not _is_in(one, windows)]
    freed = [one.footprint for one in gone]
    later = [one.footprint for one in here if one.vm_uuid is None and _is_in(one, windows)]
    facts = capacity.facts
    if gone:
        shares = [held for one in gone for held in one.shares]
        facts = relieve(facts, shares, {one.vm_uuid for one in gone if one.vm_uuid is not None}, freed)
    return replace(with_promised(capacity, less=freed, more=later), facts=facts)
