# SPDX-License-Identifier: Apache-2.0
"""create-vm --queue, list-queue, leave-queue and set-queue."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.errors import NoCapacity, NotFound, QuotaExceeded, StateError, VgpuctlError, VmDiffers
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.queue import QueueEntry, QueueKind, QueueSettings
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota.charge import Amounts
from vgpuctl.quota.pools import closed_hosts
from vgpuctl.quota.queue_order import in_order
from vgpuctl.quota.resources import Resource
from vgpuctl.scheduler.calendar import Booking, first_start_together
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_nodes import host_memory_mib, host_reserve_mib
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.ports import network_of, on_its_host
from vgpuctl.usecases.placement.quota import refuse_for_ever
from vgpuctl.usecases.placement.reservations import bookings_of
from vgpuctl.usecases.support.capacities import cached_capacities
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.vm.create_gang import create_gang, find_existing_gang
from vgpuctl.usecases.vm.create_vm import CreatedVm, create_vm, find_existing, list_differences
from vgpuctl.usecases.vm.preempt_vms import NO_CONSENT, Consent


@dataclass(frozen=True)
class Waiting:
    """One entry at its position, from 1. expected_at: when it will start as far as declared ends tell, else None."""

    position: int
    entry: QueueEntry
    expected_at: float | None


def queue_vm(services: Services, request: VmRequest, consent: Consent = NO_CONSENT) -> CreatedVm | QueueEntry:
    """Create the VM now if nobody waits and it fits, else have it wait for its turn. The same again changes nothing.

    consent: an entry that was queued with consent may preempt VMs when the controller serves it.

    Raises VmDiffers for another specification, QuotaExceeded when the tenant's quota could never admit it.
    """
    existing = find_existing(services, request)
    if existing is not None:
        return existing
    with services.store.reading() as session:
        there = session.queued(request.tenant, request.name)
        somebody_waits = bool(session.queue())
        refuse_for_ever(session, request)
    if there is not None and there.others:
        return _same_gang([there], [request])
    if there is not None:
        return _same(there, request)
    reason = "others wait before it"
    if not somebody_waits:
        try:
            return create_vm(services, request, consent=consent)
        except (NoCapacity, QuotaExceeded) as refusal:
            reason = refusal.message
    with services.store.transaction() as session:
        session.join_queue(QueueKind.CREATE, request, reason, may_preempt=consent.is_given)
        session.add_event("vm-queued", f"{request.tenant}.{request.name}", reason)
        entry = session.queued(request.tenant, request.name)
    assert entry is not None
    return entry


def queue_gang(
    services: Services, requests: Sequence[VmRequest], consent: Consent = NO_CONSENT
) -> tuple[CreatedVm, ...] | QueueEntry:
    """Create all of these VMs now if nobody waits and they fit together, else have them wait as one.

    Raises what create_gang raises for what never works, VmDiffers and StateError when some wait otherwise.
    """
    existing = find_existing_gang(services, requests)
    if existing is not None:
        return existing
    with services.store.reading() as session:
        there = [session.queued(request.tenant, request.name) for request in requests]
        somebody_waits = bool(session.queue())
        refuse_for_ever(session, *requests)
    if any(there):
        return _same_gang(there, requests)
    reason = "others wait before it"
    if not somebody_waits:
        try:
            return create_gang(services, requests, consent=consent)
        except (NoCapacity, QuotaExceeded) as refusal:
            reason = refusal.message
    first, *others = requests
    with services.store.transaction() as session:
        session.join_queue(QueueKind.GANG, first, reason, others=others, may_preempt=consent.is_given)
        entry = session.queued(first.tenant, first.name)
        assert entry is not None
        session.add_event("vms-queued", entry.name, reason)
    return entry


def leave_queue(services: Services, tenant: str, name: str) -> QueueEntry:
    """Take a VM out of the queue, with those it was to be created with.

    Raises NotFound, and ConcurrentChange while it is just being started.
    """
    with services.store.transaction() as session:
        session.tenant(tenant)
        entry = session.queued(tenant, name)
        if entry is None:
            raise NotFound(f"VM {name} of tenant {tenant} does not wait in the queue", hint="see `vgpuctl list-queue`")
        session.leave_queue(entry.id)
        session.add_event("vm-left-queue", entry.name)
    return entry


def set_queue(services: Services, settings: QueueSettings) -> bool:
    """Set how the queue is put in order. Returns whether anything changed."""
    with services.store.transaction() as session:
        if session.queue_settings() == settings:
            return False
        session.set_queue_settings(settings)
        session.add_event("queue-set", "queue", f"{settings.policy}, ageing {settings.ageing_s:.0f} s")
    return True


def list_queue(services: Services, *, has_inventory: bool) -> tuple[QueueSettings, Sequence[Waiting]]:
    """The queue in the order in which it is served now, with the expected start of each. No host is contacted.

    has_inventory: whether labels and maintenance of the inventory count for the expected start.
    """
    with services.store.reading() as session:
        now = session.now()
        settings = session.queue_settings()
        ordered = ordered_queue(session, now)
        capacities = cached_capacities(session, services.inventory if has_inventory else None)
        bookings = bookings_of(session)
        pools = session.pools()
    waiting = []
    for position, entry in enumerate(ordered, 1):
        closed = closed_hosts(entry.request.tenant, pools)
        usable = [one for one in capacities if one.name not in closed]
        requests = [on_network_host(services, one) for one in entry.requests]
        start = first_start_together(requests, usable, bookings, now)
        waiting.append(Waiting(position, entry, None if start is None else start[0]))
        if start is not None:
            at, placements = start
            for one, placement in zip(requests, placements, strict=True):
                end = at + (math.inf if one.duration_s is None else one.duration_s)
                name = f"{one.tenant}.{one.name}"
                taken = footprint_of(one, placement)
                bookings.append(Booking(name, placement.host, placement.shares, at, end, footprint=taken))
    return settings, waiting


def ordered_queue(session: Session, now: float) -> list[QueueEntry]:
    """The queue in the order in which it is served now."""
    entries = session.queue()
    used = {tenant: session.used(tenant) for tenant in {entry.request.tenant for entry in entries}}
    return in_order(
        entries, session.queue_settings(), now, used=used, capacity=fleet_capacity(cached_capacities(session))
    )


def on_network_host(services: Services, request: VmRequest) -> VmRequest:
    """The request with the host that its network is on; as it is, where the network cannot be used now."""
    try:
        return on_its_host(request, network_of(services, request))
    except VgpuctlError:
        return request


def fleet_capacity(capacities: Sequence[HostCapacity]) -> Amounts:
    """What the whole fleet has of the resources that tenants share."""
    return {
        Resource.VCPUS: sum(one.facts.cpus for one in capacities),
        Resource.MEMORY: sum(_memory_for_vms(one) for one in capacities),
        Resource.FRAMEBUFFER: sum(_memory_mib(gpu) for one in capacities for gpu in one.facts.gpus),
    }


def _memory_for_vms(capacity: HostCapacity) -> int:
    memory_mib = host_memory_mib(capacity.facts)
    return memory_mib - host_reserve_mib(memory_mib)


def _memory_mib(gpu: Gpu) -> int:
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return gpu.memory_mib or (board.memory_mib if board is not None else 0)


def _same_gang(there: Sequence[QueueEntry | None], requests: Sequence[VmRequest]) -> QueueEntry:
    first = next(one for one in there if one is not None)
    if {one.name for one in first.requests} != {one.name for one in requests}:
        raise StateError(
            f"of the VMs to create together some wait in the queue otherwise: {first.name}",
            hint=f"take them out first: vgpuctl leave-queue {first.request.name} --tenant {first.request.tenant}",
        )
    for waiting, wanted in zip(sorted(first.requests, key=_name), sorted(requests, key=_name), strict=True):
        _same(replace(first, request=waiting), wanted)
    return first


def _name(request: VmRequest) -> str:
    return request.name


def _same(there: QueueEntry, request: VmRequest) -> QueueEntry:
    differences = list_differences(there.request, request)
    if differences:
        raise VmDiffers(
            f"VM {request.name} of tenant {request.tenant} waits in the queue with another specification",
            context=differences,
            hint=f"take it out first: vgpuctl leave-queue {request.name} --tenant {request.tenant}",
        )
    return there
