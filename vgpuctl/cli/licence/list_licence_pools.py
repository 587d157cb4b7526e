# SPDX-License-Identifier: Apache-2.0
"""list-licence-pools: seats of vGPU licences."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_line, print_table


@click.command("list-licence-pools")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@options.database
@options.as_json
def command(names: tuple[str, ...], database: str | None, as_json: bool) -> None:
    """List pools of vGPU licences: seats, seats that are held or come back later, tenants, VMs that wait.

    With names, also each taken seat with its VM.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.times import format_duration, format_time_to_second
    from vgpuctl.usecases.licence.list_licence_pools import list_licence_pools

    with services(database=database) as opened:
        states = list_licence_pools(opened, names)
    if as_json:
        print_json(states)
        return
    print_table(
        ["POOL", "EDITION", "SEATS", "HELD", "COMING BACK", "FREE", "LEASE", "SERVER", "TOKEN", "TENANTS", "WAITING"],
        [
            (
                one.pool.name,
                one.pool.edition,
                one.pool.seats,
                one.held,
                one.coming_back,
                one.free,
                format_duration(one.pool.lease_s),
                one.pool.server,
                "yes" if one.pool.has_token else "no",
                ", ".join(f"{tenant}: {count}" for tenant, count in one.tenants.items()),
                ", ".join(one.waiting),
            )
            for one in states
        ],
        empty="no licence pool: licences are not counted",
    )
    for one in states if names else ():
        for seat in one.seats:
            back = seat.released_at
            until = "held" if back is None else f"comes back at {format_time_to_second(back)}"
            print_line(f"{one.pool.name}: {seat.tenant}/{seat.vm_name}: {until}")
