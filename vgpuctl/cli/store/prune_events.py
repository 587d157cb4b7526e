# SPDX-License-Identifier: Apache-2.0
"""prune-events: how long events are kept."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say

if TYPE_CHECKING:
    from vgpuctl.model.event import PrunedEvents


_JSON: "JsonOutput[PrunedEvents]" = JsonOutput()


@click.command("prune-events")
@click.option("--older-than", required=True, metavar="DURATION", help="Delete events older than this, as 400d or 52w.")
@options.dry_run
@options.yes
@options.database
@options.as_json
def command(older_than: str, dry_run: bool, yes: bool, database: str | None, as_json: bool) -> None:
    """Delete events that are older than a duration. An event says how many, and of which time.

    On PostgreSQL only the owner of the database can do this.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.model.plural import counted
    from vgpuctl.model.times import format_time, parse_duration
    from vgpuctl.usecases.store.prune_events import prune_events

    older_than_s = parse_duration(older_than, what="--older-than")
    with services(database=database) as opened:
        pruned = prune_events(opened, older_than_s, dry_run=True)
        if pruned.count and not dry_run:
            if not yes:
                confirm(f"Delete {counted(pruned.count, 'event')} before {format_time(pruned.until)} UTC?")
            pruned = prune_events(opened, older_than_s)
    if as_json:
        _JSON.print(pruned)
        return
    deed = "would be deleted" if dry_run else "deleted"
    say(f"{counted(pruned.count, 'event')} before {format_time(pruned.until)} UTC {deed}")
