# SPDX-License-Identifier: Apache-2.0
"""Serving of the queue: one claimed entry is started when it fits, or told why it waits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import ConcurrentChange, NoCapacity, NoLicence, QuotaExceeded, VgpuctlError
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.vm import VmRequest, VmState
from vgpuctl.scheduler.calendar import place_over
from vgpuctl.scheduler.explain import rejections_of
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import as_one, place_together
from vgpuctl.scheduler.refusals import in_short
from vgpuctl.store.claims import Claim
from vgpuctl.usecases.image.node_join import refuse_unjoinable
from vgpuctl.usecases.network.ports import with_networks
from vgpuctl.usecases.observed.capacities import cached_capacities
from vgpuctl.usecases.placement.preemption import find_eviction
from vgpuctl.usecases.placement.reservations import bookings_of, with_promises
from vgpuctl.usecases.placement.usable_hosts import usable_hosts, why_never
from vgpuctl.usecases.running.operations import refuse_while_busy
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.create_vm import CreateOptions, create_together
from vgpuctl.usecases.vm.preemption_consent import Consent, refuse_without_consent
from vgpuctl.usecases.vm.start_vm import start_vm

FAR_FUTURE = 1e15


@dataclass(frozen=True)
class Served:
    """One thing that the controller did, or tried: `started`, `ended`, `waits: why`, `failed: why`."""

    name: str
    outcome: str


def serve(services: Services, entry: QueueEntry, claim: Claim, shutdown_timeout_s: float) -> tuple[Served, bool]:
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
                claim.note(refusal, NoCapacity.reference)
                return Served(entry.name, f"waits: {refusal}"), True
            with services.store.reading() as session:
                entry = session.with_secrets(entry)
                refuse_unjoinable(session, entry.requests)
            create_together(services, entry.requests, CreateOptions(consent=consent))
    except (NoCapacity, QuotaExceeded, ConcurrentChange) as refusal:
        why = refusal.message if isinstance(refusal, ConcurrentChange) else refusal.reason_to_wait
        claim.note(why, refusal.reference)
        return Served(entry.name, f"waits: {why}"), _waits_for_hosts(refusal)
    except VgpuctlError as error:
        claim.note(f"failed, tried again: {error.message}", error.reference)
        return Served(entry.name, f"failed: {error.message}"), False
    claim.done()
    return Served(entry.name, "started"), False


def _waits_for_hosts(refusal: VgpuctlError) -> bool:
    """True if it waits for room on hosts; a free licence is on no host, so none is kept free for it."""
    return isinstance(refusal, NoCapacity) and not isinstance(refusal, NoLicence)


def _no_room(services: Services, entry: QueueEntry, consent: Consent) -> str | None:
    """Why an entry does not fit as far as the store knows, None when it is worth a try. No host is contacted.

    A VM that is there already, since an earlier controller died after creating it, needs no room.
    Raises PreemptionNeeded when it fits only if VMs are preempted, and nobody agreed to that.
    """
    requests = [with_networks(services, one) for one in entry.requests]
    hosts = set(usable_hosts(services, requests[0]))
    with services.store.reading() as session:
        if any(session.vm(one.tenant, one.name) is not None for one in requests):
            return None
        capacities = [one for one in cached_capacities(session, services.inventory) if one.name in hosts]
        leases = with_promises(session, session.leases(), as_one(requests))
    if not capacities:
        return None  # No facts are known, or an older vgpuctl wrote them: the try reads the hosts.
    fleet = Fleet(capacities, leases)
    if place_together(fleet, requests) is not None:
        return None
    eviction = find_eviction(services, requests, capacities)
    if eviction is None:
        return why_never(services, requests) or _why(fleet, requests)
    refuse_without_consent(services, requests, eviction.victims, consent)
    return None


def _why(fleet: Fleet, requests: Sequence[VmRequest]) -> str:
    """Why requests that do not fit together have to wait, in a few words."""
    alone = [request for request in requests if fleet.place(request) is None]
    if not alone:
        return f"the {len(requests)} VMs do not fit together now"
    answer = rejections_of(fleet, alone[0])
    whose = "it" if len(requests) == 1 else alone[0].name
    if len(answer) == 1:
        return answer[0].reason
    return f"none of {len(answer)} GPUs and hosts can take {whose} now; {in_short(answer)}"


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


def hosts_when_empty(services: Services, entry: QueueEntry) -> set[str]:
    """The hosts on which one of the entry's VMs would fit if enough VMs ended; empty when it never fits."""
    try:
        hosts = set(usable_hosts(services, entry.request))
    except NoCapacity:
        return set()
    with services.store.reading() as session:
        capacities = [one for one in cached_capacities(session, services.inventory) if one.name in hosts]
        running = [one for one in bookings_of(session) if one.host in hosts and one.vm_uuid is not None]
    endless = [replace(one, end=FAR_FUTURE) for one in running]
    wanted = [with_networks(services, one) for one in entry.requests]

    def fits(requests: Sequence[VmRequest], on: Sequence[HostCapacity]) -> bool:
        return place_over(requests, on, endless, [(FAR_FUTURE, FAR_FUTURE + 1)]) is not None

    if not fits(wanted, capacities):
        return set()
    return {one.name for one in capacities if any(fits([request], [one]) for request in wanted)}
