# SPDX-License-Identifier: Apache-2.0
"""The nodes of pools as the store knows them: their state, their VM, and why they wait."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.model.node_pool import Node, NodeState
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.store.store import Session


@dataclass(frozen=True)
class NodeStatus:
    """A node as it is. reason: why it is not ready; "" where nothing keeps it.

    refusal: the reference of the error for which its VM is not made (docs/errors.md); None where none was met.
    is_queued: its VM waits in the queue.
    """

    node: Node
    state: NodeState
    vm: Vm | None = None
    reason: str = ""
    refusal: str | None = None
    is_queued: bool = False


@dataclass(frozen=True)
class Membership:
    """The pool and the cluster of a VM that is a node; both None for any other VM."""

    node_pool: str | None = None
    cluster: str | None = None


NO_NODE = Membership()


class Memberships:
    """The pools of all nodes of the store, by VM and by the name under which a node waits in the queue."""

    def __init__(self, session: Session, tenant: str | None = None) -> None:
        clusters = {(pool.tenant, pool.name): pool.cluster for pool in session.node_pools(tenant)}
        found = [
            (node, Membership(node.pool, clusters.get((node.tenant, node.pool)))) for node in session.nodes(tenant)
        ]
        self._by_vm = {node.vm_uuid: one for node, one in found}
        self._by_name = {(node.tenant, node.name): one for node, one in found}

    def of_vm(self, vm_uuid: str) -> Membership:
        """The pool and cluster of a VM."""
        return self._by_vm.get(vm_uuid, NO_NODE)

    def of_name(self, tenant: str, name: str) -> Membership:
        """The pool and cluster of a VM that may not be there yet."""
        return self._by_name.get((tenant, name), NO_NODE)


def node_states(session: Session, nodes: Sequence[Node]) -> list[NodeStatus]:
    """The state of each of these nodes, in their order."""
    if not nodes:
        return []
    vms = {vm.uuid: vm for vm in session.vms()}
    entries = {(one.tenant, one.name): entry for entry in session.queue() for one in entry.requests}
    return [_state(node, vms.get(node.vm_uuid), entries.get((node.tenant, node.name))) for node in nodes]


def _state(node: Node, vm: Vm | None, entry: QueueEntry | None) -> NodeStatus:
    if node.is_leaving:
        return NodeStatus(node, NodeState.LEAVING, vm, node.leave_reason or "")
    if vm is None:
        if entry is None:
            return NodeStatus(node, NodeState.WAITING, None, "its VM is gone")
        return NodeStatus(node, NodeState.WAITING, None, entry.reason or "", entry.refusal, is_queued=True)
    if vm.state is VmState.CREATING or vm.is_on_its_way:
        return NodeStatus(node, NodeState.CREATING, vm, vm.problem or "")
    if vm.state is not VmState.RUNNING:
        reason = (vm.problem or str(vm.state)) + (f"; {entry.reason}" if entry is not None and entry.reason else "")
        return NodeStatus(node, NodeState.STOPPED, vm, reason, None if entry is None else entry.refusal)
    if node.joined_at is None:
        return NodeStatus(node, NodeState.JOINING, vm, "its cluster does not have it yet")
    if node.is_ready:
        return NodeStatus(node, NodeState.READY, vm)
    return NodeStatus(node, NodeState.NOT_READY, vm, "it does not answer its cluster, or takes no work")
