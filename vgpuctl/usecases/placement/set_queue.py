# SPDX-License-Identifier: Apache-2.0
"""set-queue: the order in which the queue is served."""

from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.queue import QueueSettings
from vgpuctl.usecases.support.services import Services


def set_queue(services: Services, settings: QueueSettings) -> bool:
    """Set how the queue is put in order. Returns whether anything changed."""
    with services.store.transaction() as session:
        before = session.queue_settings()
        if before == settings:
            return False
        session.set_queue_settings(settings)
        session.add_event(EventKind.QUEUE_SET, "queue", before=_values(before), after=_values(settings))
    return True


def _values(settings: QueueSettings) -> Values:
    return {"policy": str(settings.policy), "ageing_s": settings.ageing_s}
