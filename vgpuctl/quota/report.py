# SPDX-License-Identifier: Apache-2.0
"""The parts of a tenant's report that follow from its intervals and the events: use by day, queue waits, incidents.

Pure, like the rest of this room. Sums are those of usage.add_up, so that a report and show-usage cannot disagree.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.model.event import Event, Value
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import host_name_of, printed_name
from vgpuctl.quota.usage import Interval, add_up

DAY_S = 86_400
QUEUE_KINDS = (EventKind.VM_QUEUED, EventKind.VM_LEFT_QUEUE)
INCIDENT_KINDS: Mapping[str, str] = {
    EventKind.GPU_QUARANTINED: "quarantine",
    EventKind.GPU_HEALTH: "health of a GPU",
    EventKind.HOST_OBSERVED: "host outage",
    EventKind.HOST_FENCED: "host declared dead",
    EventKind.HOST_REBOOTED: "host rebooted",
    EventKind.VM_PREEMPTED: "preemption",
    EventKind.VM_LOST: "lost VM",
    EventKind.VM_NOT_RESTARTED: "VM did not restart",
    EventKind.SHARE_NOT_RESTORED: "share not restored",
    EventKind.LEASE_BROKEN: "broken lease",
}
"""Kinds of events that a tenant notices, each in words."""

_UP = "up"
_XID = "xid-"


@dataclass(frozen=True)
class DayUse:
    """One day (UTC) of one profile. begins_at: its first moment, seconds since the epoch."""

    begins_at: float
    profile: str
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


@dataclass(frozen=True)
class Incident:
    """One thing that went wrong. what: in words. duration_s: of an outage that has ended, None otherwise.

    vms: of the tenant, as far as the event or the ledger says which.
    """

    at: float
    kind: str
    what: str
    subject: str
    text: str
    vms: tuple[str, ...] = ()
    duration_s: float | None = None


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
            found.append(QueueWait(one.subject, queued.at, one.at, one.at - queued.at, one.detail or queued.detail))
    found += [QueueWait(one.subject, one.at, None, until - one.at, one.detail) for one in waiting.values()]
    return sorted(found, key=lambda one: (one.queued_at, one.vm))


def incidents_of(events: Sequence[Event], intervals: Sequence[Interval], tenant: str) -> list[Incident]:
    """The incidents that a tenant noticed: of its VMs, and of hosts and GPUs where it had a share then.

    events: of INCIDENT_KINDS, oldest first; of a host the whole outage is one incident.
    """
    ends, within = _outages(events)
    ended_at = {one.id: one.at for one in events if one.kind == EventKind.HOST_OBSERVED}
    found = []
    for one in events:
        vms = _vms_hit(one, intervals, tenant)
        if vms is None or _is_recovery(one) or one.id in within:
            continue
        end = ended_at.get(ends.get(one.id, 0))
        found.append(
            Incident(
                one.at,
                one.kind,
                _what(one),
                one.subject,
                one.detail or "; ".join(one.changes),
                vms,
                None if end is None else end - one.at,
            )
        )
    return found


def _what(one: Event) -> str:
    finding = one.evidence.get("finding")
    if isinstance(finding, str) and finding.startswith(_XID) and one.kind == EventKind.GPU_HEALTH:
        return "Xid"
    return INCIDENT_KINDS.get(one.kind, one.kind)


def _is_recovery(one: Event) -> bool:
    return one.kind == EventKind.HOST_OBSERVED and one.after.get("state") == _UP


def _outages(events: Iterable[Event]) -> tuple[dict[int, int], set[int]]:
    """Number of the event that began an outage → number of the one that ended it; and the numbers of those within."""
    open_since: dict[str, int] = {}
    ends: dict[int, int] = {}
    within: set[int] = set()
    for one in events:
        if one.kind != EventKind.HOST_OBSERVED:
            continue
        if _is_recovery(one):
            begun = open_since.pop(one.subject, None)
            if begun is not None:
                ends[begun] = one.id
        elif one.subject in open_since:
            within.add(one.id)
        else:
            open_since[one.subject] = one.id
    return ends, within


def _vms_hit(one: Event, intervals: Sequence[Interval], tenant: str) -> tuple[str, ...] | None:
    """The tenant's VMs that an event hit; None if it did not concern the tenant."""
    if one.tenant is not None:
        return (_name(one.subject, tenant) or one.subject,) if one.tenant == tenant else None
    told = _names(one.evidence.get("vms"), tenant)
    host, _, device = one.subject.partition(" ")
    there = {
        each.vm_name
        for each in intervals
        if each.tenant == tenant
        and each.host == host
        and each.begun_at <= one.at
        and (each.ended_at is None or each.ended_at >= one.at)
        and (not device or _is_on(each.gpu, device))
    }
    vms = tuple(sorted(told | there))
    return vms or None


def _is_on(gpu: str, device: str) -> bool:
    """True if a device can be the GPU or one of its VFs: they are on the GPU's bus, or the next ones."""
    return gpu == device or gpu.rpartition(":")[0] == device.rpartition(":")[0]


def _names(value: Value, tenant: str) -> set[str]:
    found = {_name(one, tenant) for one in value} if isinstance(value, list) else set()
    return {name for name in found if name is not None}


def _name(label: str, tenant: str) -> str | None:
    """The name of a tenant's VM, also from `acme.web-1` as an older vgpuctl wrote it; None for any other."""
    prefixes = (printed_name(tenant, ""), host_name_of(tenant, ""))
    # `acme..x.y` is VM y of the tenant `acme.x`.
    names = (label.removeprefix(one) for one in prefixes if label.startswith(one))
    return next((name for name in names if not name.startswith(".")), None)


def tenants_of(intervals: Iterable[Interval]) -> Iterator[str]:
    """The tenants that used something, by name."""
    yield from sorted({one.tenant for one in intervals})
