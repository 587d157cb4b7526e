# SPDX-License-Identifier: Apache-2.0
"""The parts of a tenant's report that follow from its intervals and the events: use by day and month, queue waits.

Pure, like the rest of this room. Sums are those of usage.add_up, so that a report and show-usage cannot disagree.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vgpuctl.model.event import Event
from vgpuctl.model.event_kind import EventKind
from vgpuctl.quota.incidents import preempted_for
from vgpuctl.quota.limits import month_of
from vgpuctl.quota.usage import Interval, UsageLine, add_up

DAY_S, MONTHS = 86_400, 12
QUEUE_KINDS = (EventKind.VM_QUEUED, EventKind.VM_LEFT_QUEUE)

_PREEMPTED = "preempted by "


@dataclass(frozen=True)
class DayUse:
    """One day (UTC) of one profile. begins_at: its first moment, seconds since the epoch."""

    begins_at: float
    profile: str
    gpu_hours: float
    share_hours: float


@dataclass(frozen=True)
class MonthUse:
    """One calendar month (UTC), over all profiles. begins_at: its first moment, seconds since the epoch."""

    begins_at: float
    gpu_hours: float
    share_hours: float


@dataclass(frozen=True)
class QueueWait:
    """One VM that waited. left_at: None while it still waits at the end of the period."""

    vm: str
    queued_at: float
    left_at: float | None
    wait_s: float
    reason: str


def days_of(intervals: Sequence[Interval], since: float, until: float) -> list[DayUse]:
    """The use of each day and profile; the days add up to the whole period."""
    found = []
    begin = since
    while begin < until:
        end = min(until, (begin // DAY_S + 1) * DAY_S)
        for line in add_up(intervals, begin, end):
            if line.share_hours:
                found.append(DayUse(begin, line.profile, line.gpu_hours, line.share_hours))
        begin = end
    return found


def year_until(until: float) -> list[tuple[float, float]]:
    """Begin and end of the last twelve calendar months, the oldest first; the last one ends at `until`."""
    found = [(month_of(until - 1)[0], until)]
    while len(found) < MONTHS:
        found.insert(0, month_of(found[0][0] - 1))
    return found


def months_of(intervals: Sequence[Interval], until: float) -> list[MonthUse]:
    """The use of each of the last months, from the first one in which something was used."""
    found: list[MonthUse] = []
    for begin, end in year_until(until):
        lines = add_up(intervals, begin, end)
        if lines or found:
            gpu_hours, share_hours = (math.fsum(each) for each in zip(*_hours(lines), strict=True))
            found.append(MonthUse(begin, gpu_hours, share_hours))
    return found


def _hours(lines: Iterable[UsageLine]) -> list[tuple[float, float]]:
    return [(0.0, 0.0), *((one.gpu_hours, one.share_hours) for one in lines)]


def queue_waits(events: Iterable[Event], since: float, until: float) -> list[QueueWait]:
    """The waits that ended in a period, and those that last at its end. events: of QUEUE_KINDS, oldest first."""
    waiting: dict[str, Event] = {}
    found = []
    for one in events:
        if one.at >= until:
            break
        if one.kind == EventKind.VM_QUEUED:
            waiting.setdefault(one.subject, one)
            continue
        queued = waiting.pop(one.subject, None)
        if queued is not None and one.at >= since:
            reason = _reason_of(one) or _reason_of(queued)
            found.append(QueueWait(one.subject, queued.at, one.at, one.at - queued.at, reason))
    found += [QueueWait(one.subject, one.at, None, until - one.at, _reason_of(one)) for one in waiting.values()]
    return sorted(found, key=lambda one: (one.queued_at, one.vm))


def _reason_of(one: Event) -> str:
    """Why a VM waited, in words that its tenant may read."""
    if not one.detail.startswith(_PREEMPTED):
        return one.detail
    return preempted_for(one.detail.removeprefix(_PREEMPTED), one.tenant or "")


def tenants_of(intervals: Iterable[Interval]) -> Iterator[str]:
    """The tenants that used something, by name."""
    yield from sorted({one.tenant for one in intervals})
