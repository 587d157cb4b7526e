# SPDX-License-Identifier: Apache-2.0
"""check-vm: whether the promise of a VM's shares is kept, as its guest and its host's driver show it."""

from collections.abc import Sequence

from vgpuctl.catalog.guest_os import GUEST_OSES, is_windows
from vgpuctl.errors import GuestError, StateError, VgpuctlError
from vgpuctl.guests.facts.guest_report import GuestReport, describe
from vgpuctl.guests.live.guest_agent import ask_probe
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.proof import Proof, verdict_of
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.sharing.measured import MeasuredShare, join_leases
from vgpuctl.sharing.proof import InsideGpu, SeenInside, compare
from vgpuctl.usecases.support.guest_driver import read_host
from vgpuctl.usecases.support.services import Services

PROBE_TIMEOUT_S = 60.0
_NO_CONSENT = "the tenant does not allow it; `guest_probe: true` in its file does"


def check_vm(services: Services, vm: Vm, leases: Sequence[Lease], *, timeout_s: float = PROBE_TIMEOUT_S) -> Proof:
    """Ask the guest, where its tenant allows it, and the host; keep the answer as evidence of the leases.

    A GPU that is pending, because the guest has it not yet or not for long, is promised nothing. A guest or host that
    does not answer leaves its parts `unknown`, with the reason. Raises StateError for a VM that
    does not run, or holds no share.
    """
    leases = _promised(leases)
    if vm.state is not VmState.RUNNING or not leases:
        why = f"it is {vm.state}" if vm.state is not VmState.RUNNING else "it holds no GPU share"
        raise StateError(f"{vm.printed_name} has no promise to check: {why}", hint="see `vgpuctl show-vm`")
    with services.store.reading() as session:
        may_ask = session.tenant(vm.request.tenant).guest_probe
    report, unasked = _ask_guest(services, vm, timeout_s) if may_ask else (None, _NO_CONSENT)
    outside, problem = _ask_host(services, vm, leases)
    findings = compare(leases, None if report is None else _seen(report), outside)
    notes = () if report is None else tuple(f"the guest says: {line}" for line in describe(report))
    notes += () if problem is None else (f"{vm.host} was not read: {problem}",)
    ids = tuple(lease.id for lease in leases)
    with services.store.transaction() as session:
        proof = Proof(vm.uuid, session.now(), verdict_of(findings), ids, findings, unasked, notes)
        session.add_proof(proof)
        evidence = {one.part: f"{one.verdict}: {one.seen}" for one in findings}
        session.add_vm_event(EventKind.PROMISE_CHECKED, vm, str(proof.verdict), after=evidence)
    return proof


def _promised(leases: Sequence[Lease]) -> list[Lease]:
    """The leases of the GPUs that the guest has, and keeps."""
    return [one for one in leases if one.state is LeaseState.RUNNING]


def _ask_guest(services: Services, vm: Vm, timeout_s: float) -> tuple[GuestReport | None, str | None]:
    try:
        hypervisor = services.host(vm.host).hypervisor
        services.say(f"{vm.printed_name}: asking the guest")
        system = is_windows(vm.request.os) if vm.request.os in GUEST_OSES else None
        return ask_probe(hypervisor, vm.domain_name, uuid=vm.uuid, is_windows=system, timeout_s=timeout_s), None
    except GuestError as error:
        return None, " ".join(filter(None, (error.message, *error.context)))


def _ask_host(services: Services, vm: Vm, leases: Sequence[Lease]) -> tuple[list[MeasuredShare], str | None]:
    try:
        readings = read_host(services, vm.host)
    except VgpuctlError as error:
        return [MeasuredShare(lease, None) for lease in leases], error.message
    return join_leases(leases, {vm.host: readings}), None


def _seen(report: GuestReport) -> SeenInside:
    gpus = tuple(InsideGpu(gpu.name, gpu.memory_mib, gpu.licence, gpu.uuid) for gpu in report.gpus)
    return SeenInside(report.driver, gpus, report.cuda_devices, report.cuda_copies)


def last_proof(services: Services, vm: Vm, leases: Sequence[Lease]) -> Proof | None:
    """The newest proof of a VM that is about the leases it holds now; None without one."""
    with services.store.reading() as session:
        proof = session.last_proof(vm.uuid)
    return proof if proof is not None and set(proof.leases) == {lease.id for lease in _promised(leases)} else None
