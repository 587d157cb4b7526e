# SPDX-License-Identifier: Apache-2.0
"""Entries of the queue for VMs to create: finding the one of some requests, and joining."""

from collections.abc import Sequence

from vgpuctl.errors import StateError, VmDiffers
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.queue import QueueEntry, QueueKind
from vgpuctl.model.times import format_time_to_second
from vgpuctl.model.vm import VmRequest, printed_name
from vgpuctl.store.store import Session


def find_waiting(session: Session, requests: Sequence[VmRequest]) -> QueueEntry | None:
    """The entry in which exactly these VMs wait together; None when none of them waits.

    Raises StateError when some of them wait alone or with others, VmDiffers for other specifications.
    """
    found = [session.queued(request.tenant, request.name) for request in requests]
    entry = next((one for one in found if one is not None), None)
    if entry is None:
        return None
    waiting = {one.name: one for one in entry.requests}
    if waiting.keys() != {one.name for one in requests}:
        raise StateError(
            f"of the VMs to create together some wait in the queue otherwise: {entry.name}",
            hint=f"take them out first: vgpuctl leave-queue {entry.request.tenant}/{entry.request.name}",
        )
    from vgpuctl.specs.vm import list_differences  # not with every list of VMs: it loads what VMs are written in

    for request in requests:
        differences = list_differences(waiting[request.name], request)
        if differences:
            raise VmDiffers(
                f"VM {request.name} of tenant {request.tenant} waits in the queue with another specification",
                context=differences,
                hint=f"take it out first: vgpuctl leave-queue {request.tenant}/{request.name}",
            )
    return entry


def wait_for_turn(session: Session, requests: Sequence[VmRequest], reason: str, *, may_preempt: bool) -> QueueEntry:
    """Have these VMs wait to be created, several of them as a gang. reason: why they do not start now."""
    first, *others = requests
    kind = QueueKind.GANG if others else QueueKind.CREATE
    session.join_queue(kind, first, reason, others=others, may_preempt=may_preempt)
    entry = session.queued(first.tenant, first.name)
    assert entry is not None
    note_waiting(session, requests, reason)
    return entry


def note_waiting(session: Session, requests: Sequence[VmRequest], reason: str) -> None:
    """Add an event for each of these VMs, which wait from now on."""
    for one in requests:
        after = {
            "gpus": [gpu.text for gpu in one.gpus],
            "together with": [mate.name for mate in requests if mate != one],
        }
        label = printed_name(one.tenant, one.name)
        session.add_event(EventKind.VM_QUEUED, label, reason, tenant=one.tenant, host=one.host, after=after)


def record_leaving(session: Session, entry: QueueEntry, reason: str = "") -> bool:
    """Take an entry out of the queue with an event for each of its VMs. Returns False when it was gone.

    Raises ConcurrentChange while it is just being started.
    """
    if not session.leave_queue(entry.id):
        return False
    for one in entry.requests:
        note_left(session, one, entry, reason)
    return True


def note_left(session: Session, request: VmRequest, entry: QueueEntry, reason: str) -> None:
    """Add the event of a VM that left the queue."""
    before = {"waits": str(entry.kind), "since": format_time_to_second(entry.queued_at), "reason": entry.reason}
    label = printed_name(request.tenant, request.name)
    session.add_event(EventKind.VM_LEFT_QUEUE, label, reason, tenant=request.tenant, before=before)
