# SPDX-License-Identifier: Apache-2.0
"""Events: what happened and who did it, only ever added to."""

from typing import Any

from sqlalchemy import Row, insert, select

from vgpuctl.model.event import Actor, Event, Values
from vgpuctl.store import codec, tables
from vgpuctl.store.rows import Rows

_EVENTS = tables.events


class EventRows(Rows):
    """Add and list events."""

    def add_event(
        self,
        kind: str,
        subject: str,
        detail: str = "",
        *,
        tenant: str | None = None,
        host: str | None = None,
        before: Values | None = None,
        after: Values | None = None,
        evidence: Values | None = None,
        at: float | None = None,
    ) -> None:
        """Add an event in the name of the one who opened the store. at: seconds since the epoch, UTC; None for now.

        tenant, host: where `subject` belongs to one. before, after: the values that changed. evidence: what was read.
        """
        self._write(
            insert(_EVENTS).values(
                at=self._clock() if at is None else at,
                kind=kind,
                subject=codec.plain_text(subject),
                detail=codec.plain_text(detail),
                tenant=tenant,
                host=host,
                command=codec.plain_text(self._actor.command) or None,
                os_user=codec.plain_text(self._actor.os_user) or None,
                client_host=codec.plain_text(self._actor.client_host) or None,
                before=_written(before),
                after=_written(after),
                evidence=_written(evidence),
            )
        )

    def events(self, limit: int, subject: str | None = None) -> list[Event]:
        """The last `limit` events (of one subject), the oldest of them first."""
        query = select(_EVENTS).order_by(_EVENTS.c.id.desc()).limit(limit)
        if subject is not None:
            query = query.where(_EVENTS.c.subject == subject)
        return [_event(row) for row in reversed(self._read(query))]


def _written(values: Values | None) -> str | None:
    return codec.plain_text(codec.encode(dict(values))) if values else None


def _event(row: Row[Any]) -> Event:
    what = f"event {row.id}"
    return Event(
        row.id,
        row.at,
        row.kind,
        row.subject,
        row.detail,
        row.tenant,
        row.host,
        Actor(row.command or "", row.os_user or "", row.client_host or ""),
        row.database_role,
        codec.decode_values(row.before, what=what),
        codec.decode_values(row.after, what=what),
        codec.decode_values(row.evidence, what=what),
    )
