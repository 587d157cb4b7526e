# SPDX-License-Identifier: Apache-2.0
"""create-pool: reserve hosts for some tenants."""

from vgpuctl.errors import InventoryError, StateError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import check_name
from vgpuctl.quota.pools import Pool
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
        before = None if there is None else {"hosts": list(there.hosts)}
        session.add_event(EventKind.POOL_SET, name, before=before, after={"hosts": list(hosts)})
        return session.pool(name), True
