# SPDX-License-Identifier: Apache-2.0
"""The gate through which every path preempts VMs: consent, notice, grace period, a last check, shutdown, requeue.

From the last check on the notice of a VM is final: `finish_preemptions` stops it when the run that decided it cannot.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import ConcurrentChange, GuestError, HostError, PreemptionNeeded, VgpuctlError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import Placement
from vgpuctl.model.preemption import PreemptMode
from vgpuctl.model.queue import QueueKind
from vgpuctl.model.times import format_duration, format_time_to_second
from vgpuctl.model.vm import Hold, Preemption, PreemptionNotice, Vm, VmRequest, VmState
from vgpuctl.quota import charge
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.scheduler.gang import as_one
from vgpuctl.store.store import Session
from vgpuctl.usecases.placement.preemption import candidates_for, done_by, may_ask_everyone
from vgpuctl.usecases.placement.queue_entries import note_waiting
from vgpuctl.usecases.placement.quota import refuse_before_preemption
from vgpuctl.usecases.share.shares import leases_of
from vgpuctl.usecases.support.failed_hosts import on_host
from vgpuctl.usecases.support.licences import refuse_without_seats
from vgpuctl.usecases.support.operations import may_run, preempt_subject, reclaim_subject
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.undo import Undo
from vgpuctl.usecases.vm.stop_vm import stop_vm

SHUTDOWN_TIMEOUT_S = 120.0
_POLL_S = 2.0


@dataclass(frozen=True)
class Consent:
    """Permission of a command to preempt VMs, and the times that it gives them.

    is_given: with --preempt. ask: puts the question to the user; None without a terminal. grace_s: instead of the grace
    periods of the victims' tenants. shutdown_timeout_s: for each guest to shut down before it is forced off.
    """

    is_given: bool = False
    ask: Callable[[Sequence[Candidate]], bool] | None = None
    grace_s: float | None = None
    shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S


NO_CONSENT = Consent()


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
    while time.monotonic() < deadline:
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
    cause = _names(requests)
    with contextlib.ExitStack() as at_work:
        for victim in victims:
            at_work.enter_context(
                services.store.operation("preempt-vm", preempt_subject(victim.vm_uuid), victim.name, exclusive=True)
            )
        with _notice(services, victims, cause, consent):
            for victim in victims:  # a host that does not answer ends it here, before a gang is torn
                with on_host(victim.host):
                    services.host(victim.host).hypervisor.state(victim.name, uuid=victim.vm_uuid)
            vms = _confirm(services, requests, leases, victims, cause)
        try:
            _stop_all(services, vms, consent.shutdown_timeout_s)
        except KeyboardInterrupt:
            services.say("what is to be preempted is decided: `vgpuctl repair` or the controller stops the rest")
            raise


def _stop_all(services: Services, vms: Sequence[Vm], timeout_s: float) -> None:
    """Stop VMs whose notices are final. Raises the first error after all were tried: no gang is to stay in part."""
    failures = []
    for vm in vms:
        services.say(f"{vm.domain_name}: is preempted by {vm.notice.cause if vm.notice else 'another VM'}")
        try:
            _stop(services, vm, timeout_s)
        except VgpuctlError as error:
            services.say(f"{vm.domain_name}: {error.message}")
            failures.append(error)
            _after_failed_stop(services, vm)
    if failures:
        raise failures[0]


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


def finish_preemptions(
    services: Services, *, timeout_s: float, dry_run: bool = False
) -> list[tuple[Vm, VgpuctlError | None]]:
    """Stop VMs whose notice is final and whose run died or failed, so that no gang stays stopped in part.

    timeout_s: for each guest to shut down. Returns each VM with the error that kept it from being stopped.
    """
    with services.store.reading() as session:
        living = {one.subject for one in session.open_operations() if may_run(one)}
        found = [vm for vm in _decided(session) if preempt_subject(vm.uuid) not in living]
    done: list[tuple[Vm, VgpuctlError | None]] = []
    silent: dict[str, HostError] = {}
    for vm in found:
        error: VgpuctlError | None = silent.get(vm.host)  # one time-out per host, not one per VM
        try:
            if error is None and not dry_run:
                _finish(services, vm, timeout_s)
        except VgpuctlError as caught:
            services.forget_host(vm.host)
            error = caught
            if isinstance(caught, HostError):
                silent[vm.host] = caught
        done.append((vm, error))
    return done


def refuse_while_preempted(services: Services, vm: Vm) -> None:
    """Raise ConcurrentChange while a stopped VM, or another of its gang, has a final notice: the gang stops first."""
    with services.store.reading() as session:
        others = [one for one in _decided(session) if one.uuid == vm.uuid or (vm.gang and one.gang == vm.gang)]
    if others:
        raise ConcurrentChange(
            f"{others[0].domain_name} on {others[0].host} is being preempted"
            + ("" if others[0].uuid == vm.uuid else f", and {vm.domain_name} is of its gang"),
            hint="wait for it; when its host answers again, `vgpuctl repair` or the controller finishes it",
        )


def _decided(session: Session) -> list[Vm]:
    stoppable = (VmState.RUNNING, VmState.STOPPED)
    noticed = session.vms_with_notice()
    return [vm for vm in noticed if vm.notice is not None and vm.notice.is_final and vm.state in stoppable]


def _finish(services: Services, vm: Vm, timeout_s: float) -> None:
    with services.store.operation("preempt-vm", preempt_subject(vm.uuid), vm.domain_name, exclusive=True):
        with services.store.reading() as session:
            now = next((one for one in _decided(session) if one.uuid == vm.uuid), None)
        if now is not None:
            _stop(services, now, timeout_s)


def _stop(services: Services, vm: Vm, timeout_s: float) -> None:
    """Stop a VM whose notice is final; repeatable."""
    problem = None if vm.notice is None else f"preempted by {vm.notice.cause}"
    with on_host(vm.host):
        stop_vm(services, vm, hold=Hold.RELEASE, timeout_s=timeout_s, problem=problem)
    _drop_notices(services, [vm])


def _after_failed_stop(services: Services, vm: Vm) -> None:
    """Withdraw the final notice of a VM that could not be stopped, unless it runs and others of its gang do not."""
    with services.store.reading() as session:
        now = session.vm(vm.request.tenant, vm.request.name)
    if now is None or now.uuid != vm.uuid or now.state is not VmState.RUNNING:
        _drop_notices(services, [vm])  # its owner has just stopped or deleted it, or only its shares are left
    elif vm.gang is None:
        _withdraw(services, [vm])
    else:
        services.say(f"{vm.domain_name}: `vgpuctl repair` or the controller stops it as soon as {vm.host} answers")


def refuse_without_consent(
    services: Services, requests: Sequence[VmRequest], victims: Sequence[Candidate], consent: Consent
) -> None:
    """Raise PreemptionNeeded, which names the victims, unless the command, its user or the tenant's policy agreed."""
    with services.store.reading() as session:
        policy = session.tenant(requests[0].tenant).policy
    if consent.is_given or policy.preempt is PreemptMode.AUTO or (consent.ask is not None and consent.ask(victims)):
        return
    count = f"{len(victims)} VM{'s are' if len(victims) != 1 else ' is'}"
    fits = "fits" if len(requests) == 1 else "fit together"
    raise PreemptionNeeded(
        f"{_names(requests)} {fits} only if {count} preempted: {', '.join(one.name for one in victims)}",
        context=[describe_victim(one, consent.grace_s) for one in victims],
        hint="give --preempt to preempt them; --dry-run shows where the new VM would be",
    )


def describe_victim(victim: Candidate, grace_s: float | None = None) -> str:
    """One line: why the VM may be preempted and what becomes of it. grace_s: instead of its tenant's."""
    reason = "on borrowed quota" if victim.on_borrowed_quota else "preemptible"
    grace = format_duration(victim.grace_s if grace_s is None else grace_s)
    return (
        f"{victim.name} on {victim.host}: priority {victim.priority}, {reason}, has run for "
        f"{format_duration(victim.work_s)}, is {done_by(victim.action)} {grace} after the notice"
    )


def withdraw_dead_notices(services: Services, *, dry_run: bool = False) -> list[Vm]:
    """Withdraw notices of runs that died in the grace period. Returns the VMs that had one."""
    with services.store.reading() as session:
        living = {one.subject for one in session.open_operations() if may_run(one)}
        announced = [vm for vm in session.vms_with_notice() if vm.notice is not None and not vm.notice.is_final]
        found = [vm for vm in announced if preempt_subject(vm.uuid) not in living]
    if found and not dry_run:
        _withdraw(services, found)
    return found


@contextlib.contextmanager
def _notice(services: Services, victims: Sequence[Candidate], cause: str, consent: Consent) -> Iterator[None]:
    """Announce the preemption and wait for the grace period; on an exception in the block the notices are withdrawn."""
    with services.store.reading() as session:
        there = {vm.uuid: vm for vm in session.vms() if vm.state is VmState.RUNNING}
    running = [(there[one.vm_uuid], one) for one in victims if one.vm_uuid in there]
    grace_s = max((one.grace_s if consent.grace_s is None else consent.grace_s for _, one in running), default=0.0)
    vms = [vm for vm, _ in running]
    if not grace_s:
        yield
        return
    notice = PreemptionNotice(services.store.now() + grace_s, cause)
    with Undo(services.say) as undoing:
        undoing.push(f"notice to {', '.join(vm.domain_name for vm in vms)}", lambda: _withdraw(services, vms))
        with services.store.transaction() as session:
            for vm in vms:
                session.set_vm_notice(vm.uuid, notice)
                after = {"preempted at": format_time_to_second(notice.at), "by": cause}
                session.add_vm_event(EventKind.VM_PREEMPTION_NOTICE, vm, after=after)
        for vm in vms:
            services.say(f"{vm.domain_name}: is preempted by {cause} in {format_duration(grace_s)}")
            _tell_domain(services, vm, notice.at)
        _wait(services, {vm.uuid for vm in vms}, grace_s)
        yield
        undoing.keep()


def _wait(services: Services, uuids: set[str], grace_s: float) -> None:
    """Wait for the grace period, or until all of these VMs have stopped."""
    deadline = time.monotonic() + grace_s
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(_POLL_S, left_s))
        with services.store.reading() as session:
            if not any(vm.uuid in uuids and vm.state is VmState.RUNNING for vm in session.vms()):
                return


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
                        f"{vm.domain_name} has just changed and is not preempted", hint="run the same command again"
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


def _drop_notices(services: Services, vms: Sequence[Vm], *, event: EventKind | None = None) -> None:
    with services.store.transaction() as session:
        there = {vm.uuid: vm for vm in session.vms() if vm.notice is not None}
        for vm in vms:
            if vm.uuid in there:
                session.set_vm_notice(vm.uuid, None)
                if event is not None:
                    notice = there[vm.uuid].notice
                    before: Values = {} if notice is None else {"by": notice.cause, "is_final": notice.is_final}
                    session.add_vm_event(event, vm, before=before)


def _withdraw(services: Services, vms: Sequence[Vm]) -> None:
    _drop_notices(services, vms, event=EventKind.VM_PREEMPTION_WITHDRAWN)
    for vm in vms:
        services.say(f"{vm.domain_name}: is not preempted")
        with contextlib.suppress(VgpuctlError):  # the notice in the domain ends with the domain's run
            services.host(vm.host).hypervisor.set_preemption_notice(vm.domain_name, None, uuid=vm.uuid)


def _tell_domain(services: Services, vm: Vm, at: float) -> None:
    """Write the notice into the running domain's metadata. The store has it already, so a refusal ends nothing."""
    try:
        services.host(vm.host).hypervisor.set_preemption_notice(vm.domain_name, at, uuid=vm.uuid)
    except GuestError as error:
        services.say(f"{vm.domain_name}: its domain has no notice: {error.message}")


def _names(requests: Sequence[VmRequest]) -> str:
    return f"{requests[0].tenant}.{', '.join(one.name for one in requests)}"
