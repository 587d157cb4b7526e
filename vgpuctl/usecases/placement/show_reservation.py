# SPDX-License-Identifier: Apache-2.0
"""show-reservation: one reservation, its windows, its place and the VM that uses it."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.model.event import Event, EventFilter
from vgpuctl.model.reservation import Reservation, Window
from vgpuctl.model.vm import VmState, printed_name
from vgpuctl.usecases.placement.reservations import find_reservation
from vgpuctl.usecases.running.services import Services

_EVENTS = 10


class ReservationState(StrEnum):
    """The state of a reservation: before its window, in it, or without any window left."""

    UPCOMING = "upcoming"
    CURRENT = "current"
    OVER = "over"


@dataclass(frozen=True)
class UserOfReservation:
    """The VM that uses a reservation."""

    name: str
    state: VmState
    host: str


@dataclass(frozen=True)
class ShownReservation:
    """A reservation. window: the current one, else the next; None when it is over. used_by: None for nobody.

    events: the last ones, the oldest first.
    """

    reservation: Reservation
    state: ReservationState
    window: Window | None
    used_by: UserOfReservation | None
    events: tuple[Event, ...]


def show_reservation(services: Services, tenant: str, name: str) -> ShownReservation:
    """One reservation as the store has it. Raises NotFound."""
    with services.store.reading() as session:
        now = session.now()
        found = find_reservation(session, tenant, name)
        subjects = EventFilter((printed_name(tenant, name),), ("reservation-*",))
        users = [vm for vm in session.vms(tenant=tenant) if vm.uuid == found.vm_uuid]
        events = tuple(session.events(_EVENTS, subjects))
    window = found.window_after(now)
    used_by = next((UserOfReservation(vm.printed_name, vm.state, vm.host) for vm in users), None)
    return ShownReservation(found, _state(window, now), window, used_by, events)


def _state(window: Window | None, now: float) -> ReservationState:
    if window is None:
        return ReservationState.OVER
    return ReservationState.CURRENT if window[0] <= now else ReservationState.UPCOMING
