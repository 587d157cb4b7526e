# SPDX-License-Identifier: Apache-2.0
"""list-reservations: the calendar."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.listing import Column, Listing, ListOutput
from vgpuctl.model.times import format_duration, format_time

if TYPE_CHECKING:
    from vgpuctl.model.reservation import Reservation


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
def command(tenant: str | None, past: bool, database: str | None, output: ListOutput) -> None:
    """List the reservations by their next window."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.placement.list_reservations import list_reservations

    with services(database=database) as opened:

        def read() -> Sequence[_CalendarRow]:
            now = opened.store.now()
            found = list_reservations(opened, tenant=tenant, past=past)
            return [_CalendarRow(one, one.window_after(now) or (one.begin, one.end)) for one in found]

        _LISTING.show(output, read)
