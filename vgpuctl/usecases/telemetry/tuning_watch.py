# SPDX-License-Identifier: Apache-2.0
"""The VMs that a change in trial touches: their promises, their readings, and contention on their GPUs."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease
from vgpuctl.model.promise import LastFinding, Moment, PromiseRow, PromiseVerdict, badness
from vgpuctl.model.vm import Vm, VmState, printed_name
from vgpuctl.scheduler.advice import contention
from vgpuctl.scheduler.advice.measured import MINUTE_S, SHARE, STEAL, UTILIZATION, MeasuredVgpu
from vgpuctl.scheduler.advice.trial import SeenVm, row_name
from vgpuctl.usecases.domain.promises import look_at_promises
from vgpuctl.usecases.observed.gpu_health import policy_of
from vgpuctl.usecases.observed.known_promises import known_now
from vgpuctl.usecases.observed.observations import read_domains, read_facts
from vgpuctl.usecases.observed.promise_record import note_findings
from vgpuctl.usecases.running.history import PAST_PROBLEMS, open_past
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.measured_fleet import Windows, read_vgpus

LOOK_S = 60.0
"""A controller that watches a host looks at its promises more often. Where none does, the one that tunes looks."""

_ROWS = frozenset(row for row in PromiseRow if Moment.LOOK in row.moments and row is not PromiseRow.RESTART)
"""Rows that a controller looks at, without the one that no change of a GPU touches: controllers come and go."""

Places = Sequence[tuple[str, str]]
"""GPUs by host and address."""


@dataclass(frozen=True)
class TouchedVms:
    """vms: by UUID. findings: names of VMs that take their neighbours' time. problem: why there are no readings.

    looked_at: when a promise of each was last looked at, seconds since the epoch; 0 for one that never was.
    """

    vms: Mapping[str, SeenVm]
    findings: tuple[str, ...]
    problem: str | None
    looked_at: float


def vms_on(services: Services, places: Places) -> list[Vm]:
    """The running VMs with a share of these GPUs."""
    with services.store.reading() as session:
        uuids = {one.vm_uuid for one in _leases_on(session.leases(), places)}
        return [vm for vm in session.vms() if vm.uuid in uuids and vm.state is VmState.RUNNING]


def look(services: Services, hosts: Iterable[str]) -> None:
    """Look at the promises of the VMs of these hosts now, and record them. Raises what the hosts raise."""
    for host in sorted(set(hosts)):
        session = services.host(host)
        facts, domains = read_facts(services, host), read_domains(services, host)
        found = look_at_promises(services, session, facts, domains, session.agent.readings)
        with services.store.transaction() as store:
            note_findings(store, found, Moment.LOOK)


def see(services: Services, vms: Sequence[Vm], places: Places, since: float) -> TouchedVms:
    """Look at VMs on their hosts. since: seconds since the epoch; an older look does not count."""
    with services.store.reading() as session:
        now = session.now()
        known = {host: known_now(session, host) for host in {vm.host for vm in vms}}
        own = {vm.uuid for vm in vms}
        leases = [one for one in session.leases() if one.vm_uuid in own or (one.host, one.share.gpu) in places]
    measured, problem = _readings(services, leases, now, since)
    by_vm: defaultdict[str, list[MeasuredVgpu]] = defaultdict(list)
    for one in measured:
        by_vm[one.lease.vm_uuid].append(one)
    rows = {vm.uuid: [_since(one, since) for one in known[vm.host].get(vm.uuid, ())] for vm in vms}
    looks = [max((row.at for row in found), default=0.0) for found in rows.values()]
    return TouchedVms(
        {vm.uuid: _seen_vm(vm, rows[vm.uuid], by_vm[vm.uuid]) for vm in vms},
        tuple(_taking(measured, places, now)),
        problem,
        min(looks, default=0.0),
    )


def gone_since(services: Services, before: Collection[str], host: str) -> tuple[list[Vm], dict[str, str]]:
    """The VMs that run on the host still, and of the others what became of them, by UUID."""
    with services.store.reading() as session:
        found = {vm.uuid: vm for vm in session.vms() if vm.uuid in before}
    gone = {}
    for uuid in before:
        vm = found.get(uuid)
        if vm is None:
            gone[uuid] = "was deleted"
        elif vm.state is not VmState.RUNNING:
            gone[uuid] = f"is {vm.state}"
        elif vm.host != host:
            gone[uuid] = f"is on {vm.host}"
    return [found[uuid] for uuid in before if uuid not in gone], gone


def failures_since(services: Services, names: Collection[str], places: Places, since: float) -> list[str]:
    """What failed since then: VMs that ended though nobody ended them, and GPUs with a finding that is not tolerated.

    names: of the VMs, as events name them. A VM that failed and runs again has all of its promises, and its work is
    gone all the same.
    """
    gpus = {f"{host} {gpu}": host for host, gpu in places}
    kinds = (EventKind.VM_OBSERVED.value, EventKind.GPU_HEALTH.value)
    with services.store.reading() as session:
        events = session.events(None, EventFilter(subjects=(*sorted(names), *gpus), kinds=kinds, since=since))
    policies = {host: policy_of(services, host) for host in set(gpus.values())} if events else {}
    found = []
    for one in sorted(events, key=lambda one: one.id):
        if one.kind == EventKind.VM_OBSERVED and one.after.get("failed") is True:
            found.append(f"{one.subject} failed: nobody ended it")
        elif one.kind == EventKind.GPU_HEALTH:
            code = one.evidence.get("finding")
            if code not in policies[gpus[one.subject]].tolerate:
                found.append(f"{one.subject}: {code}")
    return list(dict.fromkeys(found))


def _leases_on(leases: Iterable[Lease], places: Places) -> list[Lease]:
    return [one for one in leases if (one.host, one.share.gpu) in places]


def _readings(
    services: Services, leases: Sequence[Lease], now: float, since: float
) -> tuple[list[MeasuredVgpu], str | None]:
    """The vGPUs with their minutes since then, and why there are none."""
    windows = Windows(0.0, dict.fromkeys((UTILIZATION, STEAL, SHARE), max(MINUTE_S, now - since)))
    try:
        with open_past(services.past()) as opened:
            if opened.past is None:
                return [], opened.problem
            found = read_vgpus(opened.past, leases, now, windows)
    except PAST_PROBLEMS as error:
        return [], error.message
    return [
        replace(one, minutes={name: tuple(p for p in points if p.at >= since) for name, points in one.minutes.items()})
        for one in found
    ], None


def _since(one: LastFinding, since: float) -> LastFinding:
    """A finding; not looked at where the look is older."""
    if one.at >= since:
        return one
    return replace(one, finding=replace(one.finding, verdict=PromiseVerdict.NOT_LOOKED_AT))


def _seen_vm(vm: Vm, rows: Sequence[LastFinding], vgpus: Sequence[MeasuredVgpu]) -> SeenVm:
    worst: dict[str, PromiseVerdict] = {}
    for row in rows:
        name = row_name(row.finding.row, row.finding.subject)
        if row.finding.row not in _ROWS:
            continue
        if name not in worst or badness(row.finding) > _badness(worst[name]):
            worst[name] = row.finding.verdict
    steal = [point.mean for one in vgpus for point in one.of(STEAL)]
    return SeenVm(
        vm.printed_name,
        worst,
        min((len(one.of(UTILIZATION)) for one in vgpus), default=0),
        min((len(one.of(STEAL)) for one in vgpus), default=0),
        fmean(steal) if steal else None,
        frozenset(
            row_name(row.finding.row, row.finding.subject)
            for row in rows
            if row.is_suspect and row.finding.row in _ROWS
        ),
    )


def _badness(verdict: PromiseVerdict) -> int:
    return (PromiseVerdict.KEPT, PromiseVerdict.NOT_LOOKED_AT, PromiseVerdict.BROKEN).index(verdict)


def _taking(vgpus: Sequence[MeasuredVgpu], places: Places, now: float) -> list[str]:
    found = [fault for place in places for fault in contention.find([one for one in vgpus if one.place == place], now)]
    return sorted({printed_name(one.tenant, one.vm) for one in found})
