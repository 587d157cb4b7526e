# SPDX-License-Identifier: Apache-2.0
"""The queue of VMs that wait: its list, its order, and leaving it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpuctl.errors import NotFound, QuotaExceeded
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.queue import QueueEntry, QueueSettings
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.placement.queue_entries import record_leaving
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.model.licence import LicenceSeat
    from vgpuctl.scheduler.calendar import Start
    from vgpuctl.store.store import Session
    from vgpuctl.usecases.seats.licences import SeatsToCome


@dataclass(frozen=True)
class Waiting:
    """One entry at its position, from 1.

    expected_at: when it will start as far as declared ends and seats of licences that come back tell, else None; None
    for one that its tenant's quota or a ceiling of it refuses.

    node_pool, cluster: of a node.
    """

    position: int
    entry: QueueEntry
    expected_at: float | None
    node_pool: str | None = None
    cluster: str | None = None


def list_queue(
    services: Services, *, has_inventory: bool, tenant: str | None = None
) -> tuple[QueueSettings, Sequence[Waiting]]:
    """The queue in the order in which it is served now, with the expected start of each. No host is contacted.

    has_inventory: whether labels and maintenance of the inventory count for the expected start. tenant: only its
    entries, at their positions among all. Raises NotFound for an unknown tenant.
    """
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        now = session.now()
        settings = session.queue_settings()
        if not session.queue():
            return settings, []
        from vgpuctl.quota.host_pools import closed_hosts
        from vgpuctl.scheduler.calendar import Booking, first_start
        from vgpuctl.scheduler.guest_place import footprint_of
        from vgpuctl.usecases.network.ports import with_networks
        from vgpuctl.usecases.observed.capacities import cached_capacities
        from vgpuctl.usecases.observed.node_states import Memberships
        from vgpuctl.usecases.placement.queue_order import ordered_queue
        from vgpuctl.usecases.placement.reservations import bookings_of
        from vgpuctl.usecases.seats.licences import seats_to_come

        ordered = ordered_queue(session, now)
        capacities = cached_capacities(session, services.inventory if has_inventory else None)
        bookings = bookings_of(session)
        pools = session.host_pools()
        memberships = Memberships(session)
        seats = seats_to_come(session)
    waiting = []
    for position, entry in enumerate(ordered, 1):
        closed = closed_hosts(entry.request.tenant, pools)
        usable = [one for one in capacities if one.name not in closed]
        requests = [with_networks(services, one) for one in entry.requests]
        start = first_start(requests, usable, bookings, now)
        allowed = None if start is None else _allowed(services, entry, start, seats)
        if start is not None and allowed is not None and allowed.at > start.at:
            start = first_start(requests, usable, bookings, allowed.at)
        node = memberships.of_name(entry.request.tenant, entry.request.name)
        expected = None if start is None or allowed is None else start.at
        waiting.append(Waiting(position, entry, expected, node.node_pool, node.cluster))
        if start is not None and allowed is not None:
            seats += allowed.seats
            for one, placement in zip(requests, start.placements, strict=True):
                end = start.at + (math.inf if one.duration_s is None else one.duration_s)
                name = f"{one.tenant}/{one.name}"
                taken = footprint_of(one, placement)
                bookings.append(Booking(name, placement.host, placement.shares, start.at, end, footprint=taken))
    return settings, [one for one in waiting if tenant in (None, one.entry.request.tenant)]


def _allowed(
    services: Services, entry: QueueEntry, start: "Start", seats: "Sequence[LicenceSeat]"
) -> "SeatsToCome | None":
    """From when the quota and the licences allow an entry that has room; None where no time is known."""
    from vgpuctl.usecases.placement.quota import refuse_above_ceilings, refuse_placed_over_quota
    from vgpuctl.usecases.seats.licences import first_seats

    is_new = not entry.kind.starts_again()
    with services.store.reading() as session:
        there = [] if is_new else [session.vm(one.tenant, one.name) for one in entry.requests]
        own = {vm.uuid for vm in there if vm is not None}
        try:
            if is_new:
                refuse_above_ceilings(session, entry.requests)
            refuse_placed_over_quota(session, entry.requests, start.placements, is_new=is_new)
        except QuotaExceeded:
            return None
        others = [one for one in seats if one.vm_uuid not in own]
        return first_seats(session, entry.requests, [one.shares for one in start.placements], others, start.at)


def set_queue(services: Services, settings: QueueSettings) -> bool:
    """Set how the queue is put in order. Returns whether anything changed."""
    with services.store.transaction() as session:
        before = session.queue_settings()
        if before == settings:
            return False
        session.set_queue_settings(settings)
        session.add_event(EventKind.QUEUE_SET, "queue", before=_values(before), after=_values(settings))
    return True


def _values(settings: QueueSettings) -> Values:
    return {"policy": str(settings.policy), "ageing_s": settings.ageing_s}


def leave_queue(services: Services, tenant: str, name: str) -> QueueEntry:
    """Take a VM out of the queue, with those it was to be created with.

    Raises NotFound, and ConcurrentChange while it is just being started.
    """
    with services.store.transaction() as session:
        session.tenant(tenant)
        entry = _find(session, tenant, name)
        record_leaving(session, entry)
    return entry


def _find(session: "Session", tenant: str, name: str) -> QueueEntry:
    entry = session.queued(tenant, name)
    if entry is None:
        raise NotFound(f"VM {name} of tenant {tenant} does not wait in the queue", hint="see `vgpuctl list-queue`")
    return entry


DELETION = Deletion(
    find=_find,
    names=lambda session, tenant: [
        one.name for each in session.queue() for one in each.requests if one.tenant == tenant
    ],
    printed=lambda entry: f"{entry.request.tenant}/{entry.vm_names}",
    describe=lambda entry: f"{entry.request.tenant}/{entry.vm_names}: {entry.kind}, waits",
    delete=lambda services, entry: leave_queue(services, entry.request.tenant, entry.request.name),
)
