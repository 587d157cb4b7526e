# SPDX-License-Identifier: Apache-2.0
"""scale-node-pool: so many nodes. The controller makes new ones, and drains and deletes those that are let go."""

from dataclasses import dataclass

from vgpuctl.errors import UsageError
from vgpuctl.model.node_pool import Node, NodePool, NodeState
from vgpuctl.store.store import Session
from vgpuctl.usecases.node.list_node_pools import pool_status
from vgpuctl.usecases.node.wanted_nodes import is_wanted, let_go_in, want_more_in
from vgpuctl.usecases.support.node_states import NodeStatus
from vgpuctl.usecases.support.services import Services

_FIRST_TO_GO = (NodeState.WAITING, NodeState.CREATING, NodeState.STOPPED, NodeState.JOINING, NodeState.NOT_READY)


@dataclass(frozen=True)
class Scaled:
    """The changes of scale-node-pool. size: how many nodes are wanted now."""

    size: int
    wanted: tuple[str, ...]
    let_go: tuple[str, ...]


def scale_node_pool(services: Services, tenant: str, name: str, size: int) -> Scaled:
    """Want as many nodes as `size` says.

    Those without work are let go first, then those above a maximum that was lowered, then the newest.

    Raises NotFound, and UsageError for a size outside the pool's minimum and maximum.
    """
    with services.store.reading() as session:
        pool = session.node_pool(tenant, name)
    if not pool.minimum <= size <= pool.maximum:
        raise UsageError(
            f"node pool {pool.printed_name} has {pool.minimum} to {pool.maximum} nodes, not {size}",
            hint=f"change that with `vgpuctl set-node-pool {tenant}/{name} --min NUMBER --max NUMBER`",
        )
    with services.store.transaction() as session:
        living = _living(session, pool)
        leaving = _to_let_go(pool, living, size)
        let_go_in(session, pool, [one.name for one in leaving], reason=f"scaled to {size}")
        more = max(0, size - len(living))
        wanted = want_more_in(session, pool, more, reason=f"scaled to {size}").new if more else ()
    return Scaled(size, wanted, tuple(one.name for one in leaving))


def _living(session: Session, pool: NodePool) -> list[NodeStatus]:
    return [one for one in pool_status(session, pool).nodes if is_wanted(one.node)]


def _to_let_go(pool: NodePool, living: list[NodeStatus], size: int) -> list[Node]:
    def rank(one: NodeStatus) -> tuple[bool, bool, float, str]:
        is_admitted = pool.number_of(one.node.name) is not None
        return one.state not in _FIRST_TO_GO, is_admitted, -one.node.wanted_at, one.node.name

    ordered = sorted(living, key=rank)
    return [one.node for one in ordered[: max(0, len(living) - size)]]
