# SPDX-License-Identifier: Apache-2.0
"""Events as a table, as lines for people and as JSON for collectors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vgpuctl.cli.support.output import plain, print_json, print_line, print_table

if TYPE_CHECKING:
    from vgpuctl.model.event import Event


def event_json(event: "Event") -> dict[str, Any]:
    """An event for programs: its fields, and its time once more as `2026-11-01T14:00:07Z`."""
    from vgpuctl.model.times import format_time_to_second

    return {"time": format_time_to_second(event.at), **plain(event)}


def print_event_table(events: "Sequence[Event]", *, empty: str) -> None:
    """Print events as a table."""
    from vgpuctl.model.times import format_time_to_second

    columns = ["TIME (UTC)", "EVENT", "OBJECT", "BY", "COMMAND", "DETAIL"]
    rows = [
        (
            format_time_to_second(one.at),
            one.kind,
            one.subject,
            one.who,
            one.actor.command or None,
            "; ".join(filter(None, (one.detail, *one.changes))) or None,
        )
        for one in events
    ]
    print_table(columns, rows, empty=empty)


def print_event_line(event: "Event", *, as_json: bool) -> None:
    """Print one event on one line and flush it."""
    from vgpuctl.model.times import format_time_to_second

    if as_json:
        print_json(event_json(event), indent=None)
        return
    texts = "; ".join(filter(None, (event.detail, *event.changes)))
    said = f": {texts}" if texts else ""
    by = f"by {event.who}" + (f" with {event.actor.command}" if event.actor.command else "")
    print_line(f"{format_time_to_second(event.at)} {event.kind} {event.subject} {by}{said}")
