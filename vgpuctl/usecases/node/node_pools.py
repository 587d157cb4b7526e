# SPDX-License-Identifier: Apache-2.0
"""Node pools of tenants' clusters, as they are declared, until they are deleted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vgpuctl.errors import NodesStillLeave, QuotaExceeded, StateError, UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.node_pool import Node, NodePool, NodeState
from vgpuctl.model.plural import counted
from vgpuctl.node_config.join.setup import refuse_expired
from vgpuctl.specs.node_pool import changed_pool, list_pool_differences
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.found.known_profiles import refuse_unknown_gpus
from vgpuctl.usecases.found.registered_images import refuse_unregistered
from vgpuctl.usecases.node.list_node_pools import PoolStatus, pool_status
from vgpuctl.usecases.node.wanted_nodes import is_wanted, let_go_in, want_more_in
from vgpuctl.usecases.observed.node_states import NodeStatus
from vgpuctl.usecases.placement.quota import refuse_for_ever
from vgpuctl.usecases.running.services import Services


def create_node_pool(services: Services, pool: NodePool) -> tuple[NodePool, bool]:
    """Create a pool and want its minimum of nodes. Returns it, and whether it changed anything.

    Raises NotFound (tenant), ImageUnregistered, StateError for a pool of this name with other values or for names of
    nodes that VMs have, QuotaExceeded when the tenant's quota never admits the minimum, StoreUnusable for secrets
    without a key, UsageError for a kubeconfig that cannot be used and for a type of GPU that
    neither a host nor the catalogue knows.
    """
    with services.store.reading() as session:
        session.tenant(pool.tenant)
        there = find_pool(session, pool.tenant, pool.name)
        if there is not None:
            refuse_differing(session, there, pool)
            return there, False
        refuse_unknown_gpus(session, pool.request)
        check_pool_in(session, pool, tell=services.say)
    services.check_cluster(pool)
    with services.store.transaction() as session:
        if find_pool(session, pool.tenant, pool.name) is None:
            session.put_node_pool(pool)
            session.add_event(
                EventKind.NODE_POOL_CREATED, pool.printed_name, tenant=pool.tenant, after=values_of_pool(pool)
            )
            if pool.minimum:
                want_more_in(session, pool, pool.minimum, reason=f"the minimum of {pool.minimum}")
        return session.node_pool(pool.tenant, pool.name), True


def find_pool(session: Session, tenant: str, name: str) -> NodePool | None:
    """The pool of this name, None where there is none."""
    return next((one for one in session.node_pools(tenant) if one.name == name), None)


def refuse_differing(session: Session, there: NodePool, wanted: NodePool) -> None:
    """Raise StateError when a pool is there with other values."""
    differences = list_pool_differences(there, wanted)
    if differences:
        raise StateError(
            f"node pool {there.printed_name} is there, with other values",
            context=differences,
            hint=f"change it with `vgpuctl set-node-pool {there.tenant}/{there.name}`; what that command does "
            "not change needs a new pool",
        )


def check_pool_in(session: Session, pool: NodePool, *, tell: Callable[[str], None]) -> None:
    """Refuse a pool that cannot work with the tenant's VMs and quota.

    Tells of a maximum that the quota never admits, and of a join token that has expired.
    """
    session.tenant(pool.tenant)
    try:
        refuse_expired(pool, session.now())
    except StateError as error:
        tell(f"warning: {error.message}")
    refuse_unregistered(session, pool.request)
    refuse_taken_names(session, pool)
    requests = [pool.request_of(name) for name in pool.node_names]
    if pool.minimum:
        refuse_for_ever(session, *requests[: pool.minimum])
    try:
        refuse_for_ever(session, *requests)
    except QuotaExceeded as error:
        tell(f"warning: the maximum of {pool.maximum} nodes is more than the quota: {'; '.join(error.context)}")


def refuse_taken_names(session: Session, pool: NodePool) -> None:
    """Raise StateError when a VM that does not belong to the pool has the name of one of its nodes."""
    taken = [vm.request.name for vm in session.vms(tenant=pool.tenant)]
    names = set(pool.node_names)
    nodes = {one.name for one in session.nodes(pool.tenant, pool.name)}
    clash = sorted(one for one in taken if one in names and one not in nodes)
    if clash:
        raise StateError(
            f"node pool {pool.printed_name} would have nodes named as VMs that are there: {', '.join(clash[:5])}",
            hint="rename these VMs, or choose another name for the pool",
        )


def values_of_pool(pool: NodePool) -> Values:
    """The pool for events and errors; of its secrets the names alone."""
    return {
        "cluster": pool.cluster,
        "role": str(pool.role),
        "min": pool.minimum,
        "max": pool.maximum,
        "gpus": [gpu.text for gpu in pool.request.gpus],
        "vcpus": pool.request.vcpus,
        "memory_mib": pool.request.memory_mib,
        "secrets": list(pool.join.secrets),
    }


def set_node_pool(services: Services, tenant: str, name: str, given: Mapping[str, Any]) -> tuple[NodePool, bool]:
    """Change the fields that flags name. Returns the pool, and whether it changed anything.

    given: by `Field.parameter`. A minimum that is higher is filled by the controller. Nodes above a lower maximum stay
    until they are let go, and none is made there again.
    Raises NotFound, QuotaExceeded, and UsageError for values that do not fit together.
    """
    return replace_pool(services, tenant, name, lambda there: changed_pool(there, given))


def replace_pool(
    services: Services, tenant: str, name: str, change: Callable[[NodePool], NodePool]
) -> tuple[NodePool, bool]:
    """The same with what `change` makes of the pool that is there; it gets the pool with its secrets."""
    with services.store.transaction() as session:
        there = session.with_pool_secrets(session.node_pool(tenant, name))
        wanted = change(there)
        if wanted == there:
            return there, False
        services.check_cluster(wanted)
        check_pool_in(session, wanted, tell=services.say)
        session.put_node_pool(wanted)
        before, after = values_of_pool(there), values_of_pool(wanted)
        session.add_event(EventKind.NODE_POOL_CHANGED, wanted.printed_name, tenant=tenant, before=before, after=after)
        for key, value in after.items():
            if value != before[key]:
                services.say(f"node pool {wanted.printed_name}: {key}: {_text(before[key])} -> {_text(value)}")
    return wanted, True


def _text(value: Any) -> str:
    return ", ".join(value) or "-" if isinstance(value, list) else str(value)


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


def delete_node_pool(
    services: Services, tenant: str, name: str, *, shutdown_timeout_s: float, is_drained: bool = False
) -> NodePool:
    """Delete a pool: its nodes are drained and their VMs deleted first, by this command.

    is_drained: do not wait for the work on them, nor for a cluster that does not answer. Raises NotFound, and
    NodesStillLeave while nodes still drain; the same command again goes on, and so does the controller.
    """
    from vgpuctl.usecases.node.settle_nodes import settle_pool  # it loads what deletes VMs

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
