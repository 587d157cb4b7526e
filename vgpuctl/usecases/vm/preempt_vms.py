# SPDX-License-Identifier: Apache-2.0
"""The gate through which every path preempts VMs: consent, notice, grace period, a last check, shutdown, requeue.

From the last check on the notice of a VM is final: final_preemptions.py stops it when the run that decided it cannot.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vgpuctl.errors import ConcurrentChange
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import Placement
from vgpuctl.model.queue import QueueKind
from vgpuctl.model.vm import Preemption, PreemptionNotice, Vm, VmRequest, VmState
from vgpuctl.quota import charge
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.scheduler.gang import as_one
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.failed_hosts import on_host
from vgpuctl.usecases.placement.preemption import candidates_for, may_ask_everyone
from vgpuctl.usecases.placement.queue_entries import note_waiting
from vgpuctl.usecases.placement.quota import refuse_before_preemption
from vgpuctl.usecases.running.operations import may_run, preempt_subject, reclaim_subject
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.seats.licences import refuse_without_seats
from vgpuctl.usecases.share.shares import leases_of
from vgpuctl.usecases.vm.final_preemptions import stop_all
from vgpuctl.usecases.vm.preemption_consent import Consent, names_of, refuse_without_consent
from vgpuctl.usecases.vm.preemption_notice import notice_to

_POLL_S = 2.0


def make_room(
    services: Services,
    requests: Sequence[VmRequest],
    placements: Sequence[Placement],
    victims: Sequence[Candidate],
    consent: Consent,
    *,
    is_new: bool = True,
) -> ConcurrentChange | None:
    """Preempt `victims` so that `requests`, VMs of one tenant, fit at `placements`.

    Each victim gets a notice, and after the grace period is shut down and releases its shares. Its disk and its row
    stay; it is requeued when its owner chose so, a gang as a whole.
    Returns why none was preempted, when another run preempts the same VM or a victim may no longer be preempted: the
    request is then placed again. is_new: False for a VM that exists and is charged already for all but its shares.
    Raises, with nothing changed, QuotaExceeded, and PreemptionNeeded when neither the command, its user nor the
    tenant's policy agreed; and the hosts' errors. When it ends in the grace period, the notices are withdrawn.
    Call it within `claims_end`, which ends the claims on quota that it reclaims.
    """
    leases = [
        lease
        for request, placement in zip(requests, placements, strict=True)
        for lease in leases_of(Vm("", request, placement.host, VmState.CREATING), placement)
    ]
    given_back = [lease for victim in victims for lease in victim.leases]
    with services.store.reading() as session:
        refuse_before_preemption(session, requests, leases, given_back, is_new=is_new)
        shares = [[lease.share for lease in leases if lease.vm_name == one.name] for one in requests]
        own = {vm.uuid for one in requests if (vm := session.vm(one.tenant, one.name)) is not None}
        refuse_without_seats(session, requests, shares, freed={one.vm_uuid for one in victims}, uuids=own)
    refuse_without_consent(services, requests, victims, consent)
    try:
        _preempt(services, requests, leases, victims, consent)
    except ConcurrentChange as change:
        services.say(f"{change.message}; placing again")
        _wait_for_others(services, victims, consent.shutdown_timeout_s)
        return change
    return None


def _wait_for_others(services: Services, victims: Sequence[Candidate], timeout_s: float) -> None:
    """Wait until no other run works on the victims: what a stop-vm of their owner gives back decides the next place."""
    uuids = {victim.vm_uuid for victim in victims}
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not services.goes_on:
        with services.store.reading() as session:
            if not any(one.subject in uuids and may_run(one) for one in session.open_operations()):
                return
        time.sleep(_POLL_S)


def _preempt(
    services: Services,
    requests: Sequence[VmRequest],
    leases: Sequence[Lease],
    victims: Sequence[Candidate],
    consent: Consent,
) -> None:
    """leases: what the requests would hold."""
    cause = names_of(requests)
    with contextlib.ExitStack() as at_work:
        for victim in victims:
            at_work.enter_context(
                services.store.operation("preempt-vm", preempt_subject(victim.vm_uuid), victim.name, exclusive=True)
            )
        with notice_to(services, victims, cause, consent):
            for victim in victims:  # a host that does not answer ends it here, before a gang is torn
                with on_host(victim.host):
                    services.host(victim.host).hypervisor.state(victim.name, uuid=victim.vm_uuid)
            vms = _confirm(services, requests, leases, victims, cause)
        try:
            stop_all(services, vms, consent.shutdown_timeout_s)
        except KeyboardInterrupt:
            services.say("what is to be preempted is decided: `vgpuctl repair` or the controller stops the rest")
            raise


@contextlib.contextmanager
def claims_end(services: Services, requests: Sequence[VmRequest]) -> Iterator[None]:
    """Claim quota that is reclaimed for `requests` (in make_room) until the end of the block at most."""
    subject = reclaim_subject(requests)
    try:
        yield
    finally:
        with services.store.reading() as session:
            has_claimed = any(one.subject == subject for one in session.open_operations())
        if has_claimed:
            with services.store.transaction() as session:
                session.end_own_operations(subject)


def _confirm(
    services: Services,
    requests: Sequence[VmRequest],
    leases: Sequence[Lease],
    victims: Sequence[Candidate],
    cause: str,
) -> list[Vm]:
    """Decide in one transaction: each victim may still be preempted, and requeue those whose owner chose so.

    It also claims the quota that is reclaimed, so that a second run does not count on the same guarantee.
    Returns the VMs to stop, those that still hold something; their notices are final.
    """
    chosen = {one.vm_uuid: one for one in victims}
    gangs = {one.gang for one in victims if one.gang is not None}
    with services.store.transaction() as session:
        candidates = candidates_for(session, as_one(requests))
        may_ask = may_ask_everyone(session, requests, [lease.share for lease in leases])
        allowed = {one.vm_uuid: one for one in (candidates.everyone if may_ask else candidates.less_important)}
        held = {lease.vm_uuid for lease in session.leases()}
        to_stop = []
        for vm in session.vms():
            if vm.uuid in chosen and vm.notice is not None:
                session.set_vm_notice(vm.uuid, None)
            if vm.state is not VmState.RUNNING and vm.uuid not in held:
                continue
            if vm.uuid in chosen or vm.gang in gangs:
                if vm.uuid not in allowed or vm.uuid not in chosen:
                    raise ConcurrentChange(
                        f"{vm.printed_name} has just changed and is not preempted", hint="run the same command again"
                    )
                to_stop.append(vm)
        final = PreemptionNotice(session.now(), cause, is_final=True)
        for vm in to_stop:
            session.set_vm_notice(vm.uuid, final)
            session.add_vm_event(
                EventKind.VM_PREEMPTED, vm, before={"state": str(vm.state)}, after={"preempted by": cause}
            )
        if {vm.uuid for vm in to_stop} - {one.vm_uuid for one in candidates.less_important}:
            _claim(session, requests, leases)
        again = [vm for vm in to_stop if vm.state is VmState.RUNNING and allowed[vm.uuid].action is Preemption.REQUEUE]
        _requeue(session, again, f"preempted by {cause}")
    return [replace(vm, notice=final) for vm in to_stop]


def _claim(session: Session, requests: Sequence[VmRequest], leases: Sequence[Lease]) -> None:
    shares = {one.name: [lease.share for lease in leases if lease.vm_name == one.name] for one in requests}
    amounts = {name: charge.of_shares(held) for name, held in shares.items()}
    session.claim_quota(reclaim_subject(requests), requests[0].tenant, amounts)


def _requeue(session: Session, vms: Sequence[Vm], reason: str) -> None:
    """Have VMs wait for their start, each gang in one entry with those of its members that wait already."""
    units: dict[str, list[Vm]] = {}
    for vm in vms:
        units.setdefault(vm.gang or vm.uuid, []).append(vm)
    for members in units.values():
        requests = {vm.request.name: replace(vm.request, host=vm.host) for vm in members}
        gang = members[0].gang
        mates = [vm for vm in session.vms(tenant=members[0].request.tenant) if gang is not None and vm.gang == gang]
        for vm in {one.uuid: one for one in (*members, *mates)}.values():
            entry = session.queued(vm.request.tenant, vm.request.name)
            if entry is not None and entry.kind.starts_again():
                session.leave_queue(entry.id)
                requests |= {one.name: one for one in entry.requests}
        first, *others = requests.values()
        session.join_queue(QueueKind.START_GANG if others else QueueKind.START, first, reason, others=others)
        note_waiting(session, (first, *others), reason)
