# SPDX-License-Identifier: Apache-2.0
"""Events: who changed what, when, what was there before and after, and the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | list[str] | None
Values: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True)
class Actor:
    """The person or service that runs a command.

    command: its name, for example `create-vm`. os_user: the login of the process on `client_host`, and before a `sudo`
    the login that called it.
    """

    command: str
    os_user: str
    client_host: str

    def __str__(self) -> str:
        return f"{self.os_user}@{self.client_host}" if self.os_user else "unknown"


NOBODY = Actor("", "", "")


@dataclass(frozen=True)
class Event:
    """Something that happened, as the store keeps it. Events are added and never changed.

    at: seconds since the epoch, UTC. subject: what it happened to, for example `acme/web-1` or a host's name.
    database_role: the role that wrote the row on PostgreSQL, None on SQLite. before, after: the values that changed.
    evidence: what was read or proven, for example how a GPU was reset.
    """

    id: int
    at: float
    kind: str
    subject: str
    detail: str = ""
    tenant: str | None = None
    host: str | None = None
    actor: Actor = NOBODY
    database_role: str | None = None
    before: Values = field(default_factory=dict)
    after: Values = field(default_factory=dict)
    evidence: Values = field(default_factory=dict)

    @property
    def who(self) -> str:
        """The actor, and the role of the database that vouches for it: `alice@admin-1 as alice_role`."""
        return str(self.actor) if self.database_role is None else f"{self.actor} as {self.database_role}"

    @property
    def changes(self) -> list[str]:
        """The values that changed, in words: `state: running → stopped`, `host: gpu1` for one that is new."""
        names = dict.fromkeys((*self.before, *self.after))
        return [f"{name}: {_change(self.before.get(name), self.after.get(name))}" for name in names]


@dataclass(frozen=True)
class EventFilter:
    """A filter of events: those that fit every given part.

    subjects: any of them. kinds: any of them; `*` stands for any characters, as in `vm-*`. user: the login with or
    without its `(root)`. since: first moment, until: the moment after the last, both seconds since the epoch.
    after_id: only events that were added later than this one, before_id: earlier. database_role: the role that wrote
    them on PostgreSQL. node_pool: of `tenant`, events of the pool and of every VM that is named as a node of it.
    """

    subjects: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    tenant: str | None = None
    host: str | None = None
    command: str | None = None
    user: str | None = None
    since: float | None = None
    until: float | None = None
    after_id: int = 0
    database_role: str | None = None
    before_id: int | None = None
    node_pool: str | None = None


EVERY_EVENT = EventFilter()
_OF_VMS = ("vm-*", "lease-*", "share-*", "volume-*", "nic-*")
"""Kinds of events whose subject is a VM. A network of the same tenant may have the VM's name."""


def events_of_vms(subjects: Sequence[str]) -> EventFilter:
    """The filter of the events of VMs, by their `TENANT.NAME`."""
    return EventFilter(tuple(subjects), _OF_VMS)


@dataclass(frozen=True)
class PrunedEvents:
    """Events that were deleted, or would be: those before `until`. The others are None where there are none."""

    until: float
    count: int
    first_id: int | None
    last_id: int | None
    first_at: float | None
    last_at: float | None


def _change(before: Value, after: Value) -> str:
    was, now = (_shown(one) for one in (before, after))
    if before is None or was == now:
        return now
    return f"{was} → {now}"


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (", ".join(value) if isinstance(value, list) else str("" if value is None else value)) or "nothing"
