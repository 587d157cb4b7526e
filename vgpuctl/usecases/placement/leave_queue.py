# SPDX-License-Identifier: Apache-2.0
"""leave-queue: a VM no longer waits."""

from vgpuctl.errors import NotFound
from vgpuctl.model.queue import QueueEntry
from vgpuctl.usecases.placement.queue_entries import record_leaving
from vgpuctl.usecases.support.services import Services


def leave_queue(services: Services, tenant: str, name: str) -> QueueEntry:
    """Take a VM out of the queue, with those it was to be created with.

    Raises NotFound, and ConcurrentChange while it is just being started.
    """
    with services.store.transaction() as session:
        session.tenant(tenant)
        entry = session.queued(tenant, name)
        if entry is None:
            raise NotFound(f"VM {name} of tenant {tenant} does not wait in the queue", hint="see `vgpuctl list-queue`")
        record_leaving(session, entry)
    return entry
