# SPDX-License-Identifier: Apache-2.0
"""Events: what happened and who did it, only ever added to."""

import re

from vgpuctl.errors import StoreUnusable
from vgpuctl.model.backup import StoreKind
from vgpuctl.model.event import EVERY_EVENT, Actor, Event, EventFilter, PrunedEvents, Value, Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.times import format_time_to_second
from vgpuctl.model.vm import Vm, host_name_of, printed_name
from vgpuctl.store import codec
from vgpuctl.store.database import Row, given, matching
from vgpuctl.store.rows import Rows

_DELETE_TRIGGER = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name = 'events_no_delete'"


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
        self._insert(
            "events",
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
        rows = self._events(wanted, "DESC" if limit is None else "DESC LIMIT :limit", limit)
        return [_event(row) for row in reversed(rows)]

    def next_events(self, limit: int, wanted: EventFilter) -> list[Event]:
        """The first `limit` events that fit, the oldest first.

        The writers of a store take turns, so an event with a lower number never appears later: to follow the store,
        ask again with the number of the last event as `after_id`.
        """
        return [_event(row) for row in self._events(wanted, "LIMIT :limit", limit)]

    def _events(self, wanted: EventFilter, order: str, limit: int | None) -> list[Row]:
        conditions, values = _conditions(wanted, regular="REGEXP" if self._connection.kind is StoreKind.SQLITE else "~")
        where = " AND ".join(conditions) or "true"
        return self._read(f"SELECT * FROM events WHERE {where} ORDER BY id {order}", limit=limit, **values)

    def last_event_id(self) -> int:
        """The number of the newest event, 0 when there is none."""
        (row,) = self._read("SELECT max(id) AS id FROM events")
        return row.id or 0

    def prune_events(self, until: float, *, dry_run: bool = False) -> PrunedEvents:
        """Delete the events before a time, and add an event of it. until: seconds since the epoch, UTC.

        SQLite's trigger against it is put away for the length of this transaction. Raises StoreUnusable for a role of
        PostgreSQL that does not own the store.
        """
        (found,) = self._read(
            "SELECT count(*) AS events, min(id) AS first_id, max(id) AS last_id, min(at) AS first_at, "
            "max(at) AS last_at FROM events WHERE at < :until",
            until=until,
        )
        pruned = PrunedEvents(until, found.events, found.first_id, found.last_id, found.first_at, found.last_at)
        if dry_run or not found.events:
            return pruned
        delete = "DELETE FROM events WHERE at < :until"
        if self._connection.kind is StoreKind.POSTGRESQL:
            self._refuse_without_right_to_delete()
            self._write(delete, until=until)
        else:
            (trigger,) = self._read(_DELETE_TRIGGER)
            self._write(f"DROP TRIGGER {trigger.name}")
            self._write(delete, until=until)
            self._write(trigger.sql)
        before = {"events": found.events, "from id": found.first_id, "to id": found.last_id}
        times = {"from": format_time_to_second(found.first_at), "to": format_time_to_second(found.last_at)}
        self.add_event(EventKind.EVENTS_PRUNED, "events", before={**before, **times}, after={"events": 0})
        return pruned

    def _refuse_without_right_to_delete(self) -> None:
        (row,) = self._read("SELECT has_table_privilege('events', 'DELETE') AS may_delete")
        if not row.may_delete:
            raise StoreUnusable(
                f"only the owner of the store {self._store_name} can prune events",
                hint="connect as the role that owns the database",
            )


def _conditions(wanted: EventFilter, *, regular: str) -> tuple[list[str], dict[str, object]]:
    """The conditions and their values. regular: the database's operator for regular expressions."""
    equal = given(
        tenant=wanted.tenant,
        host=wanted.host,
        command=wanted.command,
        database_role=wanted.database_role,
        subject=[form for one in wanted.subjects for form in _forms(one)] or None,
        os_user=None if wanted.user is None else [wanted.user, f"{wanted.user} (root)"],
    )
    found, values = [matching(equal)], dict(equal)
    for name, condition, value in (
        ("after_id", "id > :after_id", wanted.after_id or None),
        ("before_id", "id < :before_id", wanted.before_id),
        ("since", "at >= :since", wanted.since),
        ("until", "at < :until", wanted.until),
    ):
        if value is not None:
            found.append(condition)
            values[name] = value
    exact = [kind for kind in wanted.kinds if "*" not in kind]
    patterns = {f"kind_{number}": _like(kind) for number, kind in enumerate(wanted.kinds) if "*" in kind}
    of_kinds = ["kind IN :kinds"] * bool(exact) + [f"kind LIKE :{name} ESCAPE '!'" for name in patterns]
    if of_kinds:
        found.append(f"({' OR '.join(of_kinds)})")
        values |= {"kinds": exact} if exact else {}
        values |= patterns
    if wanted.tenant is not None and wanted.node_pool is not None:
        names = "|".join(map(re.escape, _forms(printed_name(wanted.tenant, wanted.node_pool))))
        found.append(f"(subject = :pool OR subject {regular} :nodes)")
        values |= {"pool": f"{wanted.tenant}/{wanted.node_pool}", "nodes": rf"^({names})-[0-9]{{3,4}}$"}
    return found, values


def _forms(subject: str) -> tuple[str, ...]:
    """`acme/web-1` as events have it, and `acme.web-1` as an older vgpuctl wrote it."""
    tenant, slash, name = subject.partition("/")
    return (subject, host_name_of(tenant, name)) if slash else (subject,)


def _printed(subject: str, tenant: str | None) -> str:
    """The subject of an event, of an older vgpuctl too, as TENANT/NAME."""
    before = "" if tenant is None else host_name_of(tenant, "")
    return printed_name(tenant, subject.removeprefix(before)) if tenant and subject.startswith(before) else subject


def _like(pattern: str) -> str:
    """A pattern with `*` as one of LIKE, with `!` as its escape."""
    return pattern.replace("!", "!!").replace("%", "!%").replace("_", "!_").replace("*", "%")


def _written(values: Values | None) -> str | None:
    return codec.plain_text(codec.encode({name: _plain(value) for name, value in values.items()})) if values else None


def _plain(value: Value) -> Value:
    if isinstance(value, list):
        return [codec.plain_text(one) for one in value]
    return codec.plain_text(value) if isinstance(value, str) else value


def _event(row: Row) -> Event:
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
