# SPDX-License-Identifier: Apache-2.0
"""Making room: VMs that give way to a more important one, or give back quota that their tenant borrowed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from vgpuctl.model.guest_memory import NO_MEMORY
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.queue import QueueKind
from vgpuctl.model.vm import Hold, Preemption, Vm, VmRequest, VmState
from vgpuctl.quota import charge
from vgpuctl.quota.borrowing import ChargedVm, borrowed_vms, may_reclaim
from vgpuctl.quota.limits import Quota
from vgpuctl.scheduler.gang_victims import GangEviction, choose_victims_together
from vgpuctl.scheduler.victims import Candidate, Eviction, choose_victims
from vgpuctl.store.store import Session
from vgpuctl.usecases.reservations import with_promises
from vgpuctl.usecases.services import Services
from vgpuctl.usecases.stop_vm import stop_vm

SHUTDOWN_TIMEOUT_S = 120.0


def find_eviction(services: Services, request: VmRequest, capacities: Sequence[HostCapacity]) -> Eviction | None:
    """The VMs that would have to give way so that `request` fits; None when that would not help either.

    Candidates are preemptible VMs of a lower priority; and, when the request stays within what its tenant was
    promised, VMs that stand on quota borrowed by other tenants. Adopted VMs are none: they cannot release their slices.
    """
    if not request.gpus:
        return None
    asked = _ask(services, request)
    found = choose_victims(request, capacities, asked.taken, asked.everyone)
    if found is None or asked.may_ask_everyone([found.placement]):
        return found
    return choose_victims(request, capacities, asked.taken, asked.less_important)


def find_eviction_together(
    services: Services, requests: Sequence[VmRequest], capacities: Sequence[HostCapacity]
) -> GangEviction | None:
    """The same for VMs of one tenant that are created together: who gives way is less important than each of them."""
    if not any(request.gpus for request in requests):
        return None
    asked = _ask(services, as_one(requests))
    found = choose_victims_together(requests, capacities, asked.taken, asked.everyone)
    if found is None or asked.may_ask_everyone(found.placements):
        return found
    return choose_victims_together(requests, capacities, asked.taken, asked.less_important)


def as_one(requests: Sequence[VmRequest]) -> VmRequest:
    """What VMs that are created together have in common: the least of their priorities, the longest of their times."""
    durations = [one.duration_s for one in requests]
    longest = None if None in durations else max(one for one in durations if one is not None)
    return replace(requests[0], priority=min(one.priority for one in requests), duration_s=longest)


@dataclass(frozen=True)
class _Asked:
    """taken: leases and promises. everyone: who may be asked to give way when the tenant may reclaim quota."""

    taken: Sequence[Lease]
    everyone: Sequence[Candidate]
    less_important: Sequence[Candidate]
    quotas: Sequence[Quota]
    used: charge.Amounts

    def may_ask_everyone(self, placements: Sequence[Placement]) -> bool:
        """Whether what is placed there stays within what its tenant was promised, or nobody need be asked for that."""
        if len(self.less_important) == len(self.everyone):
            return True
        slices = [one for placement in placements for one in placement.slices]
        return may_reclaim(self.quotas, self.used, charge.of_slices(slices))


def _ask(services: Services, request: VmRequest) -> _Asked:
    with services.store.reading() as session:
        vms = [vm for vm in session.vms() if vm.state in (VmState.RUNNING, VmState.STOPPED)]
        leases = session.leases()
        taken = with_promises(session, leases, request)
        borrowed = _borrowed(session, request.tenant, vms, leases)
        quotas, used = session.quotas(request.tenant), session.used(request.tenant)
        now = session.now()
        begun = {one.lease_id: one.begun_at for one in session.intervals(now, now + 1)}
    less_important, all_candidates = [], []
    for vm in vms:
        gives_way = vm.request.preemptible is not None and vm.request.priority < request.priority
        if vm.is_adopted or (not gives_way and vm.uuid not in borrowed):
            continue
        own = tuple(lease for lease in leases if lease.vm_uuid == vm.uuid)
        is_running = vm.state is VmState.RUNNING
        work_s = max((now - begun.get(lease.id, now) for lease in own), default=0.0) if is_running else 0.0
        memory = vm.request.memory if is_running else NO_MEMORY
        candidate = Candidate(vm.uuid, vm.domain_name, vm.host, vm.request.priority, work_s, memory, own)
        all_candidates.append(candidate)
        if gives_way:
            less_important.append(candidate)
    return _Asked(taken, all_candidates, less_important, quotas, used)


def carry_out(services: Services, cause: str, victims: Sequence[Candidate], *, timeout_s: float) -> None:
    """Stop the VMs that give way to `cause` and give their slices back.

    Their disks and rows stay, and `start-vm` starts them again. Those whose owner chose
    so wait in the queue to be started again on their host.

    timeout_s: how long a guest may take to shut down before the plug is pulled.
    Raises ConcurrentChange when another run works on a victim, and the host's errors.
    """
    with services.store.reading() as session:
        vms = {vm.uuid: vm for vm in session.vms()}
    for victim in victims:
        vm = vms.get(victim.vm_uuid)
        if vm is None:
            continue
        services.say(f"{victim.name}: gives way to {cause}")
        reason = f"gave way to {cause}"
        stop_vm(services, vm, hold=Hold.RELEASE, timeout_s=timeout_s, problem=reason, first=partial(_note, vm, reason))


def _note(vm: Vm, reason: str, session: Session) -> None:
    session.add_event("vm-preempted", vm.domain_name, reason)
    waits = session.queued(vm.request.tenant, vm.request.name) is not None
    if vm.request.preemptible is Preemption.REQUEUE and not waits:
        session.join_queue(QueueKind.START, replace(vm.request, host=vm.host), reason)


def _borrowed(session: Session, tenant: str, vms: Sequence[Vm], leases: Sequence[Lease]) -> frozenset[str]:
    """VMs of the other tenants that stand on borrowed quota."""
    created_at = session.vm_times()
    found: set[str] = set()
    for other in (one.name for one in session.tenants() if one.name != tenant):
        quotas = session.quotas(other)
        if all(quota.guaranteed is None for quota in quotas):
            continue
        charged = [
            ChargedVm(
                vm.uuid,
                created_at[vm.uuid],
                charge.of_slices(lease.slice for lease in leases if lease.vm_uuid == vm.uuid),
            )
            for vm in vms
            if vm.request.tenant == other
        ]
        found |= borrowed_vms(charged, quotas)
    return frozenset(found)
