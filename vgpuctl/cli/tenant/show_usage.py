# SPDX-License-Identifier: Apache-2.0
"""show-usage: what tenants used, as table, JSON or CSV."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_csv, print_json, print_table, say
from vgpuctl.errors import UsageError


@click.command("show-usage")
@options.tenant_filter
@click.option(
    "--profile", "profiles", multiple=True, metavar="NAME", help="Only shares of this profile; several times."
)
@click.option(
    "--since",
    metavar="TIME",
    help="Start of the period, UTC unless it names a zone.  [default: the first of this month]",
)
@click.option("--until", metavar="TIME", help="End of the period.  [default: now]")
@click.option("--month", metavar="YYYY-MM", help="Calendar month (UTC) instead of --since and --until.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values with a header.")
@click.option("--intervals", is_flag=True, help="Print each interval of an attached share instead of sums.")
@options.database
@options.as_json
def command(
    tenant: str | None,
    profiles: tuple[str, ...],
    since: str | None,
    until: str | None,
    month: str | None,
    as_csv: bool,
    intervals: bool,
    database: str | None,
    as_json: bool,
) -> None:
    """Show what tenants used, by profile: hours of shares, of framebuffer (GiB), of MIG compute slices, of whole GPUs.

    A share counts from when its device is built until it is released, also while its VM is stopped and keeps it.
    Usage stays known after VMs are deleted.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.times import format_time, format_time_to_second, parse_month, parse_time
    from vgpuctl.quota.limits import month_of
    from vgpuctl.usecases.tenant.show_usage import show_usage

    if month is not None and (since is not None or until is not None):
        raise UsageError("give either --month or --since and --until, not both")
    if as_csv and as_json:
        raise UsageError("give either --csv or --json, not both")
    named = None if month is None else parse_month(month, what="--month")
    with services(database=database) as opened:
        begin, end = month_of(opened.store.now() if named is None else named)
        usage = show_usage(
            opened,
            since=begin if since is None else parse_time(since, what="--since"),
            until=end if month is not None else None if until is None else parse_time(until, what="--until"),
            tenant=tenant,
            profiles=profiles,
        )
    if as_json:
        rows = usage.intervals if intervals else usage.lines
        print_json({"since": usage.since, "until": usage.until, "intervals" if intervals else "usage": rows})
        return
    if intervals:
        heading = ["tenant", "vm", "profile", "host", "gpu", "framebuffer_gib", "card_part", "begun_at", "ended_at"]
        cells: list[list[object]] = [
            [
                one.tenant,
                one.vm_name,
                one.profile,
                one.host,
                one.gpu,
                f"{one.framebuffer_mib / 1024:g}",
                f"{one.card_part:.4g}",
                format_time_to_second(one.begun_at),
                None if one.ended_at is None else format_time_to_second(one.ended_at),
            ]
            for one in usage.intervals
        ]
    else:
        heading = ["tenant", "profile", "shares", "attached", "share_hours", "framebuffer_gib_hours"]
        heading += ["mig_compute_hours", "gpu_hours"]
        cells = [
            [
                line.tenant,
                line.profile,
                line.shares,
                line.attached,
                f"{line.share_hours:.4f}",
                f"{line.framebuffer_gib_hours:.4f}",
                f"{line.mig_compute_hours:.4f}",
                f"{line.gpu_hours:.4f}",
            ]
            for line in usage.lines
        ]
    if as_csv:
        print_csv(heading, cells)
        return
    say(f"{format_time(usage.since)} to {format_time(usage.until)} UTC")
    print_table([name.upper().replace("_", " ") for name in heading], cells, empty="nothing was used")
