# SPDX-License-Identifier: Apache-2.0
"""Tenants in the store."""

from typing import Any

from vgpuctl.errors import NotFound
from vgpuctl.model.natural_order import natural
from vgpuctl.model.preemption import USUAL_POLICY, PreemptMode, Reclaim, TenantPolicy
from vgpuctl.model.vm import is_name
from vgpuctl.store.database import Row
from vgpuctl.store.records import Tenant
from vgpuctl.store.rows import Rows


class TenantRows(Rows):
    """Add and find tenants."""

    def add_tenant(self, name: str) -> bool:
        """Add a tenant. Returns False when it was there already."""
        return self._insert_if_absent("tenants", name=name, created_at=self._clock())

    def tenant(self, name: str) -> Tenant:
        """One tenant. Raises NotFound, with names that are near."""
        for row in self._find("tenants", name=name):
            return _tenant(row)
        import difflib

        known = [tenant.name for tenant in self.tenants()]
        near = difflib.get_close_matches(name, known, n=3)
        create = f"run `vgpuctl create-tenant {name}` first"
        raise NotFound(
            f"there is no tenant {name!r} in the store {self._store_name}",
            context=[f"near: {', '.join(near)}"] if near else (),
            hint=f"did you mean {near[0]}?" if near else create if is_name(name) else "see `vgpuctl list-tenants`",
        )

    def tenants(self) -> list[Tenant]:
        """Every tenant, by name."""
        return sorted(map(_tenant, self._find("tenants")), key=lambda tenant: natural(tenant.name))

    def set_policy(self, name: str, policy: TenantPolicy) -> None:
        """Replace a tenant's preemption policy. Raises NotFound."""
        self.tenant(name)
        values: dict[str, Any] = {
            "reclaim": policy.reclaim.value,
            "preempt": policy.preempt.value,
            "grace_s": policy.grace_s,
        }
        self._update("tenants", {"name": name}, **values)

    def set_guest_probe(self, name: str, *, allowed: bool) -> bool:
        """Note whether the tenant allows the probe in its guests. Returns False when that was so. Raises NotFound."""
        if self.tenant(name).guest_probe == allowed:
            return False
        self._update("tenants", {"name": name}, guest_probe=allowed)
        return True


def _tenant(row: Row) -> Tenant:
    usual = USUAL_POLICY
    policy = TenantPolicy(
        Reclaim(row.reclaim or usual.reclaim),
        PreemptMode(row.preempt or usual.preempt),
        usual.grace_s if row.grace_s is None else row.grace_s,
    )
    return Tenant(row.name, row.created_at, policy, bool(row.guest_probe))
