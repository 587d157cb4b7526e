# SPDX-License-Identifier: Apache-2.0
"""reserve: promise shares of one host for a time, once or repeated."""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.errors import ConcurrentChange, NoCapacity, StateError, UsageError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.times import format_time
from vgpuctl.model.vm import VmRequest, check_name, printed_name
from vgpuctl.scheduler.calendar import Booking, emptied, first_windows, place_over
from vgpuctl.scheduler.explain import explain, rejections_of
from vgpuctl.scheduler.nearest import nearest_remedy
from vgpuctl.scheduler.place import describe as describe_rejections
from vgpuctl.scheduler.refusals import summarise
from vgpuctl.usecases.found.known_profiles import refuse_unknown_gpus
from vgpuctl.usecases.observed.observations import read_record
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.placement.quota import refuse_for_ever
from vgpuctl.usecases.placement.reservations import bookings_of, describe, values_of
from vgpuctl.usecases.placement.usable_hosts import usable_hosts
from vgpuctl.usecases.running.services import Services

TRIES = 3


def reserve(
    services: Services,
    tenant: str,
    name: str,
    gpus: Sequence[GpuRequest],
    *,
    begin: float,
    end: float,
    every_s: float | None,
) -> tuple[Reservation, bool]:
    """Promise shares for a time. Returns the reservation, and False when it was there already.

    Raises UsageError, NotFound (tenant), QuotaExceeded, StateError for another reservation of this name, and
    NoCapacity with the first time it would fit.
    """
    check_name(name, what="reservation")
    _check_times(begin, end, every_s, now=services.store.now())
    request = VmRequest(name, tenant, tuple(gpus), vcpus=1, memory_mib=1)
    for _try in range(TRIES):
        with services.store.reading() as session:
            session.tenant(tenant)
            there = session.reservation(tenant, name)
            refuse_unknown_gpus(session, request)
            refuse_for_ever(session, request)
        if there is not None:
            if (there.gpus, there.begin, there.end, there.every_s) != (request.gpus, begin, end, every_s):
                raise StateError(
                    f"tenant {tenant} has another reservation {name}: {describe(there)}",
                    hint="cancel it first, or choose another name",
                )
            return there, False
        wanted = Reservation(tenant, name, request.gpus, "", (), begin, end, every_s)
        capacities = survey(services, usable_hosts(services, request), refresh=False).capacities
        with services.store.reading() as session:
            bookings = bookings_of(session)
        found = place_over([request], capacities, bookings, wanted.windows())
        if found is None:
            first = first_windows(request, capacities, bookings, wanted.windows())
            raise _conflict(request, wanted, first, capacities, bookings)
        (placement,) = found
        made = replace(wanted, host=placement.host, shares=placement.shares)
        generation = next(one.generation for one in capacities if one.name == placement.host)
        try:
            with services.store.transaction() as session:
                session.add_reservation(made, generation)
                label = printed_name(tenant, name)
                after = values_of(made)
                session.add_event(EventKind.RESERVATION_CREATED, label, tenant=tenant, host=made.host, after=after)
                silence = read_record(session, made.host).silence
        except ConcurrentChange as error:
            services.say(f"{error.line_of(placement.host)}; looking again")
            continue
        if silence is not None:
            services.say(
                f"warning: {made.host} gave no answer when it was last asked ({silence.state});"
                " its cards are reserved as they were read before"
            )
        return made, True
    raise ConcurrentChange(f"no place for reservation {name} held in {TRIES} tries", hint="try again")


def _check_times(begin: float, end: float, every_s: float | None, *, now: float) -> None:
    if end <= begin:
        raise UsageError("the reservation ends before it begins", hint="give --until later than --from")
    if end <= now:
        raise UsageError(f"the reservation would be over: {format_time(end)} UTC is past", hint="give a later --until")
    if every_s is not None and every_s < end - begin:
        raise UsageError("the reservation would begin again before it ended", hint="give a longer --every")


def _conflict(
    request: VmRequest,
    wanted: Reservation,
    first: float | None,
    capacities: Sequence[HostCapacity],
    bookings: Sequence[Booking],
) -> NoCapacity:
    """Say when it would fit, or else why it does not fit even where nothing is booked."""
    context: list[str] = []
    brief: list[str] | None = None
    if first is not None:
        length = wanted.end - wanted.begin
        hint = f"the first time it would fit is from {format_time(first)} to {format_time(first + length)} UTC"
    else:
        answer = explain(request, capacities, [])
        hint = "no time in the calendar is free for it; ask for less, or end VMs without a declared end"
        empty = emptied(capacities, bookings)
        if empty.place(request) is None:
            answer = rejections_of(empty, request)
            hint = nearest_remedy(empty, request, answer) or "run `vgpuctl list-gpus` to see what is there"
        if not isinstance(answer, Placement):
            context, brief = describe_rejections(answer, capacities), summarise(answer)
    message = f"{describe(wanted)} is not free for tenant {request.tenant}"
    return NoCapacity(message, context=context, hint=hint, brief=brief)
