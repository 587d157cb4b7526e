# SPDX-License-Identifier: Apache-2.0
"""The node pools of a tenant's file: compared, made, changed, and deleted where the file no longer has them."""

from collections.abc import Iterator, Sequence

from vgpuctl.errors import NodesStillLeave, StateError
from vgpuctl.model.node_pool import NodePool
from vgpuctl.specs.node_pool import declared_pool, list_fixed_differences, list_pool_differences
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.known_profiles import refuse_unknown_gpus
from vgpuctl.usecases.found.registered_images import refuse_unregistered
from vgpuctl.usecases.network.vpc_changes import (
    CHANGED,
    CREATED,
    DIFFERS,
    KEPT,
    LEAVING,
    REMOVED,
    UNCHANGED,
    ObjectOutcome,
)
from vgpuctl.usecases.node.node_pools import (
    create_node_pool,
    delete_node_pool,
    find_pool,
    refuse_taken_names,
    replace_pool,
)
from vgpuctl.usecases.running.services import Services

_KIND = "node-pool"


def compare_pools(session: Session, tenant: str, wanted: Sequence[NodePool], *, prune: bool) -> list[ObjectOutcome]:
    """Compare the declared pools with those of the store; the others are kept or removed. The tenant need not exist."""
    there = {pool.name: pool for pool in session.node_pools(tenant)}
    named = [_compare(there.pop(pool.name, None), pool) for pool in wanted]
    return [*named, *(ObjectOutcome(_KIND, name, REMOVED if prune else KEPT) for name in there)]


def refuse_unusable(services: Services, session: Session, wanted: Sequence[NodePool]) -> None:
    """Refuse pools that cannot be made, whatever the tenant has.

    Raises ImageUnregistered, StateError for names of nodes that VMs have, UsageError for a kubeconfig that cannot be
    used and for a type of GPU that nobody knows.
    """
    for pool in wanted:
        if find_pool(session, pool.tenant, pool.name) is None:
            refuse_unknown_gpus(session, pool.request)
        refuse_unregistered(session, pool.request)
        refuse_taken_names(session, pool)
        services.check_cluster(pool)


def refuse_fixed(session: Session, tenant: str, wanted: Sequence[NodePool]) -> None:
    """Raise StateError for a pool that differs in what a pool cannot change."""
    for one in compare_pools(session, tenant, wanted, prune=False):
        if one.outcome == DIFFERS:
            raise StateError(
                f"node pool {tenant}/{one.name} cannot become what the file says",
                context=one.detail,
                hint="give the pool of the file another name, and let the old one go with --prune: "
                "its cluster moves the work to the new nodes",
            )


def declare_pool(services: Services, wanted: NodePool) -> ObjectOutcome:
    """Create a pool of the file, or change the values that differ."""
    with services.store.reading() as session:
        (planned,) = compare_pools(session, wanted.tenant, [wanted], prune=False)[:1]
    if planned.outcome == CREATED:
        create_node_pool(services, wanted)
    elif planned.outcome == CHANGED:
        replace_pool(services, wanted.tenant, wanted.name, lambda there: declared_pool(there, wanted))
    return planned


def prune_pools(services: Services, tenant: str, keep: Sequence[str], *, timeout_s: float) -> Iterator[ObjectOutcome]:
    """Delete the tenant's pools that are not in `keep`; one whose nodes still drain goes with a later call.

    timeout_s: for the guests of nodes to shut down.
    """
    with services.store.reading() as session:
        gone = [pool.name for pool in session.node_pools(tenant) if pool.name not in keep]
    for name in gone:
        try:
            delete_node_pool(services, tenant, name, shutdown_timeout_s=timeout_s)
        except NodesStillLeave as error:
            services.say(f"{error.message}; run the same command again to delete the pool after them")
            yield ObjectOutcome(_KIND, name, LEAVING, tuple(f"node {node}" for node in error.context))
        else:
            yield ObjectOutcome(_KIND, name, REMOVED)


def _compare(there: NodePool | None, wanted: NodePool) -> ObjectOutcome:
    if there is None:
        size = f"{wanted.minimum} to {wanted.maximum} nodes of cluster {wanted.cluster}"
        return ObjectOutcome(_KIND, wanted.name, CREATED, (size,))
    fixed = list_fixed_differences(there, wanted)
    if fixed:
        return ObjectOutcome(_KIND, wanted.name, DIFFERS, tuple(fixed))
    declared = declared_pool(there, wanted)
    differences = tuple(list_pool_differences(there, declared))
    return ObjectOutcome(_KIND, wanted.name, UNCHANGED if declared == there else CHANGED, differences)
