# SPDX-License-Identifier: Apache-2.0
"""Pools of hosts that only tenants with a grant may use."""

from collections.abc import Sequence

from vgpuctl.errors import InventoryError, StateError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import check_name
from vgpuctl.quota.host_pools import HostPool
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.running.services import Services


def create_host_pool(services: Services, name: str, pattern: str) -> tuple[HostPool, bool]:
    """Make a pool of the inventory's hosts that fit a pattern, or give it these hosts. Returns whether it changed.

    Raises UsageError, InventoryError when no host fits, StateError when a host is in another pool.
    """
    check_name(name, what="host pool")
    hosts = tuple(sorted(services.inventory.select(pattern, option="--hosts")))
    if not hosts:
        raise InventoryError(f"the inventory has no host that fits {pattern!r}", hint="see `vgpuctl show-inventory`")
    with services.store.transaction() as session:
        pools = session.host_pools()
        for pool in pools:
            taken = sorted(set(hosts) & set(pool.hosts))
            if taken and pool.name != name:
                raise StateError(
                    f"host {taken[0]} is in host pool {pool.name} already", hint="a host is in one pool at most"
                )
        there = next((pool for pool in pools if pool.name == name), None)
        if there is not None and there.hosts == hosts:
            return there, False
        session.set_host_pool(name, hosts)
        before = None if there is None else {"hosts": list(there.hosts)}
        session.add_event(EventKind.HOST_POOL_SET, name, before=before, after={"hosts": list(hosts)})
        return session.host_pool(name), True


def grant_host_pool(services: Services, name: str, tenants: Sequence[str], *, revoke: bool) -> tuple[HostPool, bool]:
    """Let tenants use a pool, or revoke their grants; VMs that run there stay. Raises NotFound."""
    with services.store.transaction() as session:
        changed = [record_grant(session, name, tenant, revoke=revoke) for tenant in tenants]
        return session.host_pool(name), any(changed)


def record_grant(session: Session, pool: str, tenant: str, *, revoke: bool) -> bool:
    """Grant a pool to a tenant, or revoke it, with an event. Returns whether anything changed. Raises NotFound."""
    before = list(session.host_pool(pool).tenants)
    if not (session.revoke_host_pool(pool, tenant) if revoke else session.grant_host_pool(pool, tenant)):
        return False
    after = list(session.host_pool(pool).tenants)
    kind = EventKind.HOST_POOL_REVOKED if revoke else EventKind.HOST_POOL_GRANTED
    session.add_event(kind, pool, tenant, tenant=tenant, before={"tenants": before}, after={"tenants": after})
    return True


def list_host_pools(services: Services) -> Sequence[HostPool]:
    """Every pool, by name."""
    with services.store.reading() as session:
        return session.host_pools()


def delete_host_pool(services: Services, pool: HostPool) -> None:
    """Delete a pool and its grants. Raises NotFound."""
    with services.store.transaction() as session:
        there = session.host_pool(pool.name)
        session.delete_host_pool(there.name)
        before = {"hosts": list(there.hosts), "tenants": list(there.tenants)}
        session.add_event(EventKind.HOST_POOL_DELETED, there.name, before=before)


DELETION = Deletion(
    find=lambda session, _tenant, name: session.host_pool(name),
    names=lambda session, _tenant: [one.name for one in session.host_pools()],
    printed=lambda one: one.name,
    describe=lambda pool: (
        f"host pool {pool.name}: {', '.join(pool.hosts)}, for {', '.join(pool.tenants) or 'no tenant'}"
    ),
    delete=delete_host_pool,
    left=lambda pool: f"{', '.join(pool.hosts)} {'serves' if len(pool.hosts) == 1 else 'serve'} every tenant",
)
