# SPDX-License-Identifier: Apache-2.0
"""A reservation goes to another host: the same shares for the same times, for a host that is emptied."""

from dataclasses import replace

from vgpuctl.errors import NoCapacity
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import VmRequest, host_name_of
from vgpuctl.scheduler.calendar import place_over
from vgpuctl.usecases.placement.reservations import bookings_of, describe, values_of
from vgpuctl.usecases.placement.usable_hosts import usable_hosts
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.survey import survey


def move_reservation(services: Services, reservation: Reservation, *, dry_run: bool) -> Reservation:
    """Promise a reservation's shares on another host for all of its windows from now on. Returns it as it is then.

    A VM that uses it now keeps the shares that it holds. Raises NoCapacity, with the reservation as it was, and
    ConcurrentChange.
    """
    request = VmRequest(reservation.name, reservation.tenant, reservation.gpus, vcpus=1, memory_mib=1)
    names = [name for name in usable_hosts(services, request) if name != reservation.host]
    capacities = survey(services, names, refresh=False).capacities if names else ()
    with services.store.reading() as session:
        now = session.now()
        others = [one for one in session.reservations() if one != reservation]
        bookings = bookings_of(session, others)
    windows = [window for window in reservation.windows() if window[1] > now]
    found = place_over([request], capacities, bookings, windows)
    if found is None:
        raise NoCapacity(f"no other host has {describe(reservation)} free", hint="cancel it, or add a host")
    (placement,) = found
    moved = replace(reservation, host=placement.host, shares=placement.shares)
    if dry_run:
        return moved
    generation = next(one.generation for one in capacities if one.name == placement.host)
    with services.store.transaction() as session:
        session.cancel_reservation(reservation)
        session.add_reservation(moved, generation)
        if reservation.vm_uuid is not None:
            session.use_reservation(moved, reservation.vm_uuid)
        label = host_name_of(moved.tenant, moved.name)
        session.add_event(
            EventKind.RESERVATION_MOVED,
            label,
            tenant=moved.tenant,
            host=moved.host,
            before={"host": reservation.host, **values_of(reservation)},
            after={"host": moved.host, **values_of(moved)},
        )
    return moved
