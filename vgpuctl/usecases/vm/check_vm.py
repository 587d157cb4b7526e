# SPDX-License-Identifier: Apache-2.0
"""check-vm: whether everything that a VM's owner was promised is so, row by row, as each witness shows it."""

from collections.abc import Sequence

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.catalog.guest_os import GUEST_OSES, is_windows
from vgpuctl.errors import GuestError, StateError, VgpuctlError
from vgpuctl.guests.facts.guest_report import GuestReport, describe
from vgpuctl.guests.live.guest_agent import ask_probe
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.promise import Moment, PromiseCheck, verdict_of, worst_of_each
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.promises.witnessed import (
    NO_CONSENT,
    InsideGpu,
    InsideMps,
    NotLookedAt,
    PeerCopy,
    SeenInside,
    Witnessed,
)
from vgpuctl.sharing.measured import MeasuredShare, join_leases
from vgpuctl.usecases.domain.promises import check_promises
from vgpuctl.usecases.network.dhcp_answers import describe_dhcp
from vgpuctl.usecases.observed.guest_driver import read_host
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.observed.promise_record import note_findings
from vgpuctl.usecases.observed.strays import active_elsewhere
from vgpuctl.usecases.running.services import Services

PROBE_TIMEOUT_S = 60.0


def check_vm(
    services: Services, vm: Vm, leases: Sequence[Lease], *, timeout_s: float = PROBE_TIMEOUT_S
) -> PromiseCheck:
    """Ask every witness, the guest where its tenant allows it, and keep the answer as evidence.

    Rows of a witness that does not answer are not looked at, with the reason. Raises StateError for a VM that does not
    run.
    """
    if vm.state is not VmState.RUNNING:
        raise StateError(f"{vm.printed_name} has no promise to check: it is {vm.state}", hint="see `vgpuctl show-vm`")
    leases = [one for one in leases if one.state is LeaseState.RUNNING]
    with services.store.reading() as session:
        may_ask = session.tenant(vm.request.tenant).guest_probe
    report = _ask_guest(services, vm, timeout_s) if may_ask and leases else NO_CONSENT
    seen = Witnessed(
        kernel=_ask_kernel(services, vm) if leases else NotLookedAt("it holds no GPU share"),
        nvml=_ask_nvml(services, vm, leases) if leases else (),
        guest=report if isinstance(report, NotLookedAt) else seen_inside(report),
        elsewhere=active_elsewhere(services, vm),
    )
    findings = check_promises(services, vm, leases, seen)
    if isinstance(report, NotLookedAt):
        notes: tuple[str, ...] = (f"the guest was not asked: {report.why}",) if leases else ()
    else:
        notes = tuple(f"the guest says: {line}" for line in describe(report))
    notes = (*notes, *describe_dhcp(services, vm))
    ids = tuple(lease.id for lease in leases)
    with services.store.transaction() as session:
        check = PromiseCheck(vm.uuid, session.now(), verdict_of(findings), ids, findings, notes)
        note_findings(session, [(vm, findings)], Moment.CHECK)
        evidence = {str(one): f"{one.verdict}: {one.seen or one.why}" for one in worst_of_each(findings)}
        session.add_vm_event(EventKind.PROMISE_CHECKED, vm, str(check.verdict), after=evidence)
    return check


def _ask_guest(services: Services, vm: Vm, timeout_s: float) -> GuestReport | NotLookedAt:
    try:
        hypervisor = services.host(vm.host).hypervisor
        services.say(f"{vm.printed_name}: asking the guest")
        system = is_windows(vm.request.os) if vm.request.os in GUEST_OSES else None
        return ask_probe(hypervisor, vm.domain_name, uuid=vm.uuid, is_windows=system, timeout_s=timeout_s)
    except GuestError as error:
        return NotLookedAt(" ".join(filter(None, (error.message, *error.context))))


def _ask_kernel(services: Services, vm: Vm) -> HostFacts | NotLookedAt:
    try:
        return read_facts(services, vm.host)
    except VgpuctlError as error:
        services.note_silent(vm.host, error)
        return NotLookedAt(error.message)


def _ask_nvml(services: Services, vm: Vm, leases: Sequence[Lease]) -> Sequence[MeasuredShare] | NotLookedAt:
    try:
        return join_leases(leases, {vm.host: read_host(services, vm.host)})
    except VgpuctlError as error:
        services.note_silent(vm.host, error)
        return NotLookedAt(error.message)


def seen_inside(report: GuestReport) -> SeenInside:
    """Give the comparisons what a guest's report says."""
    gpus = tuple(
        InsideGpu(gpu.name, gpu.memory_mib, gpu.licence, gpu.uuid, gpu.product, gpu.compute_mode) for gpu in report.gpus
    )
    told = report.peer_copies
    peers = None if told is None else tuple(PeerCopy(one.source, one.target, one.problem, one.mib_s) for one in told)
    daemon = report.mps
    mps = None if daemon is None else InsideMps(daemon.threads, daemon.memory_mib, daemon.clients)
    return SeenInside(report.driver, gpus, report.cuda_devices, report.cuda_copies, peers, mps)
