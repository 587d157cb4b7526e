# SPDX-License-Identifier: Apache-2.0
"""create-vm --queue, list-queue, leave-queue and set-queue."""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.errors import NoCapacity, QuotaExceeded, StateError, VmDiffers
from vgpuctl.model.queue import QueueEntry, QueueKind
from vgpuctl.model.vm import VmRequest
from vgpuctl.usecases.placement.quota import refuse_for_ever
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.vm.create_gang import create_gang, find_existing_gang
from vgpuctl.usecases.vm.create_vm import CreatedVm, create_vm, find_existing, list_differences
from vgpuctl.usecases.vm.preempt_vms import NO_CONSENT, Consent


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
