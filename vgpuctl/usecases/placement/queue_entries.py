# SPDX-License-Identifier: Apache-2.0
"""Entries of the queue for VMs to create: finding the one of some requests, and joining."""

from collections.abc import Sequence

from vgpuctl.errors import StateError, VmDiffers
from vgpuctl.model.queue import QueueEntry, QueueKind
from vgpuctl.model.vm import VmRequest
from vgpuctl.specs.vm import list_differences
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
            hint=f"take them out first: vgpuctl leave-queue {entry.request.name} --tenant {entry.request.tenant}",
        )
    for request in requests:
        differences = list_differences(waiting[request.name], request)
        if differences:
            raise VmDiffers(
                f"VM {request.name} of tenant {request.tenant} waits in the queue with another specification",
                context=differences,
                hint=f"take it out first: vgpuctl leave-queue {request.name} --tenant {request.tenant}",
            )
    return entry


def wait_for_turn(session: Session, requests: Sequence[VmRequest], reason: str, *, may_preempt: bool) -> QueueEntry:
    """Have these VMs wait to be created, several of them as a gang. reason: why they do not start now."""
    first, *others = requests
    kind = QueueKind.GANG if others else QueueKind.CREATE
    session.join_queue(kind, first, reason, others=others, may_preempt=may_preempt)
    entry = session.queued(first.tenant, first.name)
    assert entry is not None
    session.add_event("vms-queued" if others else "vm-queued", entry.name, reason)
    return entry
