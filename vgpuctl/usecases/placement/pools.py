# SPDX-License-Identifier: Apache-2.0
"""create-pool, grant-pool, delete-pool and list-pools: hosts that only some tenants may use."""

import difflib
from collections.abc import Sequence

from vgpuctl.errors import InventoryError, NoCapacity, StateError
from vgpuctl.model.vm import VmRequest, check_name
from vgpuctl.quota.pools import Pool, closed_hosts
from vgpuctl.usecases.support.services import Services


def create_pool(services: Services, name: str, pattern: str) -> tuple[Pool, bool]:
    """Make a pool of the inventory's hosts that fit a pattern, or give it these hosts. Returns whether it changed.

    Raises UsageError, InventoryError when no host fits, StateError when a host is in another pool.
    """
    check_name(name, what="pool")
    hosts = tuple(sorted(services.inventory.select(pattern)))
    if not hosts:
        raise InventoryError(f"the inventory has no host that fits {pattern!r}", hint="see `vgpuctl show-inventory`")
    with services.store.transaction() as session:
        pools = session.pools()
        for pool in pools:
            taken = sorted(set(hosts) & set(pool.hosts))
            if taken and pool.name != name:
                raise StateError(
                    f"host {taken[0]} is in pool {pool.name} already", hint="a host is in one pool at most"
                )
        there = next((pool for pool in pools if pool.name == name), None)
        if there is not None and there.hosts == hosts:
            return there, False
        session.set_pool(name, hosts)
        session.add_event("pool-set", name, ", ".join(hosts))
        return session.pool(name), True


def grant_pool(services: Services, name: str, tenants: Sequence[str], *, revoke: bool) -> tuple[Pool, bool]:
    """Let tenants use a pool, or take their grants back; VMs that run there stay. Raises NotFound."""
    with services.store.transaction() as session:
        changed = [
            session.revoke_pool(name, tenant) if revoke else session.grant_pool(name, tenant) for tenant in tenants
        ]
        for tenant, is_new in zip(tenants, changed, strict=True):
            if is_new:
                session.add_event("pool-revoked" if revoke else "pool-granted", name, tenant)
        return session.pool(name), any(changed)


def delete_pool(services: Services, name: str) -> Pool:
    """Delete a pool and its grants. Raises NotFound."""
    with services.store.transaction() as session:
        pool = session.pool(name)
        session.delete_pool(name)
        session.add_event("pool-deleted", name)
    return pool


def list_pools(services: Services) -> Sequence[Pool]:
    """Every pool, by name."""
    with services.store.reading() as session:
        return session.pools()


def refuse_unknown_host(services: Services, host: str | None, names: Sequence[str]) -> None:
    """Refuse a host that a VM names and this command has not, with near names, before any host is read.

    Raises NoCapacity.
    """
    if host is None or host in names:
        return
    if host in services.inventory.select(None):
        raise NoCapacity(f"host {host} is left out by --limit", hint="name it in --limit too", stays=True)
    near = difflib.get_close_matches(host, names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "see `vgpuctl list-hosts`"
    raise NoCapacity(f"the inventory has no host {host}", hint=hint, stays=True)


def usable_hosts(services: Services, request: VmRequest) -> list[str]:
    """The hosts of this command that the request's tenant may use.

    Raises NoCapacity when the host it names, or every host, is in a pool that is not granted to the tenant.
    """
    with services.store.reading() as session:
        closed = closed_hosts(request.tenant, session.pools())
    names = services.hosts()
    refuse_unknown_host(services, request.host, names)
    usable = [name for name in names if name not in closed]
    if usable and request.host not in closed:
        return usable
    barred = [request.host] if request.host is not None and request.host in closed else list(names)
    raise NoCapacity(
        f"tenant {request.tenant} may not use {barred[0] if len(barred) == 1 else 'any of the hosts'}",
        context=[f"{name}: in pool {closed[name]}, which is not granted to {request.tenant}" for name in barred],
        hint=f"run `vgpuctl grant-pool {closed[barred[0]]} {request.tenant}`",
    )
