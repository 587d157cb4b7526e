# SPDX-License-Identifier: Apache-2.0
"""grant-pool: let tenants use a pool, or revoke their grants."""

from collections.abc import Sequence

from vgpuctl.quota.pools import Pool
from vgpuctl.usecases.support.services import Services


def grant_pool(services: Services, name: str, tenants: Sequence[str], *, revoke: bool) -> tuple[Pool, bool]:
    """Let tenants use a pool, or revoke their grants; VMs that run there stay. Raises NotFound."""
    with services.store.transaction() as session:
        changed = [
            session.revoke_pool(name, tenant) if revoke else session.grant_pool(name, tenant) for tenant in tenants
        ]
        for tenant, is_new in zip(tenants, changed, strict=True):
            if is_new:
                session.add_event("pool-revoked" if revoke else "pool-granted", name, tenant)
        return session.pool(name), any(changed)
