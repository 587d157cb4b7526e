# SPDX-License-Identifier: Apache-2.0
"""show-usage: what tenants used, as table, JSON or CSV."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say
from vgpuctl.errors import UsageError
from vgpuctl.model.times import format_time, format_time_to_second

if TYPE_CHECKING:
    from vgpuctl.quota.traffic import TrafficLine
    from vgpuctl.quota.usage import Interval, UsageLine


class JsonUsage(TypedDict):
    """Sums of a period; since, until: seconds since the epoch, UTC."""

    since: float
    until: float
    usage: "Sequence[UsageLine]"


class JsonIntervals(TypedDict):
    """The intervals of a period, with --intervals."""

    since: float
    until: float
    intervals: "Sequence[Interval]"


class JsonTraffic(TypedDict):
    """Bytes and packets of whole days, with --traffic."""

    since: float
    until: float
    traffic: "Sequence[TrafficLine]"


def _hours(heading: str, of: "Callable[[UsageLine], float]", drops: int = 0) -> "Column[UsageLine]":
    return Column(heading, lambda one: f"{of(one):.4f}", key=lambda one: round(of(one), 4), drops=drops)


_JSON: "JsonOutput[JsonUsage | JsonIntervals | JsonTraffic]" = JsonOutput()
_LISTING: "Listing[UsageLine, UsageLine]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.tenant),
        Column("PROFILE", lambda one: one.profile),
        Column("SHARES", lambda one: one.shares),
        Column("ATTACHED", lambda one: one.attached, drops=2),
        _hours("SHARE HOURS", lambda one: one.share_hours),
        _hours("FRAMEBUFFER GIB HOURS", lambda one: one.framebuffer_gib_hours, drops=1),
        _hours("MIG COMPUTE HOURS", lambda one: one.mig_compute_hours, drops=3),
        _hours("GPU HOURS", lambda one: one.gpu_hours),
    ),
    name=lambda one: f"{one.tenant}/{one.profile}",
    json=lambda one: one,
    empty="nothing was used",
)
_INTERVALS: "Listing[Interval, Interval]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.tenant),
        Column("VM", lambda one: one.vm_name),
        Column("PROFILE", lambda one: one.profile),
        Column("HOST", lambda one: one.host, drops=3),
        Column("GPU", lambda one: one.gpu, drops=4),
        Column("FRAMEBUFFER GIB", lambda one: f"{one.framebuffer_mib / 1024:g}", drops=5),
        Column("CARD PART", lambda one: f"{one.card_part:.4g}", key=lambda one: round(one.card_part, 4), drops=6),
        Column(
            "BEGUN AT",
            lambda one: format_time_to_second(one.begun_at),
            key=lambda one: one.begun_at,
            unit=ColumnUnit.UTC,
        ),
        Column(
            "ENDED AT",
            lambda one: None if one.ended_at is None else format_time_to_second(one.ended_at),
            key=lambda one: one.ended_at,
            unit=ColumnUnit.UTC,
        ),
    ),
    name=lambda one: one.lease_id,
    in_order=True,
    json=lambda one: one,
    empty="nothing was used",
)


_TRAFFIC: "Listing[TrafficLine, TrafficLine]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.tenant),
        Column("KIND", lambda one: str(one.kind), drops=4),
        Column("NAME", lambda one: one.name),
        Column("RECEIVED BYTES", lambda one: one.received_bytes),
        Column("SENT BYTES", lambda one: one.sent_bytes),
        Column("RECEIVED PACKETS", lambda one: one.received_packets, drops=1),
        Column("SENT PACKETS", lambda one: one.sent_packets, drops=1),
        Column(
            "LAST READ",
            lambda one: format_time_to_second(one.last_at),
            key=lambda one: one.last_at,
            unit=ColumnUnit.UTC,
            drops=2,
        ),
    ),
    name=lambda one: f"{one.tenant}/{one.name}",
    json=lambda one: one,
    empty="no traffic was counted",
)


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
@click.option("--intervals", is_flag=True, help="Print each interval of an attached share instead of sums.")
@click.option("--traffic", is_flag=True, help="Print bytes and packets of VMs' interfaces, by whole days (UTC).")
@options.database
@_LISTING.options
def command(
    tenant: str | None,
    profiles: tuple[str, ...],
    since: str | None,
    until: str | None,
    month: str | None,
    intervals: bool,
    traffic: bool,
    database: str | None,
    output: ListOutput,
) -> None:
    """Show what tenants used, in hours by profile. The hours are those of shares, of framebuffer (GiB), of MIG compute
    slices, and of whole GPUs.

    A share counts from when its device is built until it is released, also while its VM is stopped and keeps it.
    Usage stays known after VMs are deleted.

    With --traffic it shows what VMs received and sent, as controllers counted it.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.times import parse_month, parse_time
    from vgpuctl.quota.limits import month_of
    from vgpuctl.usecases.tenant.show_usage import TrafficUsage, Usage, show_traffic, show_usage

    if traffic and (intervals or profiles):
        raise UsageError("--traffic takes neither --intervals nor --profile")
    if month is not None and (since is not None or until is not None):
        raise UsageError("give either --month or --since and --until, not both")
    named = None if month is None else parse_month(month, what="--month")
    with services(database=database) as opened:
        begin, end = month_of(opened.store.now() if named is None else named)

        usage: Usage | TrafficUsage = Usage(0.0, 0.0, (), ())
        first = begin if since is None else parse_time(since, what="--since")
        last = end if month is not None else None if until is None else parse_time(until, what="--until")

        def read() -> Usage:
            nonlocal usage
            usage = found = show_usage(opened, since=first, until=last, tenant=tenant, profiles=profiles)
            return found

        def read_traffic() -> "Sequence[TrafficLine]":
            nonlocal usage
            usage = found = show_traffic(opened, since=first, until=last, tenant=tenant)
            return found.lines

        if traffic:
            _TRAFFIC.show(
                output,
                read_traffic,
                lambda rows: _JSON.print({"since": usage.since, "until": usage.until, "traffic": rows}),
            )
        elif intervals:
            _INTERVALS.show(
                output,
                lambda: read().intervals,
                lambda rows: _JSON.print({"since": usage.since, "until": usage.until, "intervals": rows}),
            )
        else:
            _LISTING.show(
                output,
                lambda: read().lines,
                lambda rows: _JSON.print({"since": usage.since, "until": usage.until, "usage": rows}),
            )
    if output.is_for_people():
        say(f"{format_time(usage.since)} to {format_time(usage.until)} UTC")
