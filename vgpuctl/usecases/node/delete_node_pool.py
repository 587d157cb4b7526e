# SPDX-License-Identifier: Apache-2.0
"""delete-node-pool: let all nodes of a pool go, wait until they are gone, and delete the pool."""

from dataclasses import replace

from vgpuctl.errors import NodesStillLeave
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.node_pool import NodePool
from vgpuctl.model.plural import counted
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.node.list_node_pools import PoolStatus, pool_status
from vgpuctl.usecases.node.node_pools import values_of_pool
from vgpuctl.usecases.node.settle_nodes import settle_pool
from vgpuctl.usecases.node.wanted_nodes import let_go_in
from vgpuctl.usecases.running.services import Services


def delete_node_pool(
    services: Services, tenant: str, name: str, *, shutdown_timeout_s: float, is_drained: bool = False
) -> NodePool:
    """Delete a pool: its nodes are drained and their VMs deleted first, by this command.

    is_drained: do not wait for the work on them, nor for a cluster that does not answer. Raises NotFound, and
    NodesStillLeave while nodes still drain; the same command again goes on, and so does the controller.
    """
    with services.store.transaction() as session:
        pool = session.node_pool(tenant, name)
        if pool.minimum:
            pool = replace(session.with_pool_secrets(pool), minimum=0)
            session.put_node_pool(pool)
        names = [one.name for one in session.nodes(tenant, name)]
        let_go_in(session, pool, names, reason="its pool is deleted", is_drained=is_drained)
    for one in settle_pool(services, pool, shutdown_timeout_s=shutdown_timeout_s, is_final=is_drained):
        services.say(f"{one.name}: {one.outcome}")
    with services.store.transaction() as session:
        left = session.nodes(tenant, name)
        if not left:
            session.delete_node_pool(pool)
            session.add_event(
                EventKind.NODE_POOL_DELETED, pool.printed_name, tenant=tenant, before=values_of_pool(pool)
            )
    if left:
        raise NodesStillLeave(
            f"node pool {pool.printed_name} has {counted(len(left), 'node')} that still leave",
            context=[one.printed_name for one in left],
            hint="run the command again, or with --drained to end the work on them; a running controller goes on too",
        )
    return pool


def _delete(services: Services, found: PoolStatus, *, timeout_s: float, is_drained: bool) -> None:
    pool = found.pool
    delete_node_pool(services, pool.tenant, pool.name, shutdown_timeout_s=timeout_s, is_drained=is_drained)


DELETION = Deletion(
    find=lambda session, tenant, name: pool_status(session, session.node_pool(tenant, name)),
    names=lambda session, tenant: [one.name for one in session.node_pools(tenant)],
    printed=lambda found: found.pool.printed_name,
    describe=lambda found: f"node pool {found.pool.printed_name}: {counted(len(found.nodes), 'node')}",
    delete=_delete,
)
