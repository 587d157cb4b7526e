# SPDX-License-Identifier: Apache-2.0
"""list-events: the audit trail of the store."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.frame.ending import stop_on_signals
from vgpuctl.cli.lists.event_output import EVENTS, JsonEvent, print_event_line
from vgpuctl.cli.lists.listing import Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange

if TYPE_CHECKING:
    from vgpuctl.model.event import Event

_LISTING: "Listing[Event, JsonEvent]" = EVENTS


@click.command("list-events")
@click.argument("objects", nargs=-1, metavar="[OBJECT]...")
@options.tenant_filter
@click.option("--host", metavar="NAME", help="Only events of this host.")
@click.option("--node-pool", metavar="NAME", help="Only events of this pool and its nodes; needs --tenant.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind, for example vm-*; several times.")
@click.option("--command", metavar="NAME", help="Only events of this command, for example delete-vm.")
@click.option("--user", metavar="LOGIN", help="Only events of this user of the operating system.")
@click.option("--role", "database_role", metavar="ROLE", help="Only events that this role of PostgreSQL wrote.")
@click.option("--since", metavar="TIME", help="Start of the period, UTC unless it names a zone, or 2h for 2 hours ago.")
@click.option("--until", metavar="TIME", help="End of the period, in the form of --since.")
@click.option("--after", "after_id", type=WholeRange(0), default=0, metavar="ID", help="Only events after this one.")
@click.option(
    "--limit",
    type=WholeRange(0),
    default=100,
    show_default=True,
    metavar="NUMBER",
    help="Show the last NUMBER events, 0 for all.",
)
@click.option("--follow", is_flag=True, help="Show new events as they happen, until interrupted or until --until.")
@options.seconds("interval", 1.0, "With --follow: seconds between looks at the store.", least=0.1)
@options.database
@_LISTING.options
def command(
    objects: tuple[str, ...],
    tenant: str | None,
    host: str | None,
    node_pool: str | None,
    kinds: tuple[str, ...],
    command: str | None,
    user: str | None,
    database_role: str | None,
    since: str | None,
    until: str | None,
    after_id: int,
    limit: int,
    follow: bool,
    interval_s: float,
    database: str | None,
    output: ListOutput,
) -> None:
    """List what happened: who changed what by which command. Each change has its time.

    OBJECT is for example a VM as TENANT/NAME, a tenant, a network or a host. With --follow --json every event is
    one line of JSON, for collectors such as Vector; --after continues where a collector stopped.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.event import EventFilter
    from vgpuctl.model.times import parse_moment
    from vgpuctl.usecases.store.list_events import follow_events, list_events

    with services(database=database) as opened:
        now = opened.store.now()
        wanted = EventFilter(
            objects,
            kinds,
            tenant,
            host,
            command,
            user,
            None if since is None else parse_moment(since, what="--since", now=now),
            None if until is None else parse_moment(until, what="--until", now=now),
            after_id,
            database_role,
            node_pool=node_pool,
        )
        most = limit or None
        if not follow:
            _LISTING.show(output, lambda: list_events(opened, wanted, limit=most))
            return
        stop = stop_on_signals()
        for events in follow_events(opened, wanted, stop, limit=most, interval_s=interval_s):
            for one in _LISTING.wanted(events, output):
                print_event_line(one, as_json=output.form.is_for_programs())
