# SPDX-License-Identifier: Apache-2.0
"""Pools of hosts that only tenants with a grant may use."""

from collections.abc import Sequence

from vgpuctl.errors import InventoryError, StateError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import check_name
from vgpuctl.quota.pools import Pool
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.running.services import Services


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
        before = None if there is None else {"hosts": list(there.hosts)}
        session.add_event(EventKind.POOL_SET, name, before=before, after={"hosts": list(hosts)})
        return session.pool(name), True


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


def list_pools(services: Services) -> Sequence[Pool]:
    """Every pool, by name."""
    with services.store.reading() as session:
        return session.pools()


def delete_pool(services: Services, pool: Pool) -> None:
    """Delete a pool and its grants. Raises NotFound."""
    with services.store.transaction() as session:
        there = session.pool(pool.name)
        session.delete_pool(there.name)
        before = {"hosts": list(there.hosts), "tenants": list(there.tenants)}
        session.add_event(EventKind.POOL_DELETED, there.name, before=before)


DELETION = Deletion(
    find=lambda session, _tenant, name: session.pool(name),
    names=lambda session, _tenant: [one.name for one in session.pools()],
    printed=lambda one: one.name,
    describe=lambda pool: (
        f"host pool {pool.name}: {', '.join(pool.hosts)}, for {', '.join(pool.tenants) or 'no tenant'}"
    ),
    delete=delete_pool,
    left=lambda pool: f"{', '.join(pool.hosts)} {'serves' if len(pool.hosts) == 1 else 'serve'} every tenant",
)
