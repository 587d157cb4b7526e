# SPDX-License-Identifier: Apache-2.0
"""reserve, list-reservations, show-reservation, cancel-reservation: GPU shares for a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.deletion import deletion_command
from vgpuctl.cli.lists.listing import Column, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.labelled import print_labelled
from vgpuctl.cli.shown.output import say
from vgpuctl.model.times import format_duration, format_time

if TYPE_CHECKING:
    from vgpuctl.model.reservation import Reservation
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.placement.show_reservation import ShownReservation


class JsonReservationChange(TypedDict):
    """A reservation; changed: false if it was there already."""

    changed: bool
    reservation: "Reservation"


_CHANGE: "JsonOutput[JsonReservationChange]" = JsonOutput(("reserve",))


@click.command("reserve")
@click.argument("name")
@options.tenant_of("Tenant of the reservation.")
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
@options.many_hosts
@options.as_json
def reserve(
    name: str,
    tenant: str,
    gpus: tuple[str, ...],
    begin: str,
    until: str,
    every: str | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Reserve GPU shares for a tenant for a period, once or repeatedly.

    Before the period only VMs whose declared time (--for) ends earlier may use them. A reservation that does not fit
    is refused with the first time at which it fits. `create-vm --reservation NAME` uses the shares.

    A reservation holds GPUs only: CPUs and memory must be free on the host when it is used.
    """
    from vgpuctl.catalog import read_gpu_request
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.times import parse_duration, parse_period
    from vgpuctl.usecases.placement.reservations import describe
    from vgpuctl.usecases.placement.reserve import reserve

    with services(**where) as opened:
        first, end = parse_period(begin, until, now=opened.store.now())
        made, changed = reserve(
            opened,
            tenant,
            name,
            tuple(map(read_gpu_request, gpus)),
            begin=first,
            end=end,
            every_s=None if every is None else parse_duration(every, what="--every"),
        )
    if as_json:
        _CHANGE.print({"changed": changed, "reservation": made})
    else:
        say(f"reservation {name}: {describe(made) if changed else 'no change'} on {made.host}")


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
        Column("FROM (UTC)", lambda one: format_time(one.window[0]), key=lambda one: one.window[0]),
        Column("UNTIL (UTC)", lambda one: format_time(one.window[1]), key=lambda one: one.window[1]),
        Column(
            "EVERY",
            lambda one: None if one.reservation.every_s is None else format_duration(one.reservation.every_s),
            key=lambda one: one.reservation.every_s,
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


@click.command("list-reservations")
@options.tenant_filter
@click.option("--all", "past", is_flag=True, help="Also show reservations that are over.")
@options.database
@_LISTING.options
def list_reservations(tenant: str | None, past: bool, database: str | None, output: ListOutput) -> None:
    """List the reservations by their next window."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.placement.list_reservations import list_reservations

    with services(database=database) as opened:

        def read() -> Sequence[_CalendarRow]:
            now = opened.store.now()
            found = list_reservations(opened, tenant=tenant, past=past)
            return [_CalendarRow(one, one.window_after(now) or (one.begin, one.end)) for one in found]

        _LISTING.show(output, read)


_SHOWN: "JsonOutput[ShownReservation]" = JsonOutput(("show-",))


@click.command("show-reservation")
@click.argument("name")
@options.tenant
@options.database
@options.as_json
def show_reservation(name: str, tenant: str, database: str | None, as_json: bool) -> None:
    """Show one reservation: GPU shares, host, time, and the VM that uses it. No host is contacted."""
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.placement.show_reservation import show_reservation

    with services(database=database) as opened:
        shown = show_reservation(opened, tenant, name)
    if as_json:
        _SHOWN.print(shown)
    else:
        _print(shown)


def _print(shown: "ShownReservation") -> None:
    from vgpuctl.model.times import format_duration, format_time, format_time_to_second

    one = shown.reservation
    print_labelled("name", [f"{one.tenant}/{one.name}, {shown.state}"])
    print_labelled("GPU", [", ".join(gpu.text for gpu in one.gpus)])
    print_labelled(
        "held on", [f"{one.host}: {each.profile} ({each.sharing}) on {each.function}" for each in one.shares]
    )
    begin, end = shown.window or (one.begin, one.end)
    print_labelled("from", [f"{format_time(begin)} UTC"])
    print_labelled("until", [f"{format_time(end)} UTC"])
    if one.every_s is not None:
        print_labelled("every", [f"{format_duration(one.every_s)} since {format_time(one.begin)} UTC"])
    user = shown.used_by
    print_labelled("used by", ["nobody" if user is None else f"{user.name}, {user.state} on {user.host}"])
    print_labelled("event", [f"{format_time_to_second(each.at)} {each.kind} by {each.who}" for each in shown.events])


def _deletion() -> "Deletion[Reservation]":
    from vgpuctl.usecases.placement.reservations import DELETION

    return DELETION


cancel_reservation = deletion_command(
    "cancel-reservation",
    "Cancel reservations with all their repetitions. A VM that uses one runs on until its time is over.",
    _deletion,
    word="reservation",
    listed_by="list-reservations",
    verb="Cancel",
    whose=" of tenant {tenant} with all repetitions",
    outcome="cancelled",
    tenant=options.tenant_of("Tenant of the reservation."),
)
