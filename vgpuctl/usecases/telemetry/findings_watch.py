# SPDX-License-Identifier: Apache-2.0
"""Findings of the process that keeps the history: an event when one begins or ends, and metrics while it lasts."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.model import exhaustible
from vgpuctl.model.event import Event, EventFilter, Value
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.faults import FaultId, remedy_of
from vgpuctl.model.lease import Lease
from vgpuctl.model.over_promise import OverPromise
from vgpuctl.model.qualified_name import split_name
from vgpuctl.model.vm import printed_name
from vgpuctl.scheduler.advice import contention, framebuffer_runs_out
from vgpuctl.scheduler.advice.advice import MeasuredFault
from vgpuctl.scheduler.advice.everything import find_all
from vgpuctl.scheduler.advice.exhaustion import Outlook, Prospect
from vgpuctl.scheduler.advice.measured import DAY_S, FRAMEBUFFER, SHARE, STEAL, UTILIZATION, MeasuredFleet, MeasuredVgpu
from vgpuctl.store.store import Session, Store
from vgpuctl.telemetry import own_metrics as own
from vgpuctl.telemetry.exposition import Page
from vgpuctl.usecases.running.history import Past
from vgpuctl.usecases.telemetry.measured_fleet import Windows, read_vgpus
from vgpuctl.usecases.telemetry.measured_resources import hosts_with_pools_read, read_outlooks

LOOK_S, MOST_PART = 60.0, 0.05
"""Seconds between two looks, as the history has a step of a minute; more where a look takes longer than this part."""

_ENDS_AFTER = 5
"""Looks in a row without a finding after which it is over: one that flickers is one."""

_WINDOWS = Windows(
    0.0,
    {
        FRAMEBUFFER: exhaustible.FRAMEBUFFER.window_s,
        UTILIZATION: contention.WINDOW_S,
        SHARE: contention.WINDOW_S,
        STEAL: contention.WINDOW_S,
    },
)
_KINDS = {
    FaultId.FRAMEBUFFER_RUNS_OUT: EventKind.FRAMEBUFFER_PREDICTED,
    FaultId.SHARE_STOLEN: EventKind.CONTENTION_OBSERVED,
    **{one.fault: EventKind.EXHAUSTION_OBSERVED for one in exhaustible.OF_RESOURCES},
}
_IS_TOLD = {FaultId.FRAMEBUFFER_RUNS_OUT: framebuffer_runs_out.is_told, FaultId.SHARE_STOLEN: contention.is_told}
_LASTING_S = 30 * DAY_S
"""How far back the events are asked for findings that last."""

_BEGUN, _OVER = "begun", "over"
_Key = tuple[str, ...]
_Rows = list[tuple[tuple[str, ...], float]]


@dataclass
class _Open:
    finding: MeasuredFault
    missed: int = 0


@dataclass
class FindingsWatch:
    """The findings, from look to look. A restart, or a second process, tells no finding a second time.

    A process that begins asks the events for the findings that last, so that their end is told.
    """

    _open: dict[_Key, _Open] = field(default_factory=dict)
    _has_begun: bool = False
    _flat: set[_Key] = field(default_factory=set)
    """Framebuffers that are full and were never going to be: no finding."""

    def look(
        self, store: Store, past: Past, now: float, leases: Sequence[Lease], hosts: Collection[str] | None = None
    ) -> list[MeasuredFault]:
        """Look once; write an event for each finding that begins or ends. Raises one of PAST_PROBLEMS, StoreError.

        hosts: of the inventory; what only others have is over. None if nobody knows.
        Returns those to tell; of a VM whose tenant may take its neighbours' time, there is the event alone. A store
        that may only be read keeps no events.
        """
        if not self._has_begun:
            with store.reading() as session:
                self._open = {one.key: _Open(one) for one in _lasting(session, now)}
            self._has_begun = True
        vgpus = tuple(read_vgpus(past, leases, now, _WINDOWS))
        outlooks = read_outlooks(store, past, now, hosts)
        found = find_all(MeasuredFleet(now=now, leases=tuple(leases), vgpus=vgpus))
        full = [one for vgpu in vgpus if (one := framebuffer_runs_out.find_full(vgpu, now)) is not None]
        found += self._now_full(store, full, found)
        found += [one.finding for one in outlooks if one.finding is not None]
        untold = _Untold(leases, vgpus, outlooks, hosts, now, hosts_with_pools_read(past, now))
        begun = [one for one in found if one.key not in self._open]
        self._open |= {one.key: _Open(one) for one in found}
        seen = {one.key for one in found}
        for key, kept in list(self._open.items()):
            if key in seen:
                kept.missed = 0
            elif not untold.has(kept.finding):
                kept.missed += 1
        over = [key for key, kept in self._open.items() if kept.missed >= _ENDS_AFTER]
        ended = [self._open.pop(key).finding for key in over]
        with store.reading() as session:
            policies = session.over_promise() if found or ended else {}
        if (begun or ended) and store.read_only_reason is None:
            with store.transaction() as session:
                for one in begun:
                    _tell(session, one, _BEGUN, policies)
                for one in ended:
                    _tell(session, one, _OVER, policies)
        return [one for one in found if _policy(one, policies) is not OverPromise.ALLOW]

    def _now_full(
        self, store: Store, full: Sequence[MeasuredFault], found: Sequence[MeasuredFault]
    ) -> list[MeasuredFault]:
        """The full framebuffers that a finding told of, which is not over with what it foretold.

        A process that begins asks the events for what was told before it.
        """
        seen = {one.key for one in found}
        self._flat &= {one.key for one in full}
        still: list[MeasuredFault] = []
        for one in full:
            if one.key in seen or one.key in self._flat:
                continue
            if one.key not in self._open and not _is_told(store, one):
                self._flat.add(one.key)
                continue
            still.append(one)
        return still


def page_of(findings: Iterable[MeasuredFault]) -> Page:
    """The metrics of findings."""
    exhaustion: _Rows = []
    taken: _Rows = []
    ends: _Rows = []
    causes: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for one in findings:
        if one.resource:
            kind = next(kind.name for kind in exhaustible.OF_RESOURCES if kind.fault is one.fault)
            place = (one.host, kind, f"{one.resource} of {one.host}" if one.host else one.resource)
            ends += [((*place, bound), value) for bound, value in _times(one)]
            for cause in one.causes:
                # Foreign domains of one name on several hosts are one series.
                causes[*place, cause.tenant, cause.vm] += cause.ratio
            continue
        labels = (one.host, one.gpu, one.tenant, one.vm, one.share, one.profile)
        if one.fault is FaultId.FRAMEBUFFER_RUNS_OUT:
            exhaustion += [((*labels, bound), value) for bound, value in _times(one)]
        elif one.fault is FaultId.SHARE_STOLEN:
            taken.append((labels, one.figures["contention_ratio"]))
    families = [
        own.FRAMEBUFFER_EXHAUSTION.of(exhaustion),
        own.CONTENTION.of(taken),
        own.EXHAUSTION.of(ends),
        own.EXHAUSTION_CAUSE.of(causes.items()),
    ]
    return Page([one for one in families if one.rows])


def _times(one: MeasuredFault) -> Iterator[tuple[str, float]]:
    """The seconds until the end, by the name of the bound; none for a bound without end."""
    for bound, name in (("expected", ""), ("earliest", "earliest_"), ("latest", "latest_")):
        value = one.figures[f"{name}exhaustion_seconds"]
        if math.isfinite(value):
            yield bound, value


class _Untold:
    """The shares of which nobody can tell now what they lose, or how full their framebuffer is; and the resources."""

    def __init__(
        self,
        leases: Iterable[Lease],
        vgpus: Iterable[MeasuredVgpu],
        outlooks: Sequence[Outlook],
        hosts: Collection[str] | None,
        now: float,
        pools_read: frozenset[str],
    ) -> None:
        self._outlooks, self._hosts, self._pools_read = outlooks, hosts, pools_read
        self._read = {one.hosts[0] for one in outlooks if one.is_read and len(one.hosts) == 1}
        measured = {one.lease.id: one for one in vgpus}
        self._by_fault: dict[FaultId, set[tuple[str, str, str]]] = {
            fault: {
                (one.host, one.share.gpu, printed_name(one.tenant, one.vm_name))
                for one in leases
                if one.id not in measured or not is_told(measured[one.id], now)
            }
            for fault, is_told in _IS_TOLD.items()
        }

    def has(self, finding: MeasuredFault) -> bool:
        """True if nobody can say that a finding is over, since a share that it goes by is not measured now."""
        if finding.resource:
            return self._has_resource(finding)
        own = printed_name(finding.tenant, finding.vm)
        goes_by = finding.victims if finding.fault is FaultId.SHARE_STOLEN else (own,)
        return any((finding.host, finding.gpu, vm) in self._by_fault[finding.fault] for vm in goes_by)

    def _has_resource(self, finding: MeasuredFault) -> bool:
        """True unless readings tell that it lasts, or all of its hosts are measured and do not have it any longer."""
        for one in self._outlooks:
            if (one.host, one.resource) == (finding.host, finding.resource):
                return one.ending is Prospect.UNKNOWN
        had_it = finding.hosts or ((finding.host,) if finding.host else ())
        read = self._pools_read if finding.fault is FaultId.DISK_POOL_RUNS_OUT else self._read
        return not {one for one in had_it if self._hosts is None or one in self._hosts} <= read


def _lasting(session: Session, now: float) -> list[MeasuredFault]:
    """The findings that an earlier process told of, and that nobody has said to be over."""
    kinds = tuple(one.value for one in _KINDS.values())
    last: dict[_Key, tuple[MeasuredFault, Value]] = {}
    for one in session.events(None, EventFilter(kinds=kinds, since=now - _LASTING_S)):
        for fault in (
            fault for fault, kind in _KINDS.items() if (kind, fault) == (one.kind, one.evidence.get("finding"))
        ):
            finding = _told_by(one, fault)
            last[finding.key] = finding, one.after.get("state")
    return [finding for finding, state in last.values() if state == _BEGUN]


def _told_by(event: Event, fault: FaultId) -> MeasuredFault:
    """The finding that an event told of."""
    host, gpu, victims = event.host or "", event.evidence.get("gpu"), event.evidence.get("victims")
    names = tuple(victims) if isinstance(victims, list) else ()
    if gpu is None:
        hosts = event.evidence.get("hosts")
        had_it = tuple(map(str, hosts)) if isinstance(hosts, list) else ()
        return MeasuredFault(fault, host, "", "", "", "", "", event.detail, resource=event.subject, hosts=had_it)
    tenant, vm = split_name(event.subject)
    return MeasuredFault(fault, host, str(gpu), tenant or "", vm, "", "", event.detail, names)


def _is_told(store: Store, one: MeasuredFault) -> bool:
    with store.reading() as session:
        return _last_state(session, one) == _BEGUN


def _last_state(session: Session, one: MeasuredFault) -> Value:
    """The state in the last event about the same fault; `over` without one."""
    told = session.events(
        1, EventFilter(subjects=(one.subject,), kinds=(_KINDS[one.fault].value,), host=one.host or None)
    )
    return told[-1].after.get("state") if told and told[-1].evidence.get("gpu", "") == one.gpu else _OVER


def _policy(one: MeasuredFault, policies: Mapping[str, OverPromise]) -> OverPromise | None:
    """The tenant's policy for a finding; None for a finding that no policy is about."""
    return policies.get(one.tenant, OverPromise.NOTIFY) if one.fault is FaultId.SHARE_STOLEN else None


def _tell(session: Session, one: MeasuredFault, state: str, policies: Mapping[str, OverPromise]) -> None:
    """Write the event, unless the last one about the same says the same."""
    last = _last_state(session, one)
    if last == state:
        return
    policy = _policy(one, policies)
    session.add_event(
        _KINDS[one.fault],
        one.subject,
        one.text if state == _BEGUN else f"{one.fault} is over",
        tenant=one.tenant or None,
        host=one.host or None,
        before={"state": last},
        after={"state": state},
        evidence={
            "finding": one.fault.value,
            **({"remedy": remedy_of(one.fault)} if state == _BEGUN else {}),
            **({"gpu": one.gpu} if one.gpu else {"causes": [cause.name for cause in one.causes]}),
            **({} if policy is None else {"policy": str(policy)}),
            **({"victims": list(one.victims)} if one.gpu else {"hosts": list(one.hosts)}),
            **{name: round(value, 4) for name, value in one.figures.items() if math.isfinite(value)},
        },
    )
