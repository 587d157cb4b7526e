# SPDX-License-Identifier: Apache-2.0
"""Wanting nodes and letting them go. Both only change the store: no cluster and no host is contacted.

A wanted node is a row of `nodes` and an entry of the queue, added together. The controller makes its VM as it makes any
VM that waits, and settles nodes that leave (settle_nodes.py).
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import ConcurrentChange, StateError, UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.node_pool import Node, NodePool
from vgpuctl.model.plural import counted
from vgpuctl.store.store import Session
from vgpuctl.usecases.placement.queue_entries import note_left, wait_for_turn
from vgpuctl.usecases.running.services import Services

WAITS = "the controller has not looked at it yet"


@dataclass(frozen=True)
class Wanted:
    """The nodes that were asked for, and which of them are new."""

    nodes: tuple[Node, ...]
    new: tuple[str, ...]


def want_nodes(
    services: Services,
    pool: NodePool,
    names: Sequence[str],
    *,
    jobs: Mapping[str, Sequence[str]] | None = None,
    reason: str = "",
) -> Wanted:
    """Want these nodes of a pool, all of them or none; one that is wanted already stays as it is.

    A node that leaves is wanted again: a new VM follows the old one. jobs: of Slurm, for which each is wanted, by node.
    Raises UsageError for a name that is none of the pool's, StateError when a VM has the name or there would be more
    than the pool's maximum.
    """
    with services.store.transaction() as session:
        wanted = {one.name for one in session.nodes(pool.tenant, pool.name) if is_wanted(one)}
        unknown = [name for name in names if pool.number_of(name) is None and name not in wanted]
        if unknown:
            raise UsageError(
                f"{', '.join(unknown)}: no node of pool {pool.printed_name}",
                hint=f"its nodes are {pool.node_name(1)} to {pool.node_name(pool.maximum)}",
            )
        return _want(session, pool, list(dict.fromkeys(names)), jobs or {}, reason)


def want_more(services: Services, pool: NodePool, count: int, *, reason: str = "") -> Wanted:
    """Want so many more nodes, all of them or none. Raises StateError beyond the pool's maximum."""
    with services.store.transaction() as session:
        return want_more_in(session, pool, count, reason=reason)


def want_more_in(session: Session, pool: NodePool, count: int, *, reason: str) -> Wanted:
    """The same inside a transaction of the caller."""
    return _want(session, pool, next_names(session, pool, count), {}, reason)


def next_names(session: Session, pool: NodePool, count: int) -> list[str]:
    """The names that so many more nodes get: free ones first, then those of nodes that leave.

    Raises StateError beyond the pool's maximum.
    """
    pool = session.node_pool(pool.tenant, pool.name)
    vms = {vm.request.name for vm in session.vms(tenant=pool.tenant)}
    taken = vms | {one.name for one in session.nodes(pool.tenant)}
    free = [name for name in pool.node_names if name not in taken]
    leaving = [
        one.name
        for one in session.nodes(pool.tenant, pool.name)
        if one.is_leaving and not one.wanted_again and pool.number_of(one.name) is not None
    ]
    names = [*free, *leaving][:count]
    if len(names) < count:
        raise _too_many(session, pool, count)
    return names


def _want(
    session: Session, pool: NodePool, names: Sequence[str], jobs: Mapping[str, Sequence[str]], reason: str
) -> Wanted:
    pool = session.with_pool_secrets(session.node_pool(pool.tenant, pool.name))
    there = {one.name: one for one in session.nodes(pool.tenant, pool.name)}
    living = [one for one in there.values() if is_wanted(one)]
    new = [name for name in names if name not in there or not is_wanted(there[name])]
    if len(living) + len(new) > pool.maximum:
        raise _too_many(session, pool, len(new))
    nodes = []
    for name in names:
        node = there.get(name)
        if node is None:
            node = add_wanted(session, pool, name, tuple(jobs.get(name, ())), reason)
        else:
            node = replace(
                node, jobs=tuple(dict.fromkeys((*node.jobs, *jobs.get(name, ())))), wanted_again=node.is_leaving
            )
            session.note_node_leaving(node)
            if name in new:
                _note(session, EventKind.NODE_WANTED, pool, node, reason or "wanted again, once its old VM is gone")
        nodes.append(node)
    return Wanted(tuple(nodes), tuple(new))


def add_wanted(session: Session, pool: NodePool, name: str, jobs: tuple[str, ...], reason: str) -> Node:
    """Add one wanted node with its entry of the queue. pool: with its secrets. Raises StateError for a taken name."""
    if session.vm(pool.tenant, name) is not None or session.queued(pool.tenant, name) is not None:
        raise StateError(
            f"node {name} cannot be made: tenant {pool.tenant} has a VM of this name",
            hint="delete or rename that VM, or give the pool another name",
        )
    node = Node(pool.tenant, pool.name, name, str(uuid.uuid4()), session.now(), jobs)
    session.add_node(node)
    request = pool.request_of(name)
    _note(session, EventKind.NODE_WANTED, pool, node, reason)
    wait_for_turn(session, [request], WAITS, may_preempt=pool.may_preempt)
    return node


def let_go(
    services: Services, pool: NodePool, names: Sequence[str], *, reason: str, is_drained: bool = False
) -> list[Node]:
    """Let these nodes go: those that have no VM yet at once, the others are drained and deleted by the controller.

    is_drained: their cluster has no work on them any more. Unknown nodes, and those that leave already, are passed
    over. Returns the nodes that were let go by this call.
    """
    with services.store.transaction() as session:
        return let_go_in(session, pool, names, reason=reason, is_drained=is_drained)


def let_go_in(
    session: Session, pool: NodePool, names: Sequence[str], *, reason: str, is_drained: bool = False
) -> list[Node]:
    """The same inside a transaction of the caller."""
    gone = []
    there = {one.name: one for one in session.nodes(pool.tenant, pool.name)}
    for name in dict.fromkeys(names):
        node = there.get(name)
        if node is None:
            continue
        if node.is_leaving:
            if node.wanted_again or (is_drained and not node.is_drained):
                session.note_node_leaving(replace(node, wanted_again=False, is_drained=node.is_drained or is_drained))
                gone += [node] if node.wanted_again else []
            continue
        leaving = replace(node, leaving_at=session.now(), leave_reason=reason, is_drained=is_drained)
        session.note_node_leaving(leaving)
        _note(session, EventKind.NODE_LET_GO, pool, node, reason)
        if take_out_of_queue(session, leaving, reason):
            forget(session, pool, leaving)
        gone.append(leaving)
    return gone


def drop_waiting(services: Services, pool: NodePool, count: int, *, reason: str) -> list[Node]:
    """Let go so many nodes that have no VM yet, the newest first, all of them or none.

    Raises StateError when fewer wait: a node with a VM is only let go by name.
    """
    with services.store.transaction() as session:
        uuids = {vm.uuid for vm in session.vms(tenant=pool.tenant)}
        living = [one for one in session.nodes(pool.tenant, pool.name) if is_wanted(one)]
        waiting = [one for one in living if one.is_leaving or one.vm_uuid not in uuids]
        if count > len(waiting):
            raise StateError(
                f"node pool {pool.printed_name} has {counted(len(waiting), 'node')} without a VM, fewer than {count}",
                hint="let the others go by name",
            )
        newest = sorted(waiting, key=lambda one: (one.wanted_at, one.name), reverse=True)[:count]
        return let_go_in(session, pool, [one.name for one in newest], reason=reason, is_drained=True)


def take_out_of_queue(session: Session, node: Node, reason: str) -> bool:
    """Take the entry of a leaving node out of the queue. Returns True if the node has neither a VM nor an entry then.

    While a controller serves the entry it stays: the VM is deleted once it is there. Another VM of its name is left.
    """
    vm = session.vm(node.tenant, node.name)
    if vm is not None and vm.uuid == node.vm_uuid:
        return False
    entry = session.queued(node.tenant, node.name)
    if entry is None:
        return True
    try:
        session.leave_queue(entry.id)
    except ConcurrentChange:
        return False
    note_left(session, entry.request, entry, reason)
    return True


def forget(session: Session, pool: NodePool, node: Node) -> None:
    """Forget a node whose VM is gone. A node that is wanted again gets a new VM, if the pool still has its name."""
    if not session.delete_node(node):
        return
    _note(session, EventKind.NODE_GONE, pool, node, node.leave_reason or "")
    pool = session.node_pool(pool.tenant, pool.name)
    has_its_name = pool.number_of(node.name) is not None and session.vm(node.tenant, node.name) is None
    if node.wanted_again and has_its_name:
        add_wanted(session, session.with_pool_secrets(pool), node.name, node.jobs, "wanted again while it left")


def is_wanted(node: Node) -> bool:
    """True if the node counts for its pool's size: it is wanted, or wanted again while it leaves."""
    return not node.is_leaving or node.wanted_again


def _note(session: Session, kind: EventKind, pool: NodePool, node: Node, detail: str) -> None:
    after: Values = {"pool": pool.name, "cluster": pool.cluster, "jobs": list(node.jobs)}
    session.add_event(kind, node.printed_name, detail, tenant=node.tenant, after=after)


def _too_many(session: Session, pool: NodePool, count: int) -> StateError:
    living = sum(is_wanted(one) for one in session.nodes(pool.tenant, pool.name))
    return StateError(
        f"node pool {pool.printed_name} has {counted(living, 'node')} and a maximum of {pool.maximum}: "
        f"not {count} more",
        hint=f"raise it: vgpuctl set-node-pool {pool.tenant}/{pool.name} --max NUMBER",
    )
