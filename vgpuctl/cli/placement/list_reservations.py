# SPDX-License-Identifier: Apache-2.0
"""list-reservations: the calendar."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_table


@click.command("list-reservations")
@options.tenant_filter
@click.option("--all", "past", is_flag=True, help="Also show reservations that are over.")
@options.database
@options.as_json
def command(tenant: str | None, past: bool, database: str | None, as_json: bool) -> None:
    """List the reservations by their next window."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.times import format_duration, format_time
    from vgpuctl.usecases.placement.list_reservations import list_reservations

    with services(database=database) as opened:
        found = list_reservations(opened, tenant=tenant, past=past)
        now = opened.store.now()
    if as_json:
        print_json(found)
        return
    rows = []
    for one in found:
        begin, end = one.window_after(now) or (one.begin, one.end)
        rows.append(
            (
                one.tenant,
                one.name,
                ", ".join(gpu.text for gpu in one.gpus),
                format_time(begin),
                format_time(end),
                None if one.every_s is None else format_duration(one.every_s),
                one.host,
            )
        )
    print_table(
        ["TENANT", "RESERVATION", "GPU", "FROM (UTC)", "UNTIL (UTC)", "EVERY", "HOST"],
        rows,
        empty="nothing is reserved",
    )
