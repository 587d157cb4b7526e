# SPDX-License-Identifier: Apache-2.0
"""The pools of one Slurm cluster, and which of them a node's name belongs to."""

from collections.abc import Sequence

from vgpuctl.errors import NotFound, UsageError
from vgpuctl.model.node_pool import NodePool, NodeRole
from vgpuctl.store.store import Session


def pools_of_cluster(session: Session, tenant: str, cluster: str | None) -> list[NodePool]:
    """The Slurm pools of a cluster, by name. cluster: None where the tenant has one with such pools.

    Raises NotFound for a tenant or cluster without any, UsageError where there are several clusters.
    """
    session.tenant(tenant)
    pools = [pool for pool in session.node_pools(tenant) if pool.role is NodeRole.SLURM]
    clusters = sorted({pool.cluster for pool in pools})
    if not pools or (cluster is not None and cluster not in clusters):
        named = f" in cluster {cluster}" if cluster is not None else ""
        known = f"its Slurm clusters are {', '.join(clusters)}" if clusters else None
        raise NotFound(
            f"tenant {tenant} has no node pool for Slurm{named}",
            hint=known or f"create one: vgpuctl create-node-pool {tenant}/NAME --role slurm --max NUMBER",
        )
    if cluster is None and len(clusters) > 1:
        raise UsageError(f"tenant {tenant} has several Slurm clusters: {', '.join(clusters)}", hint="name one of them")
    return [pool for pool in pools if pool.cluster == (cluster or clusters[0])]


def pool_of(pools: Sequence[NodePool], node: str) -> NodePool | None:
    """The pool that a node's name belongs to, also above its maximum: such a node may still be there."""
    return next((pool for pool in pools if pool.owns_name(node)), None)
