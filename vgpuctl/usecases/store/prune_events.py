# SPDX-License-Identifier: Apache-2.0
"""prune-events: delete events that are older than the operator keeps them."""

from vgpuctl.model.event import PrunedEvents
from vgpuctl.usecases.running.services import Services


def prune_events(services: Services, older_than_s: float, *, dry_run: bool = False) -> PrunedEvents:
    """Delete the events that are older; one event says which were. Raises StoreUnusable for others than the owner."""
    with services.store.transaction() as session:
        return session.prune_events(session.now() - older_than_s, dry_run=dry_run)
