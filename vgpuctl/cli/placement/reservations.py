# SPDX-License-Identifier: Apache-2.0
"""reserve, list-reservations, show-reservation, cancel-reservation: GPU shares for a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.labelled import print_labelled
from vgpuctl.cli.shown.partition_text import partition_text
from vgpuctl.model.times import format_duration, format_time

if TYPE_CHECKING:
    from vgpuctl.model.reservation import Reservation
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.placement.shown_reservations import ShownReservation
    from vgpuctl.usecases.running.services import Services

_RESERVATIONS: "StoredKind[Reservation]" = StoredKind(
    "reservation", "list-reservations", "reservation", options.tenant_of("Tenant of the reservation.")
)


def _outcome(made: "Reservation") -> str:
    from vgpuctl.usecases.placement.reservations import describe

    return f"{describe(made)} on {made.host}"


@_RESERVATIONS.changes(_outcome, where=options.many_hosts, is_new=True)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    required=True,
    metavar="WHAT",
    help="GPUs to reserve, as for create-vm: A40-8Q, 2*L40S-48Q; several times.",
)
@click.option(
    "--from",
    "begin",
    required=True,
    metavar="TIME",
    help="Begin: now, or as 2026-11-01T14:00; UTC unless it names a zone.",
)
@click.option("--until", required=True, metavar="TIME", help="End, in the form of --from, or how long: 2h, 1d12h.")
@click.option("--every", metavar="DURATION", help="Repeat after this period, from one begin to the next: 1d, 1w.")
@options.every_refusal
def reserve(
    opened: "Services", name: str, tenant: str, gpus: tuple[str, ...], begin: str, until: str, every: str | None
) -> "tuple[Reservation, bool]":
    """Reserve GPU shares for a tenant for a period, once or repeatedly.

    Before the period only VMs whose declared time (--for) ends earlier may use them. A reservation that does not fit
    is refused with the first time at which it fits. `create-vm --reservation NAME` uses the shares.

    A reservation holds GPUs only: CPUs and memory must be free on the host when it is used.
    """
    from vgpuctl.catalog import read_gpu_request
    from vgpuctl.model.times import parse_duration, parse_period
    from vgpuctl.usecases.placement.reserve import reserve

    first, end = parse_period(begin, until, now=opened.store.now())
    return reserve(
        opened,
        tenant,
        name,
        tuple(map(read_gpu_request, gpus)),
        begin=first,
        end=end,
        every_s=None if every is None else parse_duration(every, what="--every"),
    )


@dataclass(frozen=True)
class _CalendarRow:
    """A reservation with its next window, or its only one."""

    reservation: "Reservation"
    window: tuple[float, float]


_LISTING: "Listing[_CalendarRow, Reservation]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.reservation.tenant),
        Column("RESERVATION", lambda one: one.reservation.name),
        Column("GPU", lambda one: ", ".join(gpu.text for gpu in one.reservation.gpus)),
        Column("FROM (UTC)", lambda one: one.window[0], unit=ColumnUnit.UTC),
        Column("UNTIL (UTC)", lambda one: one.window[1], unit=ColumnUnit.UTC),
        Column(
            "EVERY",
            lambda one: one.reservation.every_s,
            unit=ColumnUnit.SECONDS,
            is_rare=True,
            drops=2,
        ),
        Column("HOST", lambda one: one.reservation.host, drops=1),
    ),
    name=lambda one: f"{one.reservation.tenant}/{one.reservation.name}",
    in_order=True,
    json=lambda one: one.reservation,
    empty="nothing is reserved",
)


@_RESERVATIONS.lists(_LISTING)
@click.option("--all", "past", is_flag=True, help="Also show reservations that are over.")
def list_reservations(opened: "Services", tenant: str | None, past: bool) -> Sequence[_CalendarRow]:
    """List the reservations by their next window."""
    from vgpuctl.usecases.placement.shown_reservations import list_reservations

    now = opened.store.now()
    found = list_reservations(opened, tenant=tenant, past=past)
    return [_CalendarRow(one, one.window_after(now) or (one.begin, one.end)) for one in found]


def _print(shown: "ShownReservation") -> None:
    from vgpuctl.model.times import format_time_to_second

    one = shown.reservation
    print_labelled("name", [f"{one.tenant}/{one.name}, {shown.state}"])
    print_labelled("GPU", [", ".join(gpu.text for gpu in one.gpus)])
    print_labelled(
        "held on", [f"{one.host}: {each.profile} ({each.sharing}) on {each.function}" for each in one.shares]
    )
    if shown.partition is not None:
        print_labelled("fabric", [partition_text(shown.partition)])
    elif shown.partition_problem is not None:
        print_labelled("fabric", [f"its partition is not known: {shown.partition_problem}"])
    begin, end = shown.window or (one.begin, one.end)
    print_labelled("from", [f"{format_time(begin)} UTC"])
    print_labelled("until", [f"{format_time(end)} UTC"])
    if one.every_s is not None:
        print_labelled("every", [f"{format_duration(one.every_s)} since {format_time(one.begin)} UTC"])
    user = shown.used_by
    print_labelled("used by", ["nobody" if user is None else f"{user.name}, {user.state} on {user.host}"])
    print_labelled("event", [f"{format_time_to_second(each.at)} {each.kind} by {each.who}" for each in shown.events])


@_RESERVATIONS.shows(_print)
def show_reservation(opened: "Services", name: str, tenant: str) -> "ShownReservation":
    """Show one reservation: GPU shares, host, time, and the VM that uses it. No host is contacted."""
    from vgpuctl.usecases.placement.shown_reservations import show_reservation

    return show_reservation(opened, tenant, name)


@_RESERVATIONS.deletes(verb="Cancel", whose=" of tenant {tenant} with all repetitions", outcome="cancelled")
def cancel_reservation() -> "Deletion[Reservation]":
    """Cancel reservations with all their repetitions. A VM that uses one runs on until its time is over."""
    from vgpuctl.usecases.placement.reservations import DELETION

    return DELETION
