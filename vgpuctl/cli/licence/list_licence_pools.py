# SPDX-License-Identifier: Apache-2.0
"""list-licence-pools: seats of vGPU licences."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.listing import Column, Listing, ListOutput
from vgpuctl.cli.support.output import print_line
from vgpuctl.model.times import format_duration, format_time_to_second

if TYPE_CHECKING:
    from vgpuctl.usecases.licence.list_licence_pools import LicencePoolState


def _tenants(one: "LicencePoolState") -> tuple[str, ...] | None:
    return tuple(f"{tenant}: {count}" for tenant, count in one.tenants.items()) or None


_LISTING: "Listing[LicencePoolState, LicencePoolState]" = Listing(
    columns=(
        Column("POOL", lambda one: one.pool.name),
        Column("EDITION", lambda one: one.pool.edition, drops=5),
        Column("SEATS", lambda one: one.pool.seats),
        Column("HELD", lambda one: one.held),
        Column("COMING BACK", lambda one: one.coming_back, drops=4),
        Column("FREE", lambda one: one.free),
        Column("TENANTS", _tenants, drops=1),
        Column(
            "WAITING", lambda one: one.waiting or None, drops=2, colour=lambda one: "yellow" if one.waiting else None
        ),
        Column("LEASE", lambda one: format_duration(one.pool.lease_s), key=lambda one: one.pool.lease_s, drops=6),
        Column("SERVER", lambda one: one.pool.server, drops=3),
        Column("TOKEN", lambda one: "yes" if one.pool.has_token else "no", drops=7),
    ),
    name=lambda one: one.pool.name,
    json=lambda one: one,
    empty="no licence pool: licences are not counted",
)


@click.command("list-licence-pools")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@options.database
@_LISTING.options
def command(names: tuple[str, ...], database: str | None, output: ListOutput) -> None:
    """List pools of vGPU licences: seats, seats that are held or come back later, tenants, VMs that wait.

    With names, also each taken seat with its VM.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.usecases.licence.list_licence_pools import list_licence_pools

    with services(database=database) as opened:
        states = _LISTING.show(output, lambda: list_licence_pools(opened, names))
    for one in states if names and output.is_for_people() else ():
        for seat in one.seats:
            back = seat.released_at
            until = "held" if back is None else f"comes back at {format_time_to_second(back)}"
            print_line(f"{one.pool.name}: {seat.tenant}/{seat.vm_name}: {until}")
