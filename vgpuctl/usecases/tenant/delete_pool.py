# SPDX-License-Identifier: Apache-2.0
"""delete-pool: open a pool's hosts to every tenant again."""

from vgpuctl.model.event_kind import EventKind
from vgpuctl.quota.pools import Pool
from vgpuctl.usecases.support.services import Services


def delete_pool(services: Services, name: str) -> Pool:
    """Delete a pool and its grants. Raises NotFound."""
    with services.store.transaction() as session:
        pool = session.pool(name)
        session.delete_pool(name)
        before = {"hosts": list(pool.hosts), "tenants": list(pool.tenants)}
        session.add_event(EventKind.POOL_DELETED, name, before=before)
    return pool
