# SPDX-License-Identifier: Apache-2.0
"""VMs that may be preempted for a request: less important preemptible ones, and those on reclaimable borrowed quota.

Nothing is preempted here: usecases/vm/preempt_vms.py is the gate, and asks this file again before it stops a VM.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.preemption import TenantPolicy
from vgpuctl.model.times import format_duration
from vgpuctl.model.vm import Preemption, Vm, VmRequest, VmState
from vgpuctl.quota import charge
from vgpuctl.quota.borrowing import ChargedVm, borrowed_vms, may_reclaim
from vgpuctl.scheduler.candidates import Candidate, parties_of
from vgpuctl.scheduler.gang import as_one
from vgpuctl.scheduler.guest_place import footprint_of_vm
from vgpuctl.scheduler.victims import Eviction, choose_victims
from vgpuctl.store.store import Session
from vgpuctl.usecases.placement.reservations import with_promises
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class PreemptionTerms:
    """Terms on which a VM may be preempted. on_borrowed_quota: also by a VM of any priority, to reclaim the quota.

    action: state of the VM afterwards. grace_s: time from the notice to its shutdown.
    """

    on_borrowed_quota: bool
    action: Preemption
    grace_s: float

    def __str__(self) -> str:
        """The terms in one sentence."""
        reason = (
            "runs on borrowed quota and may be preempted"
            if self.on_borrowed_quota
            else "may be preempted by a VM of a higher priority"
        )
        return f"this VM {reason}: it is {done_by(self.action)} {format_duration(self.grace_s)} after a notice"


def done_by(action: Preemption) -> str:
    """The action as a past participle: `stopped`, `requeued`, `suspended`."""
    return {Preemption.STOP: "stopped", Preemption.REQUEUE: "requeued", Preemption.SUSPEND: "suspended"}[action]


def find_eviction(
    services: Services,
    requests: Sequence[VmRequest],
    capacities: Sequence[HostCapacity],
    *,
    failed: Collection[str] = (),
) -> Eviction | None:
    """The VMs to preempt so that `requests`, VMs of one tenant, fit; None if preempting all candidates would not help.

    Candidates are preemptible VMs of a lower priority than each of them; and, when the requests stay within their
    tenant's guarantee, VMs on borrowed quota of tenants whose policy accepts reclaim. Gangs are preempted whole.
    Adopted VMs are left out: they cannot release their shares. failed: hosts that do not answer; no VM of theirs
    is a candidate, and no gang with one there.
    """
    if not any(request.gpus for request in requests):
        return None
    asked = _ask(services, requests, failed)
    found = choose_victims(requests, capacities, asked.taken, asked.candidates.everyone)
    if found is None or asked.may_ask_everyone(found.placements):
        return found
    return choose_victims(requests, capacities, asked.taken, asked.candidates.less_important)


@dataclass(frozen=True)
class Candidates:
    """everyone: VMs that may be preempted by a tenant that may reclaim quota. less_important: by any tenant."""

    everyone: Sequence[Candidate]
    less_important: Sequence[Candidate]


def candidates_for(session: Session, request: VmRequest) -> Candidates:
    """The VMs whose owners were told that they may be preempted by such a request, gangs complete."""
    vms = session.vms()
    leases = _by_vm(session.leases())
    policies = {tenant.name: tenant.policy for tenant in session.tenants()}
    borrowing = _borrowed_units(session, vms, leases)
    now = session.now()
    begun = {one.lease_id: one.begun_at for one in session.intervals(now, now + 1)}
    everyone, less_important = list[Candidate](), list[Candidate]()
    for members in _units(vm for vm in vms if _holds_something(vm, leases)):
        lesser = [vm.request.preemptible is not None and vm.request.priority < request.priority for vm in members]
        first = members[0].request.tenant
        is_reclaimed = (
            first != request.tenant and _unit(members[0]) in borrowing and policies[first].reclaim.action() is not None
        )
        if not (is_reclaimed or all(lesser)) or any(vm.is_adopted for vm in members):
            continue
        action = _action_of(members, policies[first])
        party = [
            Candidate(
                vm_uuid=vm.uuid,
                name=vm.printed_name,
                host=vm.host,
                priority=vm.request.priority,
                work_s=_work_s(vm, leases.get(vm.uuid, ()), begun, now),
                footprint=(
                    footprint_of_vm(vm, leases.get(vm.uuid, ())) if vm.state is VmState.RUNNING else NO_FOOTPRINT
                ),
                leases=tuple(leases.get(vm.uuid, ())),
                gang=vm.gang,
                action=action,
                grace_s=policies[first].grace_s,
                on_borrowed_quota=not all(lesser),
            )
            for vm in members
        ]
        everyone += party
        if all(lesser):
            less_important += party
    return Candidates(everyone, less_important)


def preemption_terms(services: Services, vm: Vm, leases: Sequence[Lease]) -> PreemptionTerms | None:
    """The terms on which `vm`, which may be one that is only planned, is preempted; None if it never is."""
    with services.store.reading() as session:
        tenant = session.tenant(vm.request.tenant)
        may_be_reclaimed = tenant.policy.reclaim.action() is not None
        if vm.is_adopted or not (may_be_reclaimed or vm.request.preemptible is not None):
            return None
        vms = [one for one in session.vms(tenant=tenant.name) if one.uuid != vm.uuid]
        there = {**_by_vm(session.leases()), vm.uuid: list(leases)}
        is_borrowed = _unit(vm) in _borrowed_units(session, [*vms, vm], there)
    is_reclaimed = is_borrowed and may_be_reclaimed
    members = [one for one in (*vms, vm) if _unit(one) == _unit(vm)]
    if not is_reclaimed and any(one.request.preemptible is None for one in members):
        return None
    return PreemptionTerms(is_reclaimed, _action_of(members, tenant.policy), tenant.policy.grace_s)


def action_on(session: Session, vm: Vm) -> Preemption:
    """The state of a VM after it was preempted, with its gang."""
    tenant = session.tenant(vm.request.tenant)
    members = [one for one in session.vms(tenant=tenant.name) if _unit(one) == _unit(vm)]
    return _action_of(members, tenant.policy)


def reclaimable_vms(session: Session, tenant: str) -> list[Vm]:
    """The VMs of a tenant on borrowed quota that others may reclaim."""
    if session.tenant(tenant).policy.reclaim.action() is None:
        return []
    vms = session.vms(tenant=tenant)
    borrowing = _borrowed_units(session, vms, _by_vm(session.leases()))
    return [vm for vm in vms if _unit(vm) in borrowing]


def may_ask_everyone(session: Session, requests: Sequence[VmRequest], shares: Iterable[Share]) -> bool:
    """True if VMs of one tenant that take these shares may reclaim borrowed quota: it stays within its guarantee.

    Quota that other runs reclaim for the tenant at this moment counts as used.
    """
    tenant = requests[0].tenant
    claimed = session.claimed_quota(tenant, without=[one.name for one in requests])
    return may_reclaim(session.quotas(tenant), charge.add(session.used(tenant), claimed), charge.of_shares(shares))


@dataclass(frozen=True)
class _Asked:
    """requests: of one tenant. taken: leases and promises."""

    services: Services
    requests: Sequence[VmRequest]
    taken: Sequence[Lease]
    candidates: Candidates

    def may_ask_everyone(self, placements: Sequence[Placement]) -> bool:
        """True if what is placed there stays within the tenant's guarantee, or if that does not matter."""
        if len(self.candidates.less_important) == len(self.candidates.everyone):
            return True
        shares = [one for placement in placements for one in placement.shares]
        with self.services.store.reading() as session:
            return may_ask_everyone(session, self.requests, shares)


def _ask(services: Services, requests: Sequence[VmRequest], failed: Collection[str]) -> _Asked:
    with services.store.reading() as session:
        request = as_one(requests)
        taken = with_promises(session, session.leases(), request)
        candidates = candidates_for(session, request)
    everyone, less_important = (
        [one for party in parties_of(some) if not any(member.host in failed for member in party) for one in party]
        for some in (candidates.everyone, candidates.less_important)
    )
    return _Asked(services, requests, taken, Candidates(everyone, less_important))


def _unit(vm: Vm) -> str:
    """Key of what is preempted together: the gang, or the VM alone."""
    return vm.uuid if vm.gang is None else f"gang {vm.gang}"


def _units(vms: Iterable[Vm]) -> list[list[Vm]]:
    found: dict[str, list[Vm]] = {}
    for vm in vms:
        found.setdefault(_unit(vm), []).append(vm)
    return list(found.values())


def _by_vm(leases: Iterable[Lease]) -> dict[str, list[Lease]]:
    found: dict[str, list[Lease]] = {}
    for lease in leases:
        found.setdefault(lease.vm_uuid, []).append(lease)
    return found


def _holds_something(vm: Vm, leases: Mapping[str, Sequence[Lease]]) -> bool:
    return vm.state is VmState.RUNNING or (vm.state is VmState.STOPPED and bool(leases.get(vm.uuid)))


def _work_s(vm: Vm, leases: Sequence[Lease], begun: Mapping[str, float], now: float) -> float:
    """The time since its shares were attached; a stopped VM that keeps its shares loses no work."""
    if vm.state is not VmState.RUNNING:
        return 0.0
    return max((now - begun.get(lease.id, now) for lease in leases), default=0.0)


def _action_of(members: Sequence[Vm], policy: TenantPolicy) -> Preemption:
    """The state of VMs after they were preempted together: a VM's own choice comes before its tenant's.

    A gang is requeued or suspended only if that was chosen for each member, since it starts again as a whole.
    """
    actions = {vm.request.preemptible or policy.reclaim.action() for vm in members}
    return next((one for one in (Preemption.REQUEUE, Preemption.SUSPEND) if actions == {one}), Preemption.STOP)


def _borrowed_units(session: Session, vms: Sequence[Vm], leases: Mapping[str, Sequence[Lease]]) -> frozenset[str]:
    """Keys of the VMs and gangs that their tenant's guarantees do not cover; a gang counts as one."""
    created_at = session.vm_times()
    found: set[str] = set()
    for tenant in sorted({vm.request.tenant for vm in vms}):
        quotas = session.quotas(tenant)
        if all(quota.guaranteed is None for quota in quotas):
            continue
        charged = [
            ChargedVm(
                _unit(members[0]),
                min(created_at.get(vm.uuid, session.now()) for vm in members),
                charge.of_shares(lease.share for vm in members for lease in leases.get(vm.uuid, ())),
            )
            for members in _units(vm for vm in vms if vm.request.tenant == tenant)
        ]
        found |= borrowed_vms(charged, quotas)
    return frozenset(found)
