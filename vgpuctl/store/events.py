# SPDX-License-Identifier: Apache-2.0
"""Events: what happened, only ever added to."""

from sqlalchemy import insert, select

from vgpuctl.store import codec, tables
from vgpuctl.store.records import Event
from vgpuctl.store.rows import Rows

_EVENTS = tables.events


class EventRows(Rows):
    """Add and list events."""

    def add_event(self, kind: str, subject: str, detail: str = "", *, at: float | None = None) -> None:
        """Add an event. at: seconds since the epoch, UTC; None for now."""
        self._write(
            insert(_EVENTS).values(
                at=self._clock() if at is None else at,
                kind=kind,
                subject=codec.plain_text(subject),
                detail=codec.plain_text(detail),
            )
        )

    def events(self, limit: int, subject: str | None = None) -> list[Event]:
        """The last `limit` events (of one subject), the oldest of them first."""
        query = select(_EVENTS).order_by(_EVENTS.c.id.desc()).limit(limit)
        if subject is not None:
            query = query.where(_EVENTS.c.subject == subject)
        rows = reversed(self._read(query))
        return [Event(row.id, row.at, row.kind, row.subject, row.detail) for row in rows]
