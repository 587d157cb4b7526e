# SPDX-License-Identifier: Apache-2.0
"""set-queue: the order in which the queue is served."""

from vgpuctl.model.queue import QueueSettings
from vgpuctl.usecases.support.services import Services


def set_queue(services: Services, settings: QueueSettings) -> bool:
    """Set how the queue is put in order. Returns whether anything changed."""
    with services.store.transaction() as session:
        if session.queue_settings() == settings:
            return False
        session.set_queue_settings(settings)
        session.add_event("queue-set", "queue", f"{settings.policy}, ageing {settings.ageing_s:.0f} s")
    return True
