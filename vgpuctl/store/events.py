# SPDX-License-Identifier: Apache-2.0
"""Events: what happened and who did it, only ever added to."""

import re
from typing import Any

from sqlalchemy import Column, ColumnElement, Row, delete, func, insert, or_, select, text

from vgpuctl.errors import StoreUnusable
from vgpuctl.model.event import EVERY_EVENT, Actor, Event, EventFilter, PrunedEvents, Value, Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.times import format_time_to_second
from vgpuctl.model.vm import Vm, host_name_of, printed_name
from vgpuctl.store import codec, tables
from vgpuctl.store.rows import Rows

_EVENTS = tables.events
_DELETE_TRIGGER = text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name = 'events_no_delete'")


class EventRows(Rows):
    """Add and list events."""

    def add_event(
        self,
        kind: EventKind,
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
                kind=kind.value,
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

    def add_vm_event(
        self,
        kind: EventKind,
        vm: Vm,
        detail: str = "",
        *,
        before: Values | None = None,
        after: Values | None = None,
        evidence: Values | None = None,
    ) -> None:
        """Add an event of a VM, with its tenant and host."""
        self.add_event(
            kind,
            vm.printed_name,
            detail,
            tenant=vm.request.tenant,
            host=vm.host,
            before=before,
            after=after,
            evidence=evidence,
        )

    def events(self, limit: int | None, wanted: EventFilter = EVERY_EVENT) -> list[Event]:
        """The last `limit` events that fit, the oldest of them first. limit: None for all of them."""
        query = select(_EVENTS).where(*_conditions(wanted)).order_by(_EVENTS.c.id.desc())
        if limit is not None:
            query = query.limit(limit)
        return [_event(row) for row in reversed(self._read(query))]

    def next_events(self, limit: int, wanted: EventFilter) -> list[Event]:
        """The first `limit` events that fit, the oldest first.

        The writers of a store take turns, so an event with a lower number never appears later: to follow the store,
        ask again with the number of the last event as `after_id`.
        """
        query = select(_EVENTS).where(*_conditions(wanted)).order_by(_EVENTS.c.id).limit(limit)
        return [_event(row) for row in self._read(query)]

    def last_event_id(self) -> int:
        """The number of the newest event, 0 when there is none."""
        return self._read(select(func.max(_EVENTS.c.id)))[0][0] or 0

    def prune_events(self, until: float, *, dry_run: bool = False) -> PrunedEvents:
        """Delete the events before a time, and add an event of it. until: seconds since the epoch, UTC.

        SQLite's trigger against it is put away for the length of this transaction. Raises StoreUnusable for a role of
        PostgreSQL that does not own the store.
        """
        old = _EVENTS.c.at < until
        ids = _EVENTS.c.id
        at = _EVENTS.c.at
        found = select(func.count(), func.min(ids), func.max(ids), func.min(at), func.max(at)).where(old)
        count, first_id, last_id, first_at, last_at = tuple(self._read(found)[0])
        pruned = PrunedEvents(until, count, first_id, last_id, first_at, last_at)
        if dry_run or not count:
            return pruned
        if self._connection.dialect.name == "postgresql":
            self._refuse_without_right_to_delete()
            self._write(delete(_EVENTS).where(old))
        else:
            (trigger,) = self._read(_DELETE_TRIGGER)
            self._write(text(f"DROP TRIGGER {trigger.name}"))
            self._write(delete(_EVENTS).where(old))
            self._write(text(trigger.sql))
        before = {"events": count, "from id": first_id, "to id": last_id}
        times = {"from": format_time_to_second(first_at), "to": format_time_to_second(last_at)}
        self.add_event(EventKind.EVENTS_PRUNED, "events", before={**before, **times}, after={"events": 0})
        return pruned

    def _refuse_without_right_to_delete(self) -> None:
        ((may,),) = self._read(text("SELECT has_table_privilege('events', 'DELETE')"))
        if not may:
            raise StoreUnusable(
                f"only the owner of the store {self._store_name} can prune events",
                hint="connect as the role that owns the database",
            )


def _conditions(wanted: EventFilter) -> list[ColumnElement[bool]]:
    columns = _EVENTS.c
    found = [columns.id > wanted.after_id] if wanted.after_id else []
    if wanted.before_id is not None:
        found.append(columns.id < wanted.before_id)
    equal = (
        (columns.tenant, wanted.tenant),
        (columns.host, wanted.host),
        (columns.command, wanted.command),
        (columns.database_role, wanted.database_role),
    )
    found += [column == value for column, value in equal if value is not None]
    if wanted.subjects:
        found.append(columns.subject.in_([form for one in wanted.subjects for form in _forms(one)]))
    if wanted.kinds:
        found.append(or_(*(_fits(columns.kind, kind) for kind in wanted.kinds)))
    if wanted.tenant is not None and wanted.node_pool is not None:
        names = "|".join(map(re.escape, _forms(printed_name(wanted.tenant, wanted.node_pool))))
        nodes = rf"^({names})-[0-9]{{3,4}}$"
        label = f"{wanted.tenant}/{wanted.node_pool}"
        found.append(or_(columns.subject == label, columns.subject.regexp_match(nodes)))
    if wanted.user is not None:
        found.append(columns.os_user.in_((wanted.user, f"{wanted.user} (root)")))
    if wanted.since is not None:
        found.append(columns.at >= wanted.since)
    if wanted.until is not None:
        found.append(columns.at < wanted.until)
    return found


def _forms(subject: str) -> tuple[str, ...]:
    """`acme/web-1` as events have it, and `acme.web-1` as an older vgpuctl wrote it."""
    tenant, slash, name = subject.partition("/")
    return (subject, host_name_of(tenant, name)) if slash else (subject,)


def _printed(subject: str, tenant: str | None) -> str:
    """The subject of an event, of an older vgpuctl too, as TENANT/NAME."""
    before = "" if tenant is None else host_name_of(tenant, "")
    return printed_name(tenant, subject.removeprefix(before)) if tenant and subject.startswith(before) else subject


def _fits(column: Column[str], pattern: str) -> ColumnElement[bool]:
    if "*" not in pattern:
        return column == pattern
    escaped = pattern.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return column.like(escaped.replace("*", "%"), escape="!")


def _written(values: Values | None) -> str | None:
    return codec.plain_text(codec.encode({name: _plain(value) for name, value in values.items()})) if values else None


def _plain(value: Value) -> Value:
    if isinstance(value, list):
        return [codec.plain_text(one) for one in value]
    return codec.plain_text(value) if isinstance(value, str) else value


def _event(row: Row[Any]) -> Event:
    what = f"event {row.id}"
    return Event(
        row.id,
        row.at,
        row.kind,
        _printed(row.subject, row.tenant),
        row.detail,
        row.tenant,
        row.host,
        Actor(row.command or "", row.os_user or "", row.client_host or ""),
        row.database_role,
        codec.decode_values(row.before, what=what),
        codec.decode_values(row.after, what=what),
        codec.decode_values(row.evidence, what=what),
    )
