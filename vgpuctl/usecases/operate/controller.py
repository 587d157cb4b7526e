# SPDX-License-Identifier: Apache-2.0
"""controller: serves the queue and ends VMs whose declared time is over. Any number may run; each may die anywhere.

Nothing is kept in memory from round to round but the time of the last look at the hosts: the store says what is to be
done, and every step can be done again.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vgpuctl.errors import ConcurrentChange, NoCapacity, QuotaExceeded, VgpuctlError
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.vm import Hold, Vm, VmRequest, VmState
from vgpuctl.quota.queue_order import has_aged
from vgpuctl.scheduler.calendar import place_over
from vgpuctl.scheduler.explain import rejections_of
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import as_one, place_together
from vgpuctl.store.claims import Claim
from vgpuctl.store.store import Session
from vgpuctl.usecases.operate.repair import repair
from vgpuctl.usecases.placement.preemption import find_eviction
from vgpuctl.usecases.placement.queue_order import on_network_host, ordered_queue
from vgpuctl.usecases.placement.reservations import bookings_of, with_promises
from vgpuctl.usecases.placement.usable_hosts import usable_hosts
from vgpuctl.usecases.support.capacities import cached_capacities
from vgpuctl.usecases.support.observations import look
from vgpuctl.usecases.support.operations import may_run, refuse_while_busy
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.survey import survey
from vgpuctl.usecases.vm.create_vm import CreateOptions, create_together
from vgpuctl.usecases.vm.preempt_vms import Consent, finish_preemptions, refuse_without_consent, withdraw_dead_notices
from vgpuctl.usecases.vm.start_vm import start_vm
from vgpuctl.usecases.vm.stop_vm import stop_vm

REFRESH_S = 300.0
FAR_FUTURE = 1e15


@dataclass(frozen=True)
class Served:
    """One thing that the controller did, or tried: `started`, `ended`, `waits: why`, `failed: why`."""

    name: str
    outcome: str


def run(
    services: Services,
    stop: threading.Event,
    *,
    interval_s: float,
    shutdown_timeout_s: float,
    tell: Callable[[Sequence[Served]], None],
) -> None:
    """Work in rounds until `stop` is set. A round that fails is told and tried again."""
    looked_at = 0.0
    while not stop.is_set():
        try:
            if time.monotonic() - looked_at > REFRESH_S or not looked_at:
                _look(services)
                looked_at = time.monotonic()
            tell(run_once(services, shutdown_timeout_s=shutdown_timeout_s, stop=stop))
        except VgpuctlError as error:
            services.say(f"this round failed, the next is tried in {interval_s:g} s: {error.message}")
        stop.wait(interval_s)


def run_once(services: Services, *, shutdown_timeout_s: float, stop: threading.Event | None = None) -> Sequence[Served]:
    """One round: end what is over, repair what dead runs left, then start what fits, in the queue's order."""
    done = [_end(services, vm, shutdown_timeout_s) for vm in _overdue(services)]
    done += _fix(services, shutdown_timeout_s)
    with services.store.reading() as session:
        ordered = ordered_queue(session, session.now())
        settings = session.queue_settings()
    held_back: set[str] = set()
    for entry in ordered:
        if stop is not None and stop.is_set():
            break
        if held_back and any(one.gpus for one in entry.requests) and held_back & _hosts_when_empty(services, entry):
            continue
        with services.store.claim(entry) as claim:
            if claim is None:
                continue
            served, waits_for_room = _serve(services, entry, claim, shutdown_timeout_s)
            done.append(served)
        if waits_for_room and has_aged(entry, settings, services.store.now()):
            held_back |= _hosts_when_empty(services, entry)
    return done


def _serve(services: Services, entry: QueueEntry, claim: Claim, shutdown_timeout_s: float) -> tuple[Served, bool]:
    """Try to start one entry. The second value: whether it waits for room on hosts."""
    consent = Consent(is_given=entry.may_preempt, shutdown_timeout_s=shutdown_timeout_s)
    try:
        if entry.kind.starts_again():
            if not _start_again(services, entry, shutdown_timeout_s):
                claim.done()
                return Served(entry.name, "left the queue: it was deleted"), False
        else:
            refusal = _no_room(services, entry, consent)
            if refusal is not None:
                claim.note(refusal)
                return Served(entry.name, f"waits: {refusal}"), True
            with services.store.reading() as session:
                entry = session.with_secrets(entry)
            create_together(services, entry.requests, CreateOptions(consent=consent))
    except (NoCapacity, QuotaExceeded, ConcurrentChange) as refusal:
        claim.note(refusal.message)
        return Served(entry.name, f"waits: {refusal.message}"), isinstance(refusal, NoCapacity)
    except VgpuctlError as error:
        claim.note(f"failed, tried again: {error.message}")
        return Served(entry.name, f"failed: {error.message}"), False
    claim.done()
    return Served(entry.name, "started"), False


def _no_room(services: Services, entry: QueueEntry, consent: Consent) -> str | None:
    """Why an entry does not fit as far as the store knows, None when it is worth a try. No host is contacted.

    A VM that is there already, since an earlier controller died after creating it, needs no room.
    Raises PreemptionNeeded when it fits only if VMs are preempted, and nobody agreed to that.
    """
    requests = [on_network_host(services, one) for one in entry.requests]
    hosts = set(usable_hosts(services, requests[0]))
    with services.store.reading() as session:
        if any(session.vm(one.tenant, one.name) is not None for one in requests):
            return None
        capacities = [one for one in cached_capacities(session, services.inventory) if one.name in hosts]
        leases = with_promises(session, session.leases(), as_one(requests))
    fleet = Fleet(capacities, leases)
    if place_together(fleet, requests) is not None:
        return None
    eviction = find_eviction(services, requests, capacities)
    if eviction is None:
        return _why(fleet, requests)
    refuse_without_consent(services, requests, eviction.victims, consent)
    return None


def _why(fleet: Fleet, requests: Sequence[VmRequest]) -> str:
    """Why requests that do not fit together have to wait, in a few words."""
    if len(requests) > 1:
        return f"the {len(requests)} VMs do not fit together now"
    answer = rejections_of(fleet, requests[0])
    return answer[0].reason if len(answer) == 1 else f"none of {len(answer)} GPUs and hosts can take it now"


def _start_again(services: Services, entry: QueueEntry, shutdown_timeout_s: float) -> bool:
    """Start the VMs of an entry that were preempted, all or none. Returns False when none of them exists any more.

    Those that run by now need nothing. Raises ConcurrentChange while one is just being stopped.
    """
    with services.store.reading() as session:
        there = [session.vm(one.tenant, one.name) for one in entry.requests]
    vms = [vm for vm in there if vm is not None]
    for vm in vms:
        refuse_while_busy(services, vm)
    stopped = [vm for vm in vms if vm.state is VmState.STOPPED]
    start_vm(services, stopped, shutdown_timeout_s=shutdown_timeout_s, reason=entry.reason)
    return bool(vms)


def _hosts_when_empty(services: Services, entry: QueueEntry) -> set[str]:
    """The hosts on which one of the entry's VMs would fit if enough VMs ended; empty when it never fits."""
    try:
        hosts = set(usable_hosts(services, entry.request))
    except NoCapacity:
        return set()
    with services.store.reading() as session:
        capacities = [one for one in cached_capacities(session, services.inventory) if one.name in hosts]
        running = [one for one in bookings_of(session) if one.host in hosts and one.vm_uuid is not None]
    endless = [replace(one, end=FAR_FUTURE) for one in running]

    def fits(requests: Sequence[VmRequest], on: Sequence[HostCapacity]) -> bool:
        return place_over(requests, on, endless, [(FAR_FUTURE, FAR_FUTURE + 1)]) is not None

    if not fits(entry.requests, capacities):
        return set()
    return {one.name for one in capacities if any(fits([request], [one]) for request in entry.requests)}


def _fix(services: Services, shutdown_timeout_s: float) -> list[Served]:
    """Finish or roll back what runs left that are known to be dead, and VMs of the queue that could not be built."""
    preempted = [
        Served(vm.domain_name, "repaired: stopped as decided" if error is None else f"failed: {error.message}")
        for vm, error in finish_preemptions(services, timeout_s=shutdown_timeout_s)
    ]
    with services.store.reading() as session:
        dead = [one for one in session.open_operations() if not may_run(one)]
        subjects = {one.subject for one in dead}
        queued = {(one.tenant, one.name) for entry in session.queue() for one in entry.requests}
        vms = [
            vm
            for vm in session.vms()
            if vm.uuid in subjects
            or (vm.state in (VmState.BROKEN, VmState.DELETING) and (vm.request.tenant, vm.request.name) in queued)
        ]
    repaired = [
        Served(one.subject, f"repaired: {one.found}: {one.outcome}")
        for vm in vms
        for one in repair(services, dry_run=False, only=vm)
    ]
    withdraw_dead_notices(services)
    there = {vm.uuid for vm in vms}
    with services.store.transaction() as session:
        for one in dead:
            if one.subject not in there:
                session.end_operation(one.id)
    return preempted + repaired


def _overdue(services: Services) -> list[Vm]:
    with services.store.reading() as session:
        now = session.now()
        return [
            vm
            for vm in session.vms()
            if vm.state in (VmState.RUNNING, VmState.STOPPED) and vm.ends_at is not None and vm.ends_at <= now
        ]


def _end(services: Services, vm: Vm, shutdown_timeout_s: float) -> Served:
    """Release the shares of a VM whose declared time, or the time to keep them, is over; its disk stays."""
    is_held = vm.state is VmState.STOPPED
    reason = "the time to keep its shares is over" if is_held else "its time is over"
    try:
        stop_vm(
            services,
            vm,
            hold=Hold.RELEASE,
            timeout_s=shutdown_timeout_s,
            problem=reason,
            first=partial(_check_still_over, vm),
        )
    except VgpuctlError as error:
        return Served(vm.domain_name, f"failed: {error.message}")
    return Served(vm.domain_name, "released" if is_held else "ended")


def _check_still_over(vm: Vm, session: Session) -> None:
    """Raise ConcurrentChange when the VM was started, stopped or deleted since it was looked at."""
    now = session.vm(vm.request.tenant, vm.request.name)
    if now is None or (now.uuid, now.state, now.ends_at) != (vm.uuid, vm.state, vm.ends_at):
        raise ConcurrentChange(f"another run has just changed {vm.domain_name}", hint="the next round looks again")


def _look(services: Services) -> None:
    """Read every host, so that what changed outside of vgpuctl is seen."""
    seen = survey(services, services.hosts(), refresh=True)
    for name, failure in seen.failures:
        services.forget_host(name)
        services.say(f"{name} does not answer and is left out: {failure.said_of(name)}")
    for name, failure in look(services, seen.read).items():
        services.forget_host(name)
        services.say(f"libvirt on {name} does not answer: {failure.message}")
