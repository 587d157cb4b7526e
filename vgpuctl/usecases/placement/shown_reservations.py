# SPDX-License-Identifier: Apache-2.0
"""list-reservations, show-reservation: the calendar, and one reservation with the VM that uses it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.fabric import FabricPartition
from vgpuctl.errors import NotFound
from vgpuctl.model.event import Event, EventFilter
from vgpuctl.model.reservation import Reservation, Window
from vgpuctl.model.vm import VmState, printed_name
from vgpuctl.store.session import Session
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

    events: the last ones, the oldest first. partition: of its GPUs on an NVSwitch fabric, as its host was last read;
    partition_problem: why it is one and none is known.
    """

    reservation: Reservation
    state: ReservationState
    window: Window | None
    used_by: UserOfReservation | None
    events: tuple[Event, ...]
    partition: FabricPartition | None = None
    partition_problem: str | None = None


def show_reservation(services: Services, tenant: str, name: str) -> ShownReservation:
    """One reservation as the store has it. Raises NotFound."""
    from vgpuctl.sharing.partition_rules import told_partition

    with services.store.reading() as session:
        now = session.now()
        found = find_reservation(session, tenant, name)
        subjects = EventFilter((printed_name(tenant, name),), ("reservation-*",))
        users = [vm for vm in session.vms(tenant=tenant) if vm.uuid == found.vm_uuid]
        events = tuple(session.events(_EVENTS, subjects))
        known = session.facts(found.host)
    window = found.window_after(now)
    used_by = next((UserOfReservation(vm.printed_name, vm.state, vm.host) for vm in users), None)
    partition, problem = told_partition(found.shares, None if known is None else known.facts)
    return ShownReservation(found, _state(window, now), window, used_by, events, partition, problem)


def _state(window: Window | None, now: float) -> ReservationState:
    if window is None:
        return ReservationState.OVER
    return ReservationState.CURRENT if window[0] <= now else ReservationState.UPCOMING


def find_reservation(session: Session, tenant: str, name: str) -> Reservation:
    """One reservation. Raises NotFound."""
    session.tenant(tenant)
    there = session.reservation(tenant, name)
    if there is None:
        raise NotFound(f"tenant {tenant} has no reservation {name!r}", hint="see `vgpuctl list-reservations`")
    return there


def list_reservations(services: Services, *, tenant: str | None, past: bool) -> Sequence[Reservation]:
    """The reservations that are not over, or all; by their next begin. Raises NotFound for an unknown tenant."""
    now = services.store.now()
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        found = [one for one in session.reservations() if tenant in (None, one.tenant)]
    return sorted(
        (one for one in found if past or not one.is_over(now)),
        key=lambda one: (one.window_after(now) or (one.begin, one.end), one.tenant, one.name),
    )
