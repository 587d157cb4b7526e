# SPDX-License-Identifier: Apache-2.0
"""The incidents that a tenant's VMs felt: each with its end, its VMs and what it meant for them. Pure.

An event is no incident where it changed nothing for a running VM: a quarantine or a cordon that keeps new VMs away, a
finding about a GPU that goes on, a fault of another GPU, or anything while the VM was off.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.event import Event, Value
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.health import HealthCode
from vgpuctl.model.vm import host_name_of, printed_name
from vgpuctl.quota.usage import Interval

INCIDENT_KINDS: Mapping[str, tuple[str, str]] = {
    EventKind.GPU_HEALTH: ("GPU fault", ""),
    EventKind.HOST_OBSERVED: ("host outage", "nobody could reach the VM's host; no restart of it was seen"),
    EventKind.HOST_FENCED: ("host declared dead", "the VM ended with its host"),
    EventKind.HOST_REBOOTED: ("host rebooted", "the VM ended with its host"),
    EventKind.VM_PREEMPTED: ("preemption", "the VM was stopped for another one"),
    EventKind.VM_LOST: ("lost VM", "the data of the VM was on a dead host alone"),
    EventKind.VM_NOT_RESTARTED: ("VM did not restart", "the VM stayed off"),
    EventKind.SHARE_NOT_RESTORED: ("share not restored", "the VM stayed off, without its GPU share"),
    EventKind.LEASE_BROKEN: ("broken lease", "the VM lacked its GPU share"),
    EventKind.PROMISE_OBSERVED: ("broken promise", "the VM lacked something that was promised"),
    EventKind.VM_OBSERVED: ("VM failed", "the VM ended; neither its guest nor anybody else ended it"),
}
"""Kinds of events that a VM can feel: in words, and what each means for the VM."""
_STARTS = (EventKind.VM_CREATED, EventKind.VM_ADOPTED, EventKind.VM_STARTED, EventKind.VM_RESTORED, EventKind.VM_FOUND)
POWER_KINDS = (*_STARTS, EventKind.VM_STOPPED, EventKind.VM_OBSERVED)
"""Kinds of events that tell whether a VM was on."""
END_KINDS = (EventKind.GPU_RELEASED,)
"""Kinds of events that end an incident of another kind."""

_STOPPED = "the GPU stopped working in the VM"
_MEMORY = "the GPU lost memory content; programs that used it may have failed"
_PROGRAM = "a program that used the GPU failed, in this VM or in another one of the GPU"
_FELT: Mapping[str, str] = {
    HealthCode.OFF_THE_BUS: _STOPPED,
    HealthCode.GPU_MISSING: _STOPPED,
    HealthCode.CONFIG_DIFFERS: _STOPPED,
    HealthCode.BAR_UNASSIGNED: _STOPPED,
    HealthCode.DRIVER_FAILED: _STOPPED,
    HealthCode.XID_RESTART_BM: _STOPPED,
    HealthCode.XID_CHECK_MECHANICALS: _STOPPED,
    HealthCode.XID_RESET_GPU: "the GPU needed a reset; programs that used it failed",
    HealthCode.ECC_UNCORRECTED: _MEMORY,
    HealthCode.XID_WORKFLOW_48: _MEMORY,
    HealthCode.XID_RESTART_VM: "the VM had to be restarted",
    HealthCode.XID_UPDATE_SWFW: "the VM's vGPU could not start",
    HealthCode.XID_WORKFLOW_NVLINK: "a link between GPUs failed",
    HealthCode.XID_CHECK_UVM: _PROGRAM,
    HealthCode.XID_CONTACT_SUPPORT: _PROGRAM,
    HealthCode.XID_WORKFLOW_45: _PROGRAM,
    HealthCode.XID_RESTART_APP: _PROGRAM,
}
"""Findings about a GPU that a VM on it feels, the worst first, and what each means for the VM."""
_RANK = {code: rank for rank, code in enumerate(_FELT)}
_UP, _OFF = "up", ("shut-off", "crashed", "absent")
_UNREACHABLE, _XID = "unreachable", "xid-"
_ENDS: Mapping[str, str] = {EventKind.HOST_OBSERVED: _UP, EventKind.PROMISE_OBSERVED: "kept"}
"""States that end what another event of the same kind began."""
_SAME_LOOK_S = 1.0
"""Events of one reading of a host are noted within this time."""
_AFTER_BOOT_S = 600.0
"""Within this time after a boot the controller has seen which VMs have ended with it."""


@dataclass(frozen=True)
class Incident:
    """One thing that went wrong for a tenant. what: in words. effect: what it meant for the VMs.

    vms: of the tenant. duration_s: to its end; None where no end is known.
    """

    at: float
    kind: str
    what: str
    subject: str
    text: str
    vms: tuple[str, ...] = ()
    duration_s: float | None = None
    effect: str = ""


def incidents_of(
    events: Sequence[Event], intervals: Sequence[Interval], tenant: str, until: float, power: Iterable[Event] = ()
) -> list[Incident]:
    """The incidents before `until` that running VMs of a tenant felt.

    events: of INCIDENT_KINDS and END_KINDS, oldest first; those after `until` tell the ends. intervals: of the tenant,
    of the period. power: events of POWER_KINDS of the tenant, oldest first.
    """
    timeline, ends, reboots = _Power(power, tenant), _ends(events), _reboots(events)
    found: list[Incident] = []
    for one in _felt(events, set(reboots.values())):
        vms = _vms_of(one, intervals, tenant, timeline) if one.at < until else ()
        if not vms:
            continue
        what, effect = INCIDENT_KINDS[one.kind]
        finding = str(one.evidence.get("finding"))
        if one.kind == EventKind.GPU_HEALTH:
            what, effect = "Xid" if finding.startswith(_XID) else what, _FELT[finding]
            end = _end_of_fault(one, ends, intervals, vms) if effect is _STOPPED else None
        elif one.id in reboots:
            effect, end = INCIDENT_KINDS[EventKind.HOST_REBOOTED][1], timeline.back(vms, ends.get(one.id, one.at))
        elif one.kind in (EventKind.HOST_OBSERVED, EventKind.PROMISE_OBSERVED):
            end = ends.get(one.id)
        else:
            end = timeline.back(vms, one.at)
        if one.kind == EventKind.PROMISE_OBSERVED:
            effect = f"{effect}: {one.evidence.get('row')}"
        text = _text_for(one, tenant)
        incident = Incident(
            one.at, one.kind, what, one.subject, text, vms, None if end is None else end - one.at, effect
        )
        _add(found, incident)
    return found


def _text_for(one: Event, tenant: str) -> str:
    """What a tenant may read of an event: no names of other tenants' VMs, and not what an operator wrote of a host."""
    if one.kind == EventKind.HOST_FENCED:
        return ""
    if one.kind == EventKind.VM_PREEMPTED:
        return preempted_for(str(one.after.get("preempted by")), tenant)
    return one.detail or "; ".join(one.changes)


def preempted_for(cause: str, tenant: str) -> str:
    """For whom a VM was preempted, in words that its tenant may read. cause: VMs as `TENANT/NAME`, with commas."""
    is_own = all(one.startswith(printed_name(tenant, "")) for one in cause.split(", "))
    return f"preempted for {cause if is_own else 'a VM of another tenant'}"


def _add(found: list[Incident], new: Incident) -> None:
    """Add an incident; the broken rows of one VM that one look found are one incident, which lasts to the last end."""
    for number in range(len(found) - 1, -1, -1):
        old = found[number]
        if new.kind != EventKind.PROMISE_OBSERVED or new.at - old.at > _SAME_LOOK_S:
            break
        if (old.kind, old.subject) == (new.kind, new.subject):
            rows = f"{old.effect}, {new.effect.rpartition(': ')[2]}"
            ends = [None if one.duration_s is None else one.at + one.duration_s for one in (old, new)]
            known = [one for one in ends if one is not None]
            duration_s = max(known) - old.at if len(known) == len(ends) else None
            found[number] = replace(old, text=f"{old.text}; {new.text}", effect=rows, duration_s=duration_s)
            return
    found.append(new)


class _Power:
    """When the tenant's VMs were on."""

    def __init__(self, events: Iterable[Event], tenant: str) -> None:
        self._times: dict[str, list[float]] = {}
        self._is_on: dict[str, list[bool]] = {}
        for one in sorted(events, key=lambda one: (one.at, one.id)):
            name = _name(one.subject, tenant)
            if name is not None:
                self._times.setdefault(name, []).append(one.at)
                self._is_on.setdefault(name, []).append(_turns_on(one))

    def was_on(self, vm: str, at: float) -> bool:
        """True where no event before says that it was off."""
        before = bisect_left(self._times.get(vm, []), at)
        return not before or self._is_on[vm][before - 1]

    def back(self, vms: Iterable[str], at: float) -> float | None:
        """When all of these VMs were on again after a time, None where that is not known of one."""
        found = [self._next_on(vm, at) for vm in vms]
        known = [one for one in found if one is not None]
        return max(known) if known and len(known) == len(found) else None

    def _next_on(self, vm: str, at: float) -> float | None:
        times = self._times.get(vm, [])
        later = range(bisect_right(times, at), len(times))
        return next((times[number] for number in later if self._is_on[vm][number]), None)


def _turns_on(one: Event) -> bool:
    if one.kind == EventKind.VM_OBSERVED:
        return one.after.get("state") not in _OFF
    return one.kind != EventKind.VM_STOPPED


def _felt(events: Sequence[Event], told: set[int]) -> Iterator[Event]:
    """The events that a running VM feels; of what one look found about a GPU the worst. told: parts of an outage."""
    worst: dict[tuple[str, float], Event] = {}
    looks: dict[str, float] = {}
    unreachable: set[str] = set()
    booted: dict[str | None, float] = {}
    felt = []
    for one in events:
        if one.kind == EventKind.GPU_HEALTH:
            if (finding := one.evidence.get("finding")) in _RANK:
                if one.at - looks.get(one.subject, 0.0) > _SAME_LOOK_S:
                    looks[one.subject] = one.at
                key = (one.subject, looks[one.subject])
                if key not in worst or _RANK[str(finding)] < _RANK[str(worst[key].evidence["finding"])]:
                    worst[key] = one
        elif one.kind == EventKind.HOST_OBSERVED:
            state = one.after.get("state")
            if state == _UNREACHABLE and one.subject not in unreachable:
                unreachable.add(one.subject)
                felt.append(one)
            elif state == _UP:
                unreachable.discard(one.subject)
        elif one.kind == EventKind.VM_OBSERVED and one.at - booted.get(one.host, 0.0) < _AFTER_BOOT_S:
            continue  # its end is the reboot's
        elif one.kind in INCIDENT_KINDS and _changes_a_vm(one):
            if one.kind == EventKind.HOST_REBOOTED:
                booted[one.subject] = one.at
            if one.id not in told:
                felt.append(one)
    yield from sorted([*felt, *worst.values()], key=lambda one: (one.at, one.id))


def _changes_a_vm(one: Event) -> bool:
    if one.kind == EventKind.PROMISE_OBSERVED:
        return not _is_end(one)
    if one.kind == EventKind.VM_OBSERVED:
        return one.after.get("failed") is True
    return one.kind != EventKind.LEASE_BROKEN or one.before.get("state") != "releasing"


def _is_end(one: Event) -> bool:
    return one.kind in END_KINDS or one.after.get("state") == _ENDS.get(one.kind, "")


def _ends(events: Sequence[Event]) -> dict[int, float]:
    """Number of an event that began something → when it ended."""
    next_end: dict[tuple[str, str, Value], float] = {}
    ends = {}
    for one in reversed(events):
        of = "gpu" if one.kind in (EventKind.GPU_HEALTH, EventKind.GPU_RELEASED) else one.kind
        key = (of, one.subject, one.evidence.get("row"))
        if _is_end(one):
            next_end[key] = one.at
        elif key in next_end:
            ends[one.id] = next_end[key]
    return ends


def _reboots(events: Iterable[Event]) -> dict[int, int]:
    """Number of the event that began an outage → number of the reboot that it was."""
    outages: dict[str, tuple[int, float | None]] = {}
    found = {}
    for one in events:
        begun, ended_at = outages.get(one.subject, (0, None))
        if one.kind == EventKind.HOST_OBSERVED:
            if one.after.get("state") == _UP:
                outages[one.subject] = (begun, one.at)
            elif one.after.get("state") == _UNREACHABLE and (not begun or ended_at is not None):
                outages[one.subject] = (one.id, None)
        elif one.kind == EventKind.HOST_REBOOTED and begun and (ended_at is None or one.at - ended_at <= _SAME_LOOK_S):
            found[begun] = one.id
    return found


def _end_of_fault(
    one: Event, ends: Mapping[int, float], intervals: Sequence[Interval], vms: Sequence[str]
) -> float | None:
    """When the GPU was handed out again, or the last of the VMs had left it."""
    held = [each.ended_at for each in intervals if each.vm_name in vms and _holds(each, one)]
    left = [end for end in held if end is not None]
    found = [ends[one.id]] if one.id in ends else []
    return min([*found, max(left)] if held and len(left) == len(held) else found, default=None)


def _holds(each: Interval, one: Event) -> bool:
    host, _, device = one.subject.partition(" ")
    is_then = each.begun_at <= one.at and (each.ended_at is None or each.ended_at >= one.at)
    return each.host == host and is_then and device in ("", each.gpu)


def _vms_of(one: Event, intervals: Sequence[Interval], tenant: str, power: _Power) -> tuple[str, ...]:
    """The tenant's VMs that an event hit: its subject, or those that were on where it happened."""
    if one.tenant is not None:
        return (_name(one.subject, tenant) or one.subject,) if one.tenant == tenant else ()
    told = one.evidence.get("vms")
    if isinstance(told, list):
        hit = _names(told, tenant)
    else:
        hit = {each.vm_name for each in intervals if each.tenant == tenant and _holds(each, one)}
    return tuple(sorted(name for name in hit if power.was_on(name, one.at)))


def _names(value: Value, tenant: str) -> set[str]:
    found = {_name(one, tenant) for one in value} if isinstance(value, list) else set()
    return {name for name in found if name is not None}


def _name(label: str, tenant: str) -> str | None:
    """The name of a tenant's VM, also from `acme.web-1` as an older vgpuctl wrote it; None for any other."""
    prefixes = (printed_name(tenant, ""), host_name_of(tenant, ""))
    # `acme..x.y` is VM y of the tenant `acme.x`.
    names = (label.removeprefix(one) for one in prefixes if label.startswith(one))
    return next((name for name in names if not name.startswith(".")), None)
