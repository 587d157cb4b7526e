# SPDX-License-Identifier: Apache-2.0
"""A reservation goes to another host: the same shares for the same times, for a host that is emptied."""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.errors import NoCapacity
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import VmRequest, printed_name
from vgpuctl.scheduler.calendar import place_over
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.placement.reservations import bookings_of, describe, values_of
from vgpuctl.usecases.placement.usable_hosts import usable_hosts
from vgpuctl.usecases.running.services import Services


def move_reservation(services: Services, reservation: Reservation) -> Reservation:
    """Promise a reservation's shares on another host for all of its windows from now on. Returns it as it is then.

    It is not for one that a VM uses: that goes with its VM. Raises NoCapacity, with the reservation as it was, and
    ConcurrentChange.
    """
    request = VmRequest(reservation.name, reservation.tenant, reservation.gpus, vcpus=1, memory_mib=1)
    names = [name for name in usable_hosts(services, request) if name != reservation.host]
    capacities = survey(services, names, refresh=False).capacities if names else ()
    with services.store.reading() as session:
        placement = place_promise(session, reservation, request, capacities)
    if placement is None:
        raise NoCapacity(f"no other host has {describe(reservation)} free", hint="cancel it, or add a host")
    moved = replace(reservation, host=placement.host, shares=placement.shares)
    generation = next(one.generation for one in capacities if one.name == placement.host)
    with services.store.transaction() as session:
        replace_reservation(session, reservation, moved, generation)
    return moved


def place_promise(
    session: Session,
    reservation: Reservation,
    request: VmRequest,
    capacities: Sequence[HostCapacity],
) -> Placement | None:
    """Where a reservation is free in all of its windows that are not over, None if nowhere.

    request: for its GPUs, of the VM that uses it or of none.
    """
    now = session.now()
    bookings = bookings_of(session, [one for one in session.reservations() if one != reservation])
    windows = [window for window in reservation.windows() if window[1] > now]
    found = place_over([request], capacities, bookings, windows)
    return None if found is None else found[0]


def replace_reservation(session: Session, old: Reservation, moved: Reservation, seen_generation: int) -> None:
    """Put a reservation onto another host, with its event; a VM that uses it still does. Raises ConcurrentChange."""
    session.cancel_reservation(old)
    session.add_reservation(moved, seen_generation)
    if old.vm_uuid is not None:
        session.use_reservation(moved, old.vm_uuid)
    session.add_event(
        EventKind.RESERVATION_MOVED,
        printed_name(moved.tenant, moved.name),
        tenant=moved.tenant,
        host=moved.host,
        before={"host": old.host, **values_of(old)},
        after={"host": moved.host, **values_of(moved)},
    )
