# SPDX-License-Identifier: Apache-2.0
"""list-queue: the VMs that wait, in the order in which they are served."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.model.queue import QueueEntry, QueueSettings
from vgpuctl.usecases.support.services import Services


@dataclass(frozen=True)
class Waiting:
    """One entry at its position, from 1. expected_at: when it will start as far as declared ends tell, else None.

    node_pool, cluster: of a node.
    """

    position: int
    entry: QueueEntry
    expected_at: float | None
    node_pool: str | None = None
    cluster: str | None = None


def list_queue(services: Services, *, has_inventory: bool) -> tuple[QueueSettings, Sequence[Waiting]]:
    """The queue in the order in which it is served now, with the expected start of each. No host is contacted.

    has_inventory: whether labels and maintenance of the inventory count for the expected start.
    """
    with services.store.reading() as session:
        now = session.now()
        settings = session.queue_settings()
        if not session.queue():
            return settings, []
        from vgpuctl.quota.pools import closed_hosts
        from vgpuctl.scheduler.calendar import Booking, first_start
        from vgpuctl.scheduler.guest_place import footprint_of
        from vgpuctl.usecases.network.ports import with_networks
        from vgpuctl.usecases.placement.queue_order import ordered_queue
        from vgpuctl.usecases.placement.reservations import bookings_of
        from vgpuctl.usecases.support.capacities import cached_capacities
        from vgpuctl.usecases.support.node_states import Memberships

        ordered = ordered_queue(session, now)
        capacities = cached_capacities(session, services.inventory if has_inventory else None)
        bookings = bookings_of(session)
        pools = session.pools()
        memberships = Memberships(session)
    waiting = []
    for position, entry in enumerate(ordered, 1):
        closed = closed_hosts(entry.request.tenant, pools)
        usable = [one for one in capacities if one.name not in closed]
        requests = [with_networks(services, one) for one in entry.requests]
        start = first_start(requests, usable, bookings, now)
        node = memberships.of_name(entry.request.tenant, entry.request.name)
        expected = None if start is None else start.at
        waiting.append(Waiting(position, entry, expected, node.node_pool, node.cluster))
        if start is not None:
            for one, placement in zip(requests, start.placements, strict=True):
                end = start.at + (math.inf if one.duration_s is None else one.duration_s)
                name = f"{one.tenant}/{one.name}"
                taken = footprint_of(one, placement)
                bookings.append(Booking(name, placement.host, placement.shares, start.at, end, footprint=taken))
    return settings, waiting
