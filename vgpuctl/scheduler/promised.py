# SPDX-License-Identifier: Apache-2.0
"""The effect of reservations on a request now: the GPUs they keep from it, and remedies in time."""

import math
from collections.abc import Sequence

from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Rejection
from vgpuctl.model.times import format_time, format_time_left
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.calendar import Booking, distinct, first_start, leases_of
from vgpuctl.scheduler.explain import rejections_of
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.what_if import FittingChange
from vgpuctl.sharing.codes import Code


def promised_leases(
    leases: Sequence[Lease], promises: Sequence[Booking], begin: float, duration_s: float | None
) -> list[Lease]:
    """The leases, and what is promised for a time in which something that begins then would run."""
    end = math.inf if duration_s is None else begin + duration_s
    return distinct([*leases, *(lease for one in promises if one.overlaps(begin, end) for lease in leases_of(one))])


def rejections_with_promises(
    request: VmRequest, fleet: Fleet, without: Fleet, promises: Sequence[Booking], now: float
) -> list[Rejection]:
    """The reason of each GPU or host for its refusal; a reservation's own refusals are marked.

    fleet: with what is promised; without: with the leases alone.
    """
    found = rejections_of(fleet, request)
    if not promises:
        return found
    plain = {(one.host, one.gpu): one for one in rejections_of(without, request)}
    return [plain.get((one.host, one.gpu)) or _reserved(one, request, promises, now) for one in found]


def changes_in_time(
    request: VmRequest,
    capacities: Sequence[HostCapacity],
    leases: Sequence[Lease],
    bookings: Sequence[Booking],
    now: float,
) -> list[FittingChange]:
    """Running shorter, or beginning later, where either admits a request that fits nowhere now.

    bookings: what is taken now with its declared end, and what is promised.
    """
    return [*_shorter(request, capacities, leases, bookings, now), *_later(request, capacities, bookings, now)]


def describe_booking(booking: Booking) -> str:
    """`reservation training of umbrella`, or the VM's name."""
    tenant, _, name = booking.name.partition("/")
    return f"{name} of {tenant}" if booking.vm_uuid is None else f"VM {booking.name}"


def _reserved(one: Rejection, request: VmRequest, promises: Sequence[Booking], now: float) -> Rejection:
    end = math.inf if request.duration_s is None else now + request.duration_s
    first: dict[str, Booking] = {}
    for booking in sorted(promises, key=lambda booking: booking.begin):
        is_here = booking.host == one.host and one.gpu in (None, *(held.gpu for held in booking.shares))
        if is_here and booking.overlaps(now, end):
            first.setdefault(booking.name, booking)
    if not first:
        return one
    reasons = [
        f"{describe_booking(booking)} has {', '.join(held.profile for held in booking.shares)}"
        f" from {format_time(booking.begin)} to {format_time(booking.end)} UTC"
        for booking in first.values()
    ]
    begin = min(booking.begin for booking in first.values())
    if begin > now:
        remedy = f"give --for {format_time_left(begin - now)} or less"
    else:
        remedy = f"wait until {format_time(max(booking.end for booking in first.values()))} UTC"
    return Rejection(one.host, one.gpu, str(Code.RESERVED_IN_CALENDAR), "; ".join(reasons), remedy)


def _shorter(
    request: VmRequest,
    capacities: Sequence[HostCapacity],
    leases: Sequence[Lease],
    bookings: Sequence[Booking],
    now: float,
) -> list[FittingChange]:
    """The longest time for which it fits from now on."""
    promises = [one for one in bookings if one.vm_uuid is None]
    longest = math.inf if request.duration_s is None else request.duration_s
    for booking in sorted(promises, key=lambda one: (-one.begin, one.name)):
        length = booking.begin - now
        if not 0 < length < longest:
            continue
        placement = Fleet(capacities, promised_leases(leases, promises, now, length)).place(request)
        if placement is not None:
            begins = f"until {describe_booking(booking)} begins at {format_time(booking.begin)} UTC"
            return [FittingChange(1, f"it ran for {format_time_left(length)} at most, {begins}", placement)]
    return []


def _later(
    request: VmRequest, capacities: Sequence[HostCapacity], bookings: Sequence[Booking], now: float
) -> list[FittingChange]:
    start = first_start([request], capacities, bookings, now)
    if start is None or start.at <= now:
        return []
    ending = sorted({describe_booking(one) for one in bookings if one.end == start.at})
    names = ", ".join(ending) + (" ends" if len(ending) == 1 else " end")
    return [FittingChange(1, f"it began at {format_time(start.at)} UTC, when {names}", start.placements[0])]
