# SPDX-License-Identifier: Apache-2.0
"""Events as a table, as lines for people and as JSON for collectors."""

from typing import TYPE_CHECKING, TypedDict

from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing
from vgpuctl.cli.shown.output import print_json, print_line
from vgpuctl.model.times import format_time_to_second

if TYPE_CHECKING:
    from vgpuctl.model.event import Actor, Event, Values


class JsonEvent(TypedDict):
    """An event: its fields, and its time once more as `2026-11-01T14:00:07Z`."""

    time: str
    id: int
    at: float
    kind: str
    subject: str
    detail: str
    tenant: str | None
    host: str | None
    actor: "Actor"
    database_role: str | None
    before: "Values"
    after: "Values"
    evidence: "Values"


def event_json(event: "Event") -> JsonEvent:
    """An event for programs."""
    return {
        "time": format_time_to_second(event.at),
        "id": event.id,
        "at": event.at,
        "kind": event.kind,
        "subject": event.subject,
        "detail": event.detail,
        "tenant": event.tenant,
        "host": event.host,
        "actor": event.actor,
        "database_role": event.database_role,
        "before": event.before,
        "after": event.after,
        "evidence": event.evidence,
    }


def _detail(event: "Event") -> str | None:
    return "; ".join(filter(None, (event.detail, *event.changes))) or None


EVENTS: "Listing[Event, JsonEvent]" = Listing(
    columns=(
        Column("TIME (UTC)", lambda one: format_time_to_second(one.at), key=lambda one: one.at, unit=ColumnUnit.UTC),
        Column("EVENT", lambda one: one.kind),
        Column("OBJECT", lambda one: one.subject),
        Column("BY", lambda one: one.who, drops=2),
        Column("COMMAND", lambda one: one.actor.command or None, drops=1),
        Column("DETAIL", _detail, is_text=True),
        Column("ID", lambda one: one.id, is_wide=True),
        Column("TENANT", lambda one: one.tenant, is_wide=True),
        Column("HOST", lambda one: one.host, is_wide=True),
    ),
    name=lambda one: str(one.id),
    in_order=True,
    json=event_json,
    empty="no event fits",
)


def print_event_line(event: "Event", *, as_json: bool) -> None:
    """Print one event on one line and flush it."""
    if as_json:
        print_json(event_json(event), indent=None)
        return
    texts = "; ".join(filter(None, (event.detail, *event.changes)))
    said = f": {texts}" if texts else ""
    by = f"by {event.who}" + (f" with {event.actor.command}" if event.actor.command else "")
    print_line(f"{format_time_to_second(event.at)} {event.kind} {event.subject} {by}{said}")
