# SPDX-License-Identifier: Apache-2.0
"""Quotas, what they are used up by, and pools. Read in a writing transaction, the answer holds until its end."""

import math
from collections.abc import Iterable, Sequence

from sqlalchemy import delete, insert, select

from vgpuctl.errors import NotFound
from vgpuctl.model.lease import LeaseState, Share
from vgpuctl.model.natural_order import natural
from vgpuctl.model.vm import VmState
from vgpuctl.quota import charge
from vgpuctl.quota.limits import Quota, month_of
from vgpuctl.quota.pools import Pool
from vgpuctl.quota.resources import LICENCES, Resource
from vgpuctl.quota.usage import gpu_seconds
from vgpuctl.store import codec, tables
from vgpuctl.store.licences import LicenceRows
from vgpuctl.store.tenants import TenantRows
from vgpuctl.store.usage import UsageRows

_QUOTAS, _POOLS, _HOSTS, _GRANTS = tables.quotas, tables.pools, tables.pool_hosts, tables.pool_grants
_VMS, _LEASES = tables.vms, tables.leases


class QuotaRows(UsageRows, TenantRows, LicenceRows):
    """Set and read quotas and pools, and what a tenant uses."""

    def quotas(self, tenant: str) -> list[Quota]:
        """The quotas of a tenant, by resource."""
        rows = self._read(select(_QUOTAS).where(_QUOTAS.c.tenant == tenant).order_by(_QUOTAS.c.resource))
        return sorted((Quota(row.resource, row.most, row.guaranteed) for row in rows), key=lambda one: one.resource)

    def set_quotas(self, tenant: str, quotas: Sequence[Quota]) -> None:
        """Replace the quotas of a tenant. Raises NotFound."""
        self.tenant(tenant)
        self._write(delete(_QUOTAS).where(_QUOTAS.c.tenant == tenant))
        for quota in quotas:
            self._write(
                insert(_QUOTAS).values(
                    tenant=tenant, resource=quota.resource, most=quota.limit, guaranteed=quota.guaranteed
                )
            )

    def used(self, tenant: str) -> dict[str, int]:
        """Use of a tenant's VMs and live leases now, and its GPU-hours of this month, in the units of quotas."""
        requests = [
            charge.of_guest(codec.decode_request(row.request, row.request_version, what=f"VM {row.name} of {tenant}"))
            for row in self._read(
                select(_VMS.c.name, _VMS.c.request, _VMS.c.request_version).where(_VMS.c.tenant == tenant)
            )
        ]
        shares = [
            codec.decode_share(row.share, row.share_version, what=f"lease {row.id} of {tenant}")
            for row in self._read(
                select(_LEASES.c.id, _LEASES.c.share, _LEASES.c.share_version).where(
                    _LEASES.c.tenant == tenant, _LEASES.c.state != LeaseState.GONE.value
                )
            )
        ]
        now = self._clock()
        begin, _end = month_of(now)
        seconds = gpu_seconds(self.intervals(begin, now, tenant), begin, now)
        licences = {f"{LICENCES}{edition}": count for edition, count in self.licences_used(tenant).items()}
        return charge.add(*requests, charge.of_shares(shares), licences, {Resource.GPU_HOURS: seconds})

    def gpu_seconds_to_come(self, tenant: str) -> int:
        """Seconds of whole GPUs that the tenant's VMs with a declared time will still use in this month."""
        now = self._clock()
        ends: dict[str, float] = {}
        for row in self._read(
            select(_VMS.c.uuid, _VMS.c.name, _VMS.c.ends_at, _VMS.c.request, _VMS.c.request_version).where(
                _VMS.c.tenant == tenant, _VMS.c.state.in_((VmState.CREATING.value, VmState.RUNNING.value))
            )
        ):
            what = f"VM {row.name} of {tenant}"
            duration_s = codec.decode_request(row.request, row.request_version, what=what).duration_s
            if duration_s is not None:
                ends[row.uuid] = now + duration_s if row.ends_at is None else row.ends_at
        leases = self._read(
            select(_LEASES.c.id, _LEASES.c.vm_uuid, _LEASES.c.host, _LEASES.c.share, _LEASES.c.share_version).where(
                _LEASES.c.tenant == tenant, _LEASES.c.state != LeaseState.GONE.value
            )
        )
        seconds = 0
        for row in leases:
            if row.vm_uuid in ends:
                held = codec.decode_share(row.share, row.share_version, what=f"lease {row.id} of {tenant}")
                seconds += self.gpu_seconds_of([(row.host, held)], ends[row.vm_uuid] - now)
        return seconds

    def gpu_seconds_of(self, shares: Iterable[tuple[str, Share]], duration_s: float) -> int:
        """Seconds of whole GPUs that shares, each with its host, take in so much time of this month."""
        now = self._clock()
        seconds = max(0.0, min(duration_s, month_of(now)[1] - now))
        parts = 0.0
        for host, held in shares:
            cached = self.facts(host)
            parts += charge.part_of_card(held, cached.facts.gpus if cached is not None else ())
        return math.ceil(parts * seconds)

    def pools(self) -> list[Pool]:
        """Every pool with its hosts and the tenants that may use it, by name."""
        hosts = self._read(select(_HOSTS))
        grants = self._read(select(_GRANTS))
        return [
            Pool(
                name,
                tuple(sorted((row.host for row in hosts if row.pool == name), key=natural)),
                tuple(sorted((row.tenant for row in grants if row.pool == name), key=natural)),
            )
            for name in sorted((row.name for row in self._read(select(_POOLS))), key=natural)
        ]

    def pool(self, name: str) -> Pool:
        """One pool. Raises NotFound with the names there are."""
        pools = self.pools()
        for pool in pools:
            if pool.name == name:
                return pool
        known = ", ".join(pool.name for pool in pools)
        raise NotFound(
            f"there is no pool {name!r} in the store {self._store_name}",
            hint=f"there are {known}" if known else f"run `vgpuctl create-pool {name} --hosts PATTERN` first",
        )

    def set_pool(self, name: str, hosts: Sequence[str]) -> None:
        """Add a pool, or give one other hosts. A host of another pool raises ConcurrentChange."""
        self._insert_if_absent(_POOLS, name=name, created_at=self._clock())
        self._write(delete(_HOSTS).where(_HOSTS.c.pool == name))
        for host in sorted(set(hosts)):
            self._write(insert(_HOSTS).values(host=host, pool=name), conflict=f"host {host} is in another pool already")

    def delete_pool(self, name: str) -> bool:
        """Delete a pool with its grants; its hosts then serve every tenant. Returns False when there was none."""
        self._write(delete(_HOSTS).where(_HOSTS.c.pool == name))
        self._write(delete(_GRANTS).where(_GRANTS.c.pool == name))
        return self._write(delete(_POOLS).where(_POOLS.c.name == name)).rowcount == 1

    def grant_pool(self, name: str, tenant: str) -> bool:
        """Let a tenant use a pool. Returns False when it could already. Raises NotFound."""
        self.pool(name)
        self.tenant(tenant)
        return self._insert_if_absent(_GRANTS, pool=name, tenant=tenant)

    def revoke_pool(self, name: str, tenant: str) -> bool:
        """Revoke a grant; VMs that run there stay. Returns False when there was none. Raises NotFound."""
        self.pool(name)
        self.tenant(tenant)
        gone = delete(_GRANTS).where(_GRANTS.c.pool == name, _GRANTS.c.tenant == tenant)
        return self._write(gone).rowcount == 1
