# SPDX-License-Identifier: Apache-2.0
"""The answer to whether, and how, a VM can go to another host, and what forbids a kinder way."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

NOT_LOOKED_AT = "not-looked-at"
"""Code of a limit that names what was not read: never taken for a yes."""


class MoveKind(StrEnum):
    """How a VM can go to another host; the kindest first."""

    LIVE = "live"
    COLD = "cold"
    PINNED = "pinned"
    BLOCKED = "blocked"

    def can_move(self) -> bool:
        """True if the VM can go there, running or shut down."""
        return self in (MoveKind.LIVE, MoveKind.COLD)

    def rank(self) -> int:
        """Return 0 for the kindest way; larger numbers are worse."""
        return list(MoveKind).index(self)


@dataclass(frozen=True)
class MoveLimit:
    """One reason against a kinder way.

    code: stable, kebab-case. limit: one sentence. remedy: what to do, "" where nothing helps. forbids: LIVE where the
    VM has to be shut down for the move, COLD where it cannot go at all. pins: the VM belongs to the host that it is
    on, rather than being kept from the other host for now; only with `forbids` COLD.
    """

    code: str
    limit: str
    remedy: str
    forbids: MoveKind
    pins: bool = False


@dataclass(frozen=True)
class MoveVerdict:
    """How one VM can go to one host.

    limits: what forbids a kinder way, the strongest first. not_looked_at: what was not read, in words; each has its
    limit. downtime_s: estimated stop of a live move in seconds, None if unknown. state_bytes: state of the VM's GPUs
    that a live move carries, None if unknown. notes: what to know that forbids nothing.
    """

    kind: MoveKind
    limits: tuple[MoveLimit, ...] = ()
    not_looked_at: tuple[str, ...] = ()
    downtime_s: float | None = None
    state_bytes: int | None = None
    notes: tuple[str, ...] = ()


def kind_of(limits: Sequence[MoveLimit]) -> MoveKind:
    """Return the kindest way that the limits leave: one that pins is stronger than one that blocks."""
    final = [one for one in limits if one.forbids is MoveKind.COLD]
    if any(one.pins for one in final):
        return MoveKind.PINNED
    if final:
        return MoveKind.BLOCKED
    return MoveKind.COLD if limits else MoveKind.LIVE
