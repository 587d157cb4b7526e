# SPDX-License-Identifier: Apache-2.0
"""VMs that wait for their turn."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.model.vm import VmRequest

USUAL_AGEING_S = 3600.0
NOT_LOOKED_AT = "not looked at yet"
"""The reason of an entry that nobody has tried to start."""


class QueuePolicy(StrEnum):
    """Who comes first."""

    FIFO = "fifo"
    PRIORITY = "priority"
    SHORTEST_FIRST = "shortest-first"
    FAIR_SHARE = "fair-share"


class QueueKind(StrEnum):
    """The work of an entry: a new VM, a new gang, or the start of a preempted VM or gang."""

    CREATE = "create"
    START = "start"
    GANG = "gang"
    START_GANG = "start-gang"

    def starts_again(self) -> bool:
        """True if the entry waits for VMs that exist, rather than for VMs to create."""
        return self in (QueueKind.START, QueueKind.START_GANG)

    def has_several(self) -> bool:
        """True if the entry is stored as a list of requests."""
        return self in (QueueKind.GANG, QueueKind.START_GANG)


@dataclass(frozen=True)
class QueueSettings:
    """How the queue is put in order. ageing_s: an entry moves up with time, and after this long nobody overtakes it."""

    policy: QueuePolicy = QueuePolicy.FIFO
    ageing_s: float = USUAL_AGEING_S


@dataclass(frozen=True)
class QueueEntry:
    """One VM, or several to be created together, that wait since queued_at (seconds since the epoch, UTC).

    request: the first one's; others: those that come with it. reason: why the last attempt did not start it, and
    refusal: the reference of its error, as in docs/errors.md; None before the first attempt. may_preempt: it
    was queued with --preempt, so the controller may preempt VMs for it.
    """

    id: int
    kind: QueueKind
    request: VmRequest
    queued_at: float
    reason: str | None = None
    others: tuple[VmRequest, ...] = ()
    may_preempt: bool = False
    refusal: str | None = None

    @property
    def why(self) -> str:
        """The reason, also of an entry that has none yet."""
        return self.reason or NOT_LOOKED_AT

    @property
    def requests(self) -> tuple[VmRequest, ...]:
        """All VMs of the entry, in the order in which they were asked for."""
        return (self.request, *self.others)

    @property
    def vm_names(self) -> str:
        """The names of its VMs: `web-1, web-2`."""
        return ", ".join(one.name for one in self.requests)

    @property
    def name(self) -> str:
        """Its name in messages: the VMs' names, with their tenant's."""
        return f"{self.request.tenant}/{self.vm_names}"

    @property
    def priority(self) -> int:
        """The priority in which all of its VMs have a part: the least."""
        return min(one.priority for one in self.requests)

    @property
    def duration_s(self) -> float | None:
        """How long all of it runs: the longest declared time, None for an open end."""
        durations = [one.duration_s for one in self.requests]
        return None if None in durations else max(one for one in durations if one is not None)
