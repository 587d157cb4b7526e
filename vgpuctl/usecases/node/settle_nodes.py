# SPDX-License-Identifier: Apache-2.0
"""The controller's part in node pools: what each round does so that nodes, VMs and clusters agree.

It drains and deletes nodes that were let go, notes which nodes their clusters have, deletes those that never join,
tells Slurm of nodes that cannot be made, and keeps the minimum of each pool. Every step can be done again.
Pools are settled side by side, since each asks a cluster of its own, and no cluster keeps the other pools waiting."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.clusters.kubernetes.objects import ObjectError, quantity
from vgpuctl.errors import ClusterError, ConcurrentChange, StateError, VgpuctlError
from vgpuctl.hosts.fleet import run_on_hosts
from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.node_pool import Node, NodePool, NodeState
from vgpuctl.model.place_labels import HOST, PLACE_LABELS
from vgpuctl.model.times import format_duration
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.node_config.join.setup import refuse_to_join
from vgpuctl.node_config.labels import label_value, node_labels
from vgpuctl.usecases.cluster.cordons import Cordons
from vgpuctl.usecases.cluster.leave_cluster import LeavingNode, named, note_drained
from vgpuctl.usecases.cluster.timed_link import TimedLink
from vgpuctl.usecases.image.node_join import place_of
from vgpuctl.usecases.maintenance.evacuate_host import is_lost
from vgpuctl.usecases.node.wanted_nodes import forget, is_wanted, let_go, let_go_in, take_out_of_queue, want_more_in
from vgpuctl.usecases.observed.node_states import NodeStatus, node_states
from vgpuctl.usecases.running.cluster_link import ClusterLink
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.delete_vm import delete_vm
from vgpuctl.usecases.vm.final_preemptions import is_preempted


# The labels of a Kubernetes node follow its VM to another host. A kubelet sets them only when it registers.
def relabel_moved(
    services: Services, pool: NodePool, node: Node, vm: Vm, link: ClusterLink, member: ClusterMember
) -> str | None:
    """Give the node the labels of its VM's host, where it has those of another. Returns what was done.

    A node without the label of a host was never told its place by vgpuctl, and stays as it is. The labels of the pool
    win, as when the node was made. Raises ClusterError, InventoryError.
    """
    if member.labels.get(HOST) in (None, label_value(vm.host)):
        return None
    with services.store.reading() as session:
        wanted = node_labels(pool, place_of(services, session, vm))
    changes = {key: wanted.get(key) for key in PLACE_LABELS if wanted.get(key) != member.labels.get(key)}
    if not changes:
        return None
    link.relabel(node.name, changes)
    return f"labelled for host {vm.host}"


# The amounts that the nodes of a pool offer to pods, as their cluster says. The template of a new node has the least.
#
# GPUs are left out: a node says 0 until its device plugin runs, and the pool knows their number.
_UNITS = {"cpu": 1000, "memory": 1, "ephemeral-storage": 1}
"""Parts of the unit of each resource: thousandths of CPUs, bytes."""


def note_amounts(
    services: Services, pool: NodePool, states: Sequence[NodeStatus], members: Mapping[str, ClusterMember]
) -> None:
    """Note the least of the nodes that are ready now; without any, what was noted before stays."""
    least: dict[str, int] = {}
    for one in states:
        member = members.get(one.node.name)
        if member is None or not member.is_ready or member.provider_id != pool.provider_id(one.node.vm_uuid):
            continue
        for resource, amount in _amounts(member).items():
            least[resource] = min(amount, least.get(resource, amount))
    if not least:
        return
    with services.store.reading() as session:
        is_known = session.least_allocatable(pool.tenant, pool.name) == least
    if not is_known:
        with services.store.transaction() as session:
            session.note_least_allocatable(pool, least)


def _amounts(member: ClusterMember) -> dict[str, int]:
    """The amounts of a node that can be read and are not 0."""
    found = {}
    for resource, per_unit in _UNITS.items():
        try:
            amount = quantity(member.allocatable.get(resource, "0"), per_unit, up=False)
        except ObjectError:
            continue
        if amount:
            found[resource] = amount
    return found


_HOST_DIED = "its host died"
_POWERED_DOWN = "Slurm has powered it down"
_CLUSTER_S = 60.0
"""For everything that one round asks the cluster of one pool."""
_AT_ONCE = 32
_host_work = threading.Lock()
"""One VM is deleted at a time, as by every other part of the controller."""
_FIRST_PAUSE_S = 60.0
_LONGEST_PAUSE_S = 3600.0


@dataclass(frozen=True)
class Settled:
    """One thing that was done for a node, or tried."""

    name: str
    outcome: str


def settle_nodes(
    services: Services, *, shutdown_timeout_s: float, stop: threading.Event | None = None
) -> list[Settled]:
    """One round over all pools, side by side. stop: set, it ends the round after the nodes in progress."""
    with services.store.reading() as session:
        pools = {pool.printed_name: pool for pool in session.node_pools()}

    def settle(label: str) -> list[Settled]:
        return settle_pool(services, pools[label], shutdown_timeout_s=shutdown_timeout_s, stop=stop)

    if len(pools) == 1:  # in this thread, so that an interrupt ends it where it is
        return settle(*pools)
    results = run_on_hosts(list(pools), settle, forks=_AT_ONCE)
    return [
        one
        for result in results
        for one in (result.value or ([] if result.error is None else [_failed(result.name, result.error)]))
    ]


def settle_pool(
    services: Services,
    pool: NodePool,
    *,
    shutdown_timeout_s: float,
    is_final: bool = False,
    stop: threading.Event | None = None,
) -> list[Settled]:
    """One round over the nodes of one pool. is_final: a cluster that does not answer keeps no node that leaves."""
    done: list[Settled] = []
    try:
        done.extend(_settle(services, pool, shutdown_timeout_s, is_final, stop or threading.Event()))
    except VgpuctlError as error:
        done.append(_failed(pool.printed_name, error))
    return done


def _failed(label: str, error: VgpuctlError) -> Settled:
    return Settled(label, f"failed: {error.message}")


def _settle(
    services: Services, pool: NodePool, shutdown_timeout_s: float, is_final: bool, stop: threading.Event
) -> Iterator[Settled]:
    with services.store.reading() as session:
        states = node_states(session, session.nodes(pool.tenant, pool.name))
    link: ClusterLink | None = None
    members, cordons = None, Cordons(services)
    if states:
        try:
            link = services.cluster_link(pool)
            link = None if link is None else TimedLink(link, _CLUSTER_S)
            members = None if link is None else {one.name: one for one in link.members()}
            note_amounts(services, pool, states, members or {})
        except ClusterError as error:
            yield Settled(pool.printed_name, f"its cluster is not known now: {error.message}")
    for one in states:
        if stop.is_set():
            return
        try:
            if one.state is NodeState.LEAVING:
                yield from _leave(services, pool, one, link, shutdown_timeout_s, is_final)
            elif one.vm is None:
                yield from _wait(services, pool, one, link)
            elif one.vm.state is VmState.RUNNING:
                yield from _see(services, pool, one, link, members, cordons)
            elif (reason := _never_returns(services, one.vm)) is not None:
                let_go(services, pool, [one.node.name], reason=reason, is_drained=True)
                yield Settled(one.node.printed_name, reason)
        except ConcurrentChange:
            continue
        except VgpuctlError as error:
            yield _failed(one.node.printed_name, error)
    yield from _keep_minimum(services, pool)


def _never_returns(services: Services, vm: Vm) -> str | None:
    """Say why nobody starts the stopped VM of a node again; None where somebody may."""
    if is_lost(vm):
        return _HOST_DIED
    if is_preempted(vm):
        with services.store.reading() as session:
            if session.queued(vm.request.tenant, vm.request.name) is None:
                return vm.problem
    return None


def _leave(
    services: Services,
    pool: NodePool,
    one: NodeStatus,
    link: ClusterLink | None,
    shutdown_timeout_s: float,
    is_final: bool,
) -> Iterator[Settled]:
    """Drain a node that was let go, delete its VM, and forget it in its cluster and here.

    A cluster that does not answer is asked again until the time to drain is over.
    """
    node = one.node
    if one.vm is not None:
        if one.vm.state is VmState.RUNNING and not node.is_drained:
            left = _drain(services, pool, node, link)
            if left is not None:
                yield Settled(node.printed_name, f"drains: {left}")
                return
        with _host_work:
            delete_vm(services, one.vm, timeout_s=shutdown_timeout_s, drain_s=0)
    else:
        with services.store.transaction() as session:
            if not take_out_of_queue(session, node, node.leave_reason or ""):
                return
    if link is not None:
        try:
            link.forget(node.name, pool.provider_id(node.vm_uuid))
        except ClusterError as error:
            if not is_final and not _is_over(services, pool, node):
                raise
            yield Settled(node.printed_name, f"its cluster may still list it: {error.message}")
    with services.store.transaction() as session:
        forget(session, pool, node)
    yield Settled(node.printed_name, "deleted")


def _is_over(services: Services, pool: NodePool, node: Node) -> bool:
    """True if the time in which a node that leaves may be drained is over."""
    return node.leaving_at is not None and services.store.now() >= node.leaving_at + pool.drain_s


def _drain(services: Services, pool: NodePool, node: Node, link: ClusterLink | None) -> str | None:
    """Ask the work on a node to leave. Returns what is still there; None when its VM may be deleted."""
    left: Sequence[str] = ()
    if link is not None and node.joined_at is not None:
        left = LeavingNode(services, pool, node, link, "it is let go", node.leave_reason or "").ask()
    if left and not _is_over(services, pool, node):
        return named(left)
    with services.store.transaction() as session:
        session.note_node_leaving(replace(node, is_drained=True))
        note_drained(session, node, pool.drain_s, left)
    return None


def _has_nothing(services: Services, node: Node) -> bool:
    """True if a node has neither a VM nor an entry of the queue now. Another VM of its name may have been adopted."""
    with services.store.reading() as session:
        vm = session.vm(node.tenant, node.name)
        return session.queued(node.tenant, node.name) is None and (vm is None or vm.uuid != node.vm_uuid)


def _wait(services: Services, pool: NodePool, one: NodeStatus, link: ClusterLink | None) -> Iterator[Settled]:
    """A wanted node without a VM: forget it where its VM was deleted, and tell Slurm when it cannot be made."""
    node = one.node
    if not one.is_queued and _has_nothing(services, node):
        with services.store.transaction() as session:
            forget(session, pool, replace(node, leave_reason="its VM was deleted, or left the queue"))
        if link is not None:
            link.forget(node.name, pool.provider_id(node.vm_uuid))
        yield Settled(node.printed_name, "its VM is gone")
    elif not pool.role.is_kubernetes and link is not None and (reason := _refusal(services, pool, one)) is not None:
        link.refuse(node.name, f"vgpuctl: {reason}")
        with services.store.transaction() as session:
            session.add_event(EventKind.NODE_REFUSED, node.printed_name, reason, tenant=node.tenant)
            let_go_in(session, pool, [node.name], reason=f"it cannot be made: {reason}", is_drained=True)
        yield Settled(node.printed_name, f"refused: {reason}")


def _refusal(services: Services, pool: NodePool, one: NodeStatus) -> str | None:
    """Why the VM of a waiting node is not made; None while it may be. Secrets that have expired need no attempt."""
    if one.refusal is not None:
        return one.reason
    try:
        refuse_to_join(pool, services.store.now())
    except StateError as error:
        return error.message
    return None


def _see(
    services: Services,
    pool: NodePool,
    one: NodeStatus,
    link: ClusterLink | None,
    members: dict[str, ClusterMember] | None,
    cordons: Cordons,
) -> Iterator[Settled]:
    """Note what its cluster says of a node whose VM runs, and its cordon; one that did not join in time is let go."""
    node, now = one.node, services.store.now()
    if node.running_at is None:
        node = replace(node, running_at=now)
        with services.store.transaction() as session:
            session.note_node_seen(node)
    if members is None:
        return
    member = members.get(node.name)
    if member is not None and pool.role.is_kubernetes and member.provider_id != pool.provider_id(node.vm_uuid):
        member = None
    if member is not None and member.is_off:
        if node.joined_at is not None:  # SuspendProgram could not tell us
            let_go(services, pool, [node.name], reason=_POWERED_DOWN, is_drained=True)
            yield Settled(node.printed_name, _POWERED_DOWN)
            return
        member = None
    if member is None and node.joined_at is None:
        assert node.running_at is not None
        if now - node.running_at >= pool.join_timeout_s:
            yield _never_joined(services, pool, node)
        return
    if member is not None and node.joined_at is None and not pool.role.is_kubernetes and not member.is_ready:
        return
    is_ready = member is not None and member.is_ready and not member.is_cordoned
    seen = replace(node, joined_at=node.joined_at or now, is_ready=is_ready, seen_at=now)
    with services.store.transaction() as session:
        session.note_node_seen(seen)
        if node.joined_at is None:
            session.add_event(EventKind.NODE_JOINED, node.printed_name, f"cluster {pool.cluster}", tenant=node.tenant)
            if session.never_joined(pool)[0]:
                session.note_never_joined(pool, 0)
        elif node.is_ready != is_ready:
            kind = EventKind.NODE_READY if is_ready else EventKind.NODE_NOT_READY
            session.add_event(kind, node.printed_name, "" if member is None else member.reason, tenant=node.tenant)
    if node.joined_at is None:
        yield Settled(node.printed_name, "joined its cluster")
    if member is not None and link is not None and one.vm is not None:
        outcome = cordons.settle(pool, node, one.vm, link, member)
        if outcome is not None:
            yield Settled(node.printed_name, outcome)
        relabelled = relabel_moved(services, pool, node, one.vm, link, member)
        if relabelled is not None:
            yield Settled(node.printed_name, relabelled)


def _never_joined(services: Services, pool: NodePool, node: Node) -> Settled:
    reason = f"it did not join cluster {pool.cluster} within {format_duration(pool.join_timeout_s)}"
    with services.store.transaction() as session:
        count = session.never_joined(pool)[0] + 1
        session.note_never_joined(pool, count)
        session.add_event(
            EventKind.NODE_NEVER_JOINED, node.printed_name, reason, tenant=node.tenant, after={"count": count}
        )
    let_go(services, pool, [node.name], reason=reason, is_drained=True)
    return Settled(node.printed_name, reason)


def _keep_minimum(services: Services, pool: NodePool) -> Iterator[Settled]:
    """Want the nodes that the minimum of a pool lacks; later and later while its nodes never join."""
    with services.store.transaction() as session:
        living = [one for one in session.nodes(pool.tenant, pool.name) if is_wanted(one)]
        missing = pool.minimum - len(living)
        if missing <= 0:
            return
        count, last = session.never_joined(pool)
        if last is not None and session.now() < last + min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(count, 10)):
            return
        wanted = want_more_in(session, pool, missing, reason=f"the minimum of {pool.minimum}")
    for name in wanted.new:
        yield Settled(f"{pool.tenant}/{name}", "wanted")
