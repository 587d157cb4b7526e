# SPDX-License-Identifier: Apache-2.0
"""list-node-pools: pools with their nodes, and why a node is not ready."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.model.node_pool import NodePool, NodeState
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.node_states import NodeStatus, node_states
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class PoolStatus:
    """A pool with its nodes. never_joined: nodes in succession that did not join their cluster in time."""

    pool: NodePool
    nodes: tuple[NodeStatus, ...]
    never_joined: int

    @property
    def counts(self) -> dict[NodeState, int]:
        """How many nodes are in each state."""
        return dict(Counter(one.state for one in self.nodes))

    @property
    def size(self) -> int:
        """How many nodes are wanted."""
        return sum(not one.node.is_leaving or one.node.wanted_again for one in self.nodes)


def list_node_pools(services: Services, tenant: str | None = None, names: Sequence[str] = ()) -> list[PoolStatus]:
    """The pools of a tenant, or all. names: only these. Raises NotFound."""
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        if names and tenant is not None:
            return [pool_status(session, session.node_pool(tenant, name)) for name in names]
        return [pool_status(session, pool) for pool in session.node_pools(tenant)]


def pool_status(session: Session, pool: NodePool) -> PoolStatus:
    """One pool as it is now."""
    states = node_states(session, session.nodes(pool.tenant, pool.name))
    return PoolStatus(pool, tuple(states), session.never_joined(pool)[0])
