# SPDX-License-Identifier: Apache-2.0
"""grant-pool: let tenants use a pool, or revoke their grants."""

from collections.abc import Sequence

from vgpuctl.model.event_kind import EventKind
from vgpuctl.quota.pools import Pool
from vgpuctl.store.store import Session
from vgpuctl.usecases.support.services import Services


def grant_pool(services: Services, name: str, tenants: Sequence[str], *, revoke: bool) -> tuple[Pool, bool]:
    """Let tenants use a pool, or revoke their grants; VMs that run there stay. Raises NotFound."""
    with services.store.transaction() as session:
        changed = [record_grant(session, name, tenant, revoke=revoke) for tenant in tenants]
        return session.pool(name), any(changed)


def record_grant(session: Session, pool: str, tenant: str, *, revoke: bool) -> bool:
    """Grant a pool to a tenant, or revoke it, with an event. Returns whether anything changed. Raises NotFound."""
    before = list(session.pool(pool).tenants)
    if not (session.revoke_pool(pool, tenant) if revoke else session.grant_pool(pool, tenant)):
        return False
    after = list(session.pool(pool).tenants)
    kind = EventKind.POOL_REVOKED if revoke else EventKind.POOL_GRANTED
    session.add_event(kind, pool, tenant, tenant=tenant, before={"tenants": before}, after={"tenants": after})
    return True
