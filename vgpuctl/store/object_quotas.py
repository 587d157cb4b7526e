# SPDX-License-Identifier: Apache-2.0
"""Quotas of what tenants have in the store beside VMs and leases: held against the limit where a row is added.

Nothing else adds such rows, so that no command and no number of runs at once gets around a quota.
"""

import contextlib
from collections.abc import Iterator, Mapping

from vgpuctl.store.rows import Rows

_MIB = 2**20
# A volume that is being moved has a row on either host: it is one.
_SIZES = (
    "SELECT '{resource}' AS resource, coalesce(sum(size), 0) AS amount FROM (SELECT max(capacity_bytes) AS size"
    " FROM volumes WHERE tenant = :tenant AND kind IN ({kinds}) GROUP BY vm_uuid, name) AS {resource}"
)
_COUNT = "SELECT '{resource}' AS resource, count(*) AS amount FROM {table} WHERE tenant = :tenant"
_USED = " UNION ALL ".join(
    (
        _SIZES.format(resource="disk", kinds="'disk', 'data'"),
        _SIZES.format(resource="snapshots", kinds="'overlay'"),
        _COUNT.format(resource="networks", table="networks"),
        _COUNT.format(resource="public-addresses", table="external_addresses") + " AND address NOT LIKE :ipv6",
        _COUNT.format(resource="load-balancers", table="vpc_objects") + " AND kind = 'load-balancer'",
        _COUNT.format(resource="vpn-connections", table="vpc_objects") + " AND kind = 'vpn-connection'",
    )
)
_IN_BYTES = ("disk", "snapshots")


class ObjectQuotaRows(Rows):
    """Count disks, snapshots, networks and what is in them, and refuse more than a tenant's quotas have room for."""

    def objects_used(self, tenant: str) -> dict[str, int]:
        """The use of a tenant by resource, in the units of quotas, of what its VMs' requests and leases do not say."""
        rows = self._read(_USED, tenant=tenant, ipv6="%:%")
        found = {row.resource: int(row.amount) for row in rows if row.amount}
        return {one: -(-amount // _MIB) if one in _IN_BYTES else amount for one, amount in found.items()}

    @contextlib.contextmanager
    def within_quota(self, tenant: str, what: str) -> Iterator[None]:
        """Add rows of a tenant in the block. what: for the error, `network front`.

        Raises QuotaExceeded when that takes more than a quota that has a limit; then the transaction must end. A tenant
        that is above a limit already may still add what takes nothing of that resource.
        """
        limits = self._limits(tenant)
        before = self.objects_used(tenant) if limits else {}
        yield
        after = self.objects_used(tenant) if limits else {}
        _refuse(tenant, what, limits, before, after)

    def require_room(self, tenant: str, resource: str, amount: int, what: str) -> None:
        """Raise QuotaExceeded when a tenant has no room for so much more. what: for the error."""
        limits, used = self._limits(tenant), self.objects_used(tenant)
        _refuse(tenant, what, limits, used, {**used, resource: used.get(resource, 0) + amount})

    def _limits(self, tenant: str) -> dict[str, int]:
        return {row.resource: row.most for row in self._find("quotas", tenant=tenant) if row.most is not None}


def _refuse(
    tenant: str, what: str, limits: Mapping[str, int], before: Mapping[str, int], after: Mapping[str, int]
) -> None:
    grown = {resource: used for resource, used in after.items() if used > before.get(resource, 0)}
    over = sorted(resource for resource, used in grown.items() if resource in limits and used > limits[resource])
    if over:
        from vgpuctl.errors import QuotaExceeded
        from vgpuctl.quota.limits import Excess, room_hint

        found = [Excess(one, before.get(one, 0), after[one] - before.get(one, 0), limits[one]) for one in over]
        raise QuotaExceeded(
            f"{what} does not fit into the quota of tenant {tenant}: {', '.join(over)}",
            context=[str(one) for one in found],
            hint=room_hint(tenant, found[0]),
            short=f"over the quota of tenant {tenant}",
        )
