# SPDX-License-Identifier: Apache-2.0
"""One page of the events, the newest first."""

from collections.abc import Mapping
from dataclasses import dataclass

from vgpuctl.model.event import Event, EventFilter
from vgpuctl.model.times import parse_moment
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.store.list_events import list_events

EVENTS_ON_PAGE = 100


@dataclass(frozen=True)
class EventPage:
    """events: the newest first. older: the page after this one begins before the event of this number; None for the
    last page. is_newest: True if no newer event fits."""

    events: tuple[Event, ...]
    older: int | None
    is_newest: bool


def read_filter(services: Services, given: Mapping[str, str]) -> EventFilter:
    """The filter of a page's form: object, kind, tenant, host, command, user, since, until, before.

    An empty field filters nothing. Raises UsageError.
    """
    now = services.store.now()
    has = {name: value.strip() for name, value in given.items() if value.strip()}
    before = has.get("before", "")
    return EventFilter(
        (has["object"],) if "object" in has else (),
        tuple(has["kind"].replace(",", " ").split()) if "kind" in has else (),
        has.get("tenant"),
        has.get("host"),
        has.get("command"),
        has.get("user"),
        parse_moment(has["since"], what="since", now=now) if "since" in has else None,
        parse_moment(has["until"], what="until", now=now) if "until" in has else None,
        before_id=int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None,
    )


def read_event_page(services: Services, wanted: EventFilter) -> EventPage:
    """The newest events that fit, one page of them. Raises UsageError as list_events does."""
    found = list_events(services, wanted, limit=EVENTS_ON_PAGE + 1)
    shown = found[-EVENTS_ON_PAGE:][::-1]
    older = shown[-1].id if len(found) > EVENTS_ON_PAGE else None
    return EventPage(tuple(shown), older, wanted.before_id is None)
