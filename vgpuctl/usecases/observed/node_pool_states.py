# SPDX-License-Identifier: Apache-2.0
"""The rows of model/states/ about node pools: sizes, states of nodes, and how long nodes and clusters keep waiting."""

from collections import Counter
from collections.abc import Iterator, Sequence

from vgpuctl.model.node_pool import NodePool, NodeState
from vgpuctl.model.states import StateRow
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.node_states import NodeStatus, node_states

_MEMBERS = (NodeState.READY, NodeState.NOT_READY)


def pool_rows(session: Session) -> Iterator[tuple[str, StateRow]]:
    """The rows of every pool, by the name of their kind of state."""
    found: dict[tuple[str, str], list[NodeStatus]] = {}
    for one in node_states(session, session.nodes()):
        found.setdefault((one.node.tenant, one.node.pool), []).append(one)
    now = session.now()
    for pool in session.node_pools():
        nodes = found.get((pool.tenant, pool.name), [])
        labels = (pool.tenant, pool.cluster, pool.name)
        counts = Counter(one.state for one in nodes)
        for state in NodeState:
            yield "node_pool_nodes", StateRow((*labels, str(state)), value=counts[state])
        yield "node_pool_minimum", StateRow(labels, value=pool.minimum)
        yield "node_pool_maximum", StateRow(labels, value=pool.maximum)
        is_asked = _is_asked(pool, nodes)
        available = counts[NodeState.READY] + (0 if is_asked else counts[NodeState.JOINING])
        yield "node_pool_available_nodes", StateRow(labels, value=available)
        yield "node_pool_never_joined", StateRow(labels, value=session.never_joined(pool)[0])
        waits = [since for one in nodes if (since := _waits_since(one, is_asked=is_asked)) is not None]
        wait = max(0.0, now - min(waits)) if waits else 0.0
        yield "node_pool_oldest_wait_seconds", StateRow(labels, value=wait)
        seen = [one.node.seen_at for one in nodes if one.state in _MEMBERS and one.node.seen_at is not None]
        if seen:
            yield "node_pool_cluster_silence_seconds", StateRow(labels, value=max(0.0, now - max(seen)))


def _is_asked(pool: NodePool, nodes: Sequence[NodeStatus]) -> bool:
    """True if it is known which nodes of a pool have joined. For a Slurm pool, that needs a node that has joined."""
    if pool.role.is_kubernetes:
        return pool.join.kubeconfig is not None
    return any(one.node.joined_at is not None for one in nodes)


def _waits_since(one: NodeStatus, *, is_asked: bool) -> float | None:
    """When a wanted node began to wait for its VM or its cluster; None for one that does not wait."""
    if one.state in (NodeState.WAITING, NodeState.CREATING):
        return one.node.wanted_at
    if one.state is NodeState.JOINING and is_asked:
        return one.node.running_at or one.node.wanted_at
    return None
