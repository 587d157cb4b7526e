# SPDX-License-Identifier: Apache-2.0
"""Quotas, what they are used up by, and pools. Read in a writing transaction, the answer holds until its end."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vgpuctl.errors import NotFound
from vgpuctl.model.lease import Share
from vgpuctl.model.natural_order import natural
from vgpuctl.model.vm import VmState
from vgpuctl.store import codec
from vgpuctl.store.licences import LicenceRows
from vgpuctl.store.object_quotas import ObjectQuotaRows
from vgpuctl.store.tenants import TenantRows
from vgpuctl.store.usage import UsageRows

if TYPE_CHECKING:
    from vgpuctl.quota.host_pools import HostPool
    from vgpuctl.quota.limits import Quota

_HELD = "SELECT * FROM leases WHERE tenant = :tenant AND state <> 'gone'"


class QuotaRows(ObjectQuotaRows, UsageRows, TenantRows, LicenceRows):
    """Set and read quotas and pools, and what a tenant uses."""

    def quotas(self, tenant: str) -> "list[Quota]":
        """The quotas of a tenant, by resource in its normal form, also those that were set before names had one."""
        from vgpuctl.quota.limits import Quota, merged
        from vgpuctl.quota.resources import normal_resource

        rows = self._find("quotas", tenant=tenant)
        return merged(Quota(normal_resource(row.resource), row.most, row.guaranteed) for row in rows)

    def set_quotas(self, tenant: str, quotas: "Sequence[Quota]") -> None:
        """Replace the quotas of a tenant. Raises NotFound."""
        self.tenant(tenant)
        self._delete("quotas", tenant=tenant)
        for quota in quotas:
            most, guaranteed = quota.limit, quota.guaranteed
            self._insert("quotas", tenant=tenant, resource=quota.resource, most=most, guaranteed=guaranteed)

    def used(self, tenant: str) -> dict[str, int]:
        """Use of a tenant's VMs and live leases now, and its GPU-hours of this month, in the units of quotas."""
        from vgpuctl.quota import charge
        from vgpuctl.quota.limits import month_of
        from vgpuctl.quota.resources import LICENCES, Resource
        from vgpuctl.quota.usage import gpu_seconds

        requests = [
            charge.of_guest(codec.decode_request(row.request, row.request_version, what=f"VM {row.name} of {tenant}"))
            for row in self._find("vms", tenant=tenant)
        ]
        shares = [
            codec.decode_share(row.share, row.share_version, what=f"lease {row.id} of {tenant}")
            for row in self._read(_HELD, tenant=tenant)
        ]
        now = self._clock()
        begin, _end = month_of(now)
        seconds = gpu_seconds(self.intervals(begin, now, tenant), begin, now)
        licences = {f"{LICENCES}{edition}": count for edition, count in self.licences_used(tenant).items()}
        hours = {str(Resource.GPU_HOURS): seconds}
        return charge.add(*requests, charge.of_shares(shares), licences, hours, self.objects_used(tenant))

    def gpu_seconds_to_come(self, tenant: str) -> int:
        """Seconds of whole GPUs that the tenant's VMs with a declared time will still use in this month."""
        now = self._clock()
        ends: dict[str, float] = {}
        for row in self._find("vms", tenant=tenant, state=[VmState.CREATING, VmState.RUNNING]):
            what = f"VM {row.name} of {tenant}"
            duration_s = codec.decode_request(row.request, row.request_version, what=what).duration_s
            if duration_s is not None:
                ends[row.uuid] = now + duration_s if row.ends_at is None else row.ends_at
        seconds = 0
        for row in self._read(_HELD, tenant=tenant):
            if row.vm_uuid in ends:
                held = codec.decode_share(row.share, row.share_version, what=f"lease {row.id} of {tenant}")
                seconds += self.gpu_seconds_of([(row.host, held)], ends[row.vm_uuid] - now)
        return seconds

    def gpu_seconds_of(self, shares: Iterable[tuple[str, Share]], duration_s: float) -> int:
        """Seconds of whole GPUs that shares, each with its host, take in so much time of this month."""
        from vgpuctl.quota import charge
        from vgpuctl.quota.limits import month_of

        now = self._clock()
        seconds = max(0.0, min(duration_s, month_of(now)[1] - now))
        parts = 0.0
        for host, held in shares:
            cached = self.facts(host)
            parts += charge.part_of_card(held, cached.facts.gpus if cached is not None else ())
        return math.ceil(parts * seconds)

    def host_pools(self) -> "list[HostPool]":
        """Every pool with its hosts and the tenants that may use it, by name."""
        from vgpuctl.quota.host_pools import HostPool

        hosts = self._find("host_pool_hosts")
        grants = self._find("host_pool_grants")
        return [
            HostPool(
                name,
                tuple(sorted((row.host for row in hosts if row.pool == name), key=natural)),
                tuple(sorted((row.tenant for row in grants if row.pool == name), key=natural)),
            )
            for name in sorted((row.name for row in self._find("host_pools")), key=natural)
        ]

    def host_pool(self, name: str) -> "HostPool":
        """One pool. Raises NotFound with the names there are."""
        pools = self.host_pools()
        for pool in pools:
            if pool.name == name:
                return pool
        known = ", ".join(pool.name for pool in pools)
        raise NotFound(
            f"there is no host pool {name!r} in the store {self._store_name}",
            hint=f"there are {known}" if known else "run `vgpuctl create-host-pool NAME --hosts PATTERN` first",
        )

    def set_host_pool(self, name: str, hosts: Sequence[str]) -> None:
        """Add a pool, or give one other hosts. A host of another pool raises ConcurrentChange."""
        self._insert_if_absent("host_pools", name=name, created_at=self._clock())
        self._delete("host_pool_hosts", pool=name)
        for host in sorted(set(hosts)):
            self._insert(
                "host_pool_hosts", host=host, pool=name, conflict=f"host {host} is in another host pool already"
            )

    def delete_host_pool(self, name: str) -> bool:
        """Delete a pool with its grants; its hosts then serve every tenant. Returns False when there was none."""
        self._delete("host_pool_hosts", pool=name)
        self._delete("host_pool_grants", pool=name)
        return self._delete("host_pools", name=name) == 1

    def grant_host_pool(self, name: str, tenant: str) -> bool:
        """Let a tenant use a pool. Returns False when it could already. Raises NotFound."""
        self.host_pool(name)
        self.tenant(tenant)
        return self._insert_if_absent("host_pool_grants", pool=name, tenant=tenant)

    def revoke_host_pool(self, name: str, tenant: str) -> bool:
        """Revoke a grant; VMs that run there stay. Returns False when there was none. Raises NotFound."""
        self.host_pool(name)
        self.tenant(tenant)
        return self._delete("host_pool_grants", pool=name, tenant=tenant) == 1
