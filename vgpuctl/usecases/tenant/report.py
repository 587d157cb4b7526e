# SPDX-License-Identifier: Apache-2.0
"""report: one month of tenants, from the usage ledger, past readings, the queue's events and the incidents."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.measures import VGPU
from vgpuctl.catalog import profile_name
from vgpuctl.model.event import EventFilter
from vgpuctl.model.natural_order import natural
from vgpuctl.quota.incidents import END_KINDS, INCIDENT_KINDS, POWER_KINDS, Incident, incidents_of
from vgpuctl.quota.report import (
    QUEUE_KINDS,
    DayUse,
    MonthUse,
    QueueWait,
    days_of,
    months_of,
    queue_waits,
    tenants_of,
    year_until,
)
from vgpuctl.quota.traffic import TrafficCount, TrafficKind, TrafficLine, add_up_traffic
from vgpuctl.quota.usage import Interval, UsageLine, add_up
from vgpuctl.telemetry.history import HOUR_S, Sample
from vgpuctl.usecases.observed.states import States, read_states
from vgpuctl.usecases.running.history import PAST_PROBLEMS, Past, open_past
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.tenant.show_usage import show_usage

_SHARE, _UTILIZATION, _FRAMEBUFFER = "share_utilization_ratio", "utilization_ratio", "framebuffer_used_bytes"


@dataclass(frozen=True)
class MeasuredUse:
    """The measured use of one profile's shares.

    hours: of shares that have readings. coverage: these hours by the hours in the ledger, 0 to 1. promised_used: mean
    use of the promised compute time, weighted by time; promised_peak: the highest reading. utilization: mean part of a
    whole GPU. framebuffer: mean and peak of one share. None where nothing was measured.
    """

    profile: str
    hours: float
    coverage: float
    promised_used: float | None
    promised_peak: float | None
    utilization: float | None
    framebuffer_mean_bytes: float | None
    framebuffer_peak_bytes: float | None


@dataclass(frozen=True)
class DayPromise:
    """Mean use of the promised compute time on one day (UTC); hours: that were measured."""

    begins_at: float
    promised_used: float
    hours: float


@dataclass(frozen=True)
class StateCount:
    """How many of a tenant's objects are in a state now. heading, meaning: of model/states/."""

    heading: str
    state: str
    meaning: str
    count: int


@dataclass(frozen=True)
class TenantReport:
    """One tenant. usage: as show-usage adds it up; share_seconds: of all lines, to the second.

    measured: by profile; empty without past readings. months: the last ones until this, at most twelve. states: of the
    moment of the report. traffic: as show-usage --traffic adds it up.
    """

    tenant: str
    usage: tuple[UsageLine, ...]
    share_seconds: int
    days: tuple[DayUse, ...] = ()
    measured: tuple[MeasuredUse, ...] = ()
    promises: tuple[DayPromise, ...] = ()
    waits: tuple[QueueWait, ...] = ()
    incidents: tuple[Incident, ...] = ()
    states: tuple[StateCount, ...] = ()
    months: tuple[MonthUse, ...] = ()
    traffic: tuple[TrafficLine, ...] = ()

    @property
    def vm_traffic(self) -> TrafficCount:
        """Bytes and packets of all its VMs."""
        each = (one.carried for one in self.traffic if one.kind is TrafficKind.VM)
        return sum(each, TrafficCount())

    @property
    def gpu_hours(self) -> float:
        """Hours of whole GPUs, over all profiles."""
        return math.fsum(one.gpu_hours for one in self.usage)


@dataclass(frozen=True)
class Report:
    """since, until: the period, seconds since the epoch; nothing is counted beyond made_at, by the store's clock.

    past_problem: why nothing was measured, in one line.
    """

    since: float
    until: float
    made_at: float
    tenants: tuple[TenantReport, ...]
    past_problem: str | None = None


def make_report(services: Services, *, since: float, until: float, tenant: str | None = None) -> Report:
    """Report on one tenant, or on all that used something or exist. Raises NotFound, UsageError as show_usage does."""
    usage = show_usage(services, since=since, until=until, tenant=tenant)
    with services.store.reading() as session:
        now = session.now()
        traffic = add_up_traffic(session.traffic(since, usage.until, tenant))
        used = {*tenants_of(usage.intervals), *(one.tenant for one in traffic)}
        names = (
            [tenant] if tenant is not None else sorted({*(one.name for one in session.tenants()), *used}, key=natural)
        )
        # What has begun in the period may have ended after it.
        events = session.events(None, EventFilter(kinds=tuple(map(str, (*INCIDENT_KINDS, *END_KINDS))), since=since))
        of_queue, of_power = tuple(map(str, QUEUE_KINDS)), tuple(map(str, POWER_KINDS))
        queued = {name: session.events(None, EventFilter(kinds=of_queue, tenant=name)) for name in names}
        power = {name: session.events(None, EventFilter(kinds=of_power, tenant=name)) for name in names}
        year = session.intervals(year_until(usage.until)[0][0], usage.until, tenant)
        states = read_states(session)
    with open_past(services.past()) as opened:
        past, problem = opened.past, opened.problem
        reports = []
        for name in names:
            intervals = [one for one in usage.intervals if one.tenant == name]
            report = TenantReport(
                name,
                tuple(add_up(intervals, usage.since, usage.until)),
                round(math.fsum(one.seconds(usage.since, usage.until) for one in intervals)),
                tuple(days_of(intervals, usage.since, usage.until)),
                waits=tuple(queue_waits(queued[name], usage.since, usage.until)),
                incidents=tuple(incidents_of(events, intervals, name, usage.until, power[name])),
                states=tuple(_states_of(states, name)),
                months=tuple(months_of([one for one in year if one.tenant == name], usage.until)),
                traffic=tuple(one for one in traffic if one.tenant == name),
            )
            if past is not None and intervals:
                try:
                    report = _with_measured(report, intervals, past, usage.since, usage.until)
                except PAST_PROBLEMS as error:
                    past, problem = None, error.message
            reports.append(report)
    return Report(usage.since, usage.until, now, tuple(reports), problem)


def _states_of(states: States, tenant: str) -> list[StateCount]:
    """The states of the tenant's objects, in the order of the table, those that occur."""
    found = []
    for kind, rows in states.items():
        if kind.states is None or "tenant" not in kind.labels:
            continue
        at = kind.labels.index("tenant")
        counts = Counter(state for row in rows if row.labels[at] == tenant for state in row.states)
        found += [
            StateCount(kind.heading, state, meaning, counts[state])
            for state, meaning in kind.states.items()
            if counts[state]
        ]
    return found


def _with_measured(
    report: TenantReport, intervals: Sequence[Interval], past: Past, since: float, until: float
) -> TenantReport:
    """Add what was measured, in steps of an hour. Raises StoreUnusable or PrometheusUnusable.

    Readings name a type without its model; the ledger says which one a VM had.
    """
    counted = {(one.host, one.vm_name, profile_name(one.profile).name): one.profile for one in intervals}
    found: dict[str, dict[str, list[Sample]]] = {}
    for name in (_SHARE, _UTILIZATION, _FRAMEBUFFER):
        series = past.series(VGPU, name, since=since, until=until, step_s=HOUR_S, tenant=report.tenant)
        for subject, samples in series.items():
            profile = counted.get((subject.host, subject.vm, subject.profile), subject.profile)
            found.setdefault(profile, {}).setdefault(name, []).extend(samples)
    hours_by_profile = {one.profile: one.share_hours for one in report.usage}
    measured = [_measured(profile, hours, found.get(profile, {})) for profile, hours in hours_by_profile.items()]
    every = [one for by_name in found.values() for one in by_name.get(_SHARE, [])]
    days: dict[float, list[Sample]] = {}
    for one in every:
        days.setdefault(max(since, one.at // 86_400 * 86_400), []).append(one)
    promises = [
        DayPromise(begin, mean, sum(one.minutes for one in each) / 60)
        for begin, each in sorted(days.items())
        if (mean := _mean(each)) is not None
    ]
    return replace(report, measured=tuple(measured), promises=tuple(promises))


def _measured(profile: str, hours: float, samples: dict[str, list[Sample]]) -> MeasuredUse:
    share = samples.get(_SHARE, [])
    every = samples.get(_UTILIZATION) or share
    measured_hours = sum(one.minutes for one in every) / 60
    framebuffer = samples.get(_FRAMEBUFFER, [])
    return MeasuredUse(
        profile,
        measured_hours,
        min(1.0, measured_hours / hours) if hours else 0.0,
        _mean(share),
        max((one.high for one in share), default=None),
        _mean(samples.get(_UTILIZATION, [])),
        _mean(framebuffer),
        max((one.high for one in framebuffer), default=None),
    )


def _mean(samples: Sequence[Sample]) -> float | None:
    """The mean over time: an hour with more minutes counts more, whatever the number of its readings."""
    minutes = sum(one.minutes for one in samples)
    return math.fsum(one.mean * one.minutes for one in samples) / minutes if minutes else None
