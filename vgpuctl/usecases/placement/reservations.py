# SPDX-License-Identifier: Apache-2.0
"""Consequences of reservations for VMs that are placed now."""

import math
from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.errors import NoCapacity, StateError, UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.host_parts import missing_parts, parts_needed
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.times import format_duration, format_time, format_time_left
from vgpuctl.model.vm import Vm, VmRequest, VmState, printed_name
from vgpuctl.planner.plan import check_compute, check_rules
from vgpuctl.scheduler.calendar import Booking
from vgpuctl.scheduler.explain import rejections_of
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import as_one, place_together
from vgpuctl.scheduler.guest_place import footprint_of_vm, give_numa
from vgpuctl.scheduler.place import describe as describe_rejections
from vgpuctl.scheduler.promised import changes_in_time, promised_leases, rejections_with_promises
from vgpuctl.sharing.partition_rules import check_partition
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.placement.shown_reservations import find_reservation
from vgpuctl.usecases.running.services import Services


def record_cancellation(session: Session, reservation: Reservation, reason: str = "") -> bool:
    """Delete a reservation with an event. Returns False when it was gone."""
    if not session.cancel_reservation(reservation):
        return False
    label = printed_name(reservation.tenant, reservation.name)
    session.add_event(
        EventKind.RESERVATION_CANCELLED,
        label,
        reason,
        tenant=reservation.tenant,
        host=reservation.host,
        before=values_of(reservation),
    )
    return True


def values_of(reservation: Reservation) -> Values:
    """The values of a reservation for its events."""
    return {
        "gpus": [gpu.text for gpu in reservation.gpus],
        "shares": [f"{share.profile} on {share.function}" for share in reservation.shares],
        "begin": format_time(reservation.begin),
        "end": format_time(reservation.end),
        "every": None if reservation.every_s is None else format_duration(reservation.every_s),
    }


def use_now(services: Services, request: VmRequest, name: str) -> tuple[Reservation, VmRequest]:
    """The reservation that a new VM uses in its present window, and the VM's request with what follows from it.

    Its host is not part of the request: the VM may move, together with its reservation.
    Raises NotFound, UsageError for other GPUs or another host, and StateError outside its windows or while another VM
    uses it.
    """
    now = services.store.now()
    with services.store.reading() as session:
        there = find_reservation(session, request.tenant, name)
        user = next((vm for vm in session.vms() if vm.uuid == there.vm_uuid), None)
    window = there.window_after(now)
    if window is None or now < window[0]:
        when = "is over" if window is None else f"begins at {format_time(window[0])} UTC"
        raise StateError(
            f"reservation {name} of tenant {request.tenant} {when}", hint="see `vgpuctl list-reservations`"
        )
    if request.gpus and request.gpus != there.gpus:
        raise UsageError(f"reservation {name} is for {_text(there.gpus)}", hint="leave --gpu out")
    if request.host not in (None, there.host):
        raise UsageError(f"reservation {name} is on {there.host}, not on {request.host}", hint="leave --host out")
    if user is not None and (user.request.tenant, user.request.name) != (request.tenant, request.name):
        raise StateError(f"VM {user.request.name} uses reservation {name} already", hint="delete it first")
    left_s = window[1] - now
    duration_s = left_s if request.duration_s is None else min(left_s, request.duration_s)
    return there, replace(request, gpus=there.gpus, duration_s=duration_s)


def used_by(session: Session, vm: Vm) -> Reservation | None:
    """The reservation that a VM uses, if it has windows left."""
    now = session.now()
    return next((one for one in session.reservations() if one.vm_uuid == vm.uuid and not one.is_over(now)), None)


def placement_of(
    reservation: Reservation, request: VmRequest, capacities: Sequence[HostCapacity], leases: Sequence[Lease]
) -> Placement:
    """Where a VM that uses it is placed: on the very shares that were promised.

    Its CPUs and memory are not reserved. Raises NoCapacity when the host has too little of them left, or has not all
    parts that the VM needs.
    """
    there = [one for one in capacities if one.name == reservation.host]
    for capacity in there:
        numa, fits = give_numa(request, capacity, [one.numa_node for one in reservation.shares])
        if fits and not missing_parts(capacity.facts, parts_needed(request)):
            return Placement(reservation.host, reservation.shares, numa=numa)
    found = rejections_of(Fleet(there, leases), replace(request, host=None))
    raise NoCapacity(
        f"reservation {reservation.name} keeps its GPUs, but {reservation.host} cannot take VM {request.name}",
        context=describe_rejections([one for one in found if one.gpu is None], capacities),
        hint="ask for what the host has; a reservation keeps neither vCPUs nor memory",
    )


def refuse_closed_shares(reservation: Reservation | None, capacities: Sequence[HostCapacity]) -> list[HostCapacity]:
    """Return the hosts.

    Raises NoCapacity when a GPU that was promised must not be handed out by its host's rules, keeps the compute time no
    more that was asked for, or when those that were promised together compute in no partition of their NVSwitch fabric.
    """
    for host in capacities:
        if reservation is None or host.name != reservation.host:
            continue
        asked = [gpu for gpu in reservation.gpus for _ in range(gpu.count)]
        for gpu, held in zip(asked, reservation.shares, strict=True):
            refusal = check_rules(held, host.facts, host.rules) or check_compute(held, gpu, host.facts, host.rules)
            if refusal is not None:
                raise NoCapacity(
                    f"reservation {reservation.name} has {held.profile} on {held.gpu} of {host.name}: {refusal}",
                    hint=f"change that of {host.name}, or cancel the reservation and reserve anew",
                )
        reason = check_partition(reservation.shares, host.facts)
        if reason is not None:
            raise NoCapacity(
                f"reservation {reservation.name} has GPUs of {host.name} that serve no VM together now: {reason}",
                hint=f"`vgpuctl check-hosts -l {host.name}` says what its fabric lacks; cancel the reservation and"
                " reserve anew to have other GPUs",
            )
    return list(capacities)


def with_promises(session: Session, leases: Sequence[Lease], request: VmRequest, vm: Vm | None = None) -> list[Lease]:
    """The leases, and what is promised to others for a time in which the request would still run.

    vm: it may have the shares of the reservation that it uses.
    """
    now = session.now()
    return promised_leases(leases, promises_to_others(session, now, vm), now, request.duration_s)


def promises_to_others(session: Session, now: float, vm: Vm | None = None) -> list[Booking]:
    """Windows of all reservations from now on, without those of the reservation that a VM uses."""
    reservations = session.reservations()
    if vm is not None:
        reservations = [one for one in reservations if one.vm_uuid != vm.uuid]
    return _promises(session, reservations, now)


def explain_by_reservation(
    services: Services, requests: Sequence[VmRequest], capacities: Sequence[HostCapacity], full: NoCapacity
) -> NoCapacity | None:
    """The refusal that says when the requests would fit together; None unless only a reservation is in their way."""
    now = services.store.now()
    with services.store.reading() as session:
        leases = session.leases()
        promises = promises_to_others(session, now)
        bookings = bookings_of(session)
    without = Fleet(capacities, leases)
    if not promises or place_together(without, requests) is None:
        return None
    fleet = Fleet(capacities, promised_leases(leases, promises, now, as_one(requests).duration_s))
    request = next((one for one in requests if fleet.place(one) is None), requests[0])
    changes = changes_in_time(request, capacities, leases, bookings, now) if len(requests) == 1 else []
    begins = [one.begin for one in promises if one.begin > now]
    if begins:
        first = min(begins)
        left = format_time_left(first - now)
        hint = f"a VM that ends before {format_time(first)} UTC fits: give --for {left} or less"
    elif changes:
        hint = f"it would fit if {changes[0].text}"
    else:
        hint = "ask for less"
    return NoCapacity(
        f"{full.message}: what is free now is reserved",
        context=describe_rejections(rejections_with_promises(request, fleet, without, promises, now), capacities),
        hint=f"{hint}; see `vgpuctl list-reservations`",
    )


def bookings_of(session: Session, reservations: Sequence[Reservation] | None = None) -> list[Booking]:
    """Bookings of the leases, each with its declared end if it has one, and of reservations: None for all."""
    vms = {vm.uuid: vm for vm in session.vms()}
    by_vm: dict[str, list[Booking]] = {}
    leases = session.leases()
    for lease in leases:
        vm = vms.get(lease.vm_uuid)
        ends_at = vm.ends_at if vm is not None else None
        by_vm.setdefault(lease.vm_uuid, []).append(
            Booking(
                f"{lease.tenant}/{lease.vm_name}",
                lease.host,
                (lease.share,),
                0.0,
                math.inf if ends_at is None else ends_at,
                lease.vm_uuid,
                footprint_of_vm(vm, [one for one in leases if one.vm_uuid == vm.uuid])
                if vm is not None and vm.state is VmState.RUNNING and ends_at is not None
                else NO_FOOTPRINT,
            )
        )
    taken = [replace(own[0], shares=tuple(one.shares[0] for one in own)) for own in by_vm.values()]
    return taken + _promises(session, session.reservations() if reservations is None else reservations, session.now())


def describe(reservation: Reservation) -> str:
    """A reservation in a few words: `A40-8Q from 2026-11-01 14:00 to 2026-11-01 16:00 UTC`."""
    window = f"from {format_time(reservation.begin)} to {format_time(reservation.end)} UTC"
    return f"{_text(reservation.gpus)} {window}" + ("" if reservation.every_s is None else ", repeated")


def windows_of(reservation: Reservation, now: float) -> list[Booking]:
    """The windows of a reservation that are not over, as bookings."""
    return [
        Booking(_booking_name(reservation), reservation.host, reservation.shares, begin, end)
        for begin, end in reservation.windows()
        if end > now
    ]


def _promises(session: Session, reservations: Sequence[Reservation], now: float) -> list[Booking]:
    """The windows of reservations, from now on; without the present one where a VM uses it."""
    holding = {lease.vm_uuid for lease in session.leases()} if reservations else set()
    found = []
    for one in reservations:
        is_used = one.vm_uuid in holding
        found += [window for window in windows_of(one, now) if not (is_used and window.begin <= now)]
    return found


def _booking_name(reservation: Reservation) -> str:
    return f"{reservation.tenant}/reservation {reservation.name}"


def _text(gpus: Sequence[GpuRequest]) -> str:
    return ", ".join(gpu.text for gpu in gpus)


def cancel_reservation(services: Services, tenant: str, name: str) -> Reservation:
    """Delete a reservation; a VM that uses it runs on. Raises NotFound."""
    with services.store.transaction() as session:
        there = find_reservation(session, tenant, name)
        record_cancellation(session, there)
    return there


DELETION = Deletion(
    find=find_reservation,
    names=lambda session, tenant: [one.name for one in session.reservations() if one.tenant == tenant],
    printed=lambda one: printed_name(one.tenant, one.name),
    describe=lambda one: f"reservation {printed_name(one.tenant, one.name)}: {describe(one)} on {one.host}",
    delete=lambda services, one: cancel_reservation(services, one.tenant, one.name),
)
