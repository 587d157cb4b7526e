# SPDX-License-Identifier: Apache-2.0
"""serve autoscaler: a tenant's node pools as the node groups of its cluster-autoscaler.

Every call reads or writes the store and contacts no host and no cluster: what it changes is in the store before it
returns, and the controller carries it out. Nodes are told apart by their provider id alone, since the autoscaler
invents names for those that its cluster does not have (reference clusters, 1.6).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from vgpuctl.errors import NotFound, UsageError
from vgpuctl.model.node_pool import Node, NodePool, NodeState
from vgpuctl.model.plural import counted
from vgpuctl.model.printable import printable
from vgpuctl.node_config.template import TemplateNode, template_node
from vgpuctl.store.store import Session
from vgpuctl.usecases.node.wanted_nodes import drop_waiting, is_wanted, let_go_in, want_more
from vgpuctl.usecases.observed.node_states import NodeStatus, node_states
from vgpuctl.usecases.running.services import Services

_PROVIDER_ID = re.compile(r"vgpuctl://(?P<zone>[^/]{1,253})/(?P<tenant>[^/]{1,253})/(?P<uuid>[0-9a-f-]{36})")
_LONGEST_REASON = 1024
_OUT_OF_ROOM = {
    "no-capacity": "NoVgpuCapacity",
    "preemption-needed": "PreemptionNeeded",
    "no-licence": "NoLicence",
    "quota-exceeded": "QuotaExceeded",
}


class InstanceState(IntEnum):
    """Of the provider's protocol (kubernetes/autoscaler, cloudprovider/cloud_provider.go)."""

    RUNNING = 1
    CREATING = 2
    DELETING = 3


class InstanceErrorClass(IntEnum):
    """Of the same. The autoscaler tries another group for both."""

    OUT_OF_RESOURCES = 1
    OTHER = 99


@dataclass(frozen=True)
class GroupInstance:
    """A node as the autoscaler lists it. code: of the error for which it is not made, "" for none."""

    provider_id: str
    state: InstanceState
    code: str = ""
    reason: str = ""
    error_class: InstanceErrorClass = InstanceErrorClass.OTHER


class NodeGroups:
    """The Kubernetes pools of one cluster of a tenant. Each method is one call of the autoscaler."""

    def __init__(self, services: Services, tenant: str, cluster: str) -> None:
        """Raises NotFound for the tenant, and for a cluster without a pool of a Kubernetes role."""
        self._services = services
        self._tenant = tenant
        self._cluster = cluster
        if not self.pools():
            raise NotFound(
                f"tenant {tenant} has no node pool for Kubernetes in cluster {cluster}",
                hint=f"create one: vgpuctl create-node-pool {tenant}/NAME --cluster {cluster} --role k3s --max NUMBER",
            )

    def pools(self) -> list[NodePool]:
        """The pools that are node groups now, by name. Raises NotFound when the tenant is gone."""
        with self._services.store.reading() as session:
            return self._pools_in(session)

    def refresh(self) -> None:
        """Read the store once. Raises what keeps it from being read."""
        self.pools()

    def pool_of(self, provider_id: str) -> NodePool | None:
        """The pool of a node, None for a node of another. A foreign id costs no read of the store."""
        found = _PROVIDER_ID.fullmatch(provider_id)
        if found is None or found["tenant"] != self._tenant:
            return None
        with self._services.store.reading() as session:
            node = session.node_of_vm(found["uuid"])
            pools = [] if node is None else self._pools_in(session)
        if node is None or node.tenant != self._tenant:
            return None
        pool = next((one for one in pools if one.name == node.pool), None)
        return pool if pool is not None and pool.provider_id(node.vm_uuid) == provider_id else None

    def target_size(self, group: str) -> int:
        """How many nodes of a group are wanted. Raises NotFound for the group."""
        with self._services.store.reading() as session:
            pool = self._group_in(session, group)
            return sum(map(is_wanted, session.nodes(pool.tenant, pool.name)))

    def increase(self, group: str, delta: int) -> None:
        """Want so many more nodes, all of them or none. Raises UsageError, NotFound, StateError beyond the maximum."""
        if delta <= 0:
            raise UsageError(f"group {printable(group)}: {delta} is no number of nodes to add", hint="at least 1")
        want_more(self._services, self._group(group), delta, reason="the autoscaler wants it")

    def decrease(self, group: str, delta: int) -> None:
        """Drop wanted nodes that have no VM yet, all of them or none. delta: below 0.

        Raises UsageError, NotFound, StateError when fewer have no VM.
        """
        if delta >= 0:
            raise UsageError(f"group {printable(group)}: {delta} is no number of nodes to drop", hint="below 0")
        drop_waiting(self._services, self._group(group), -delta, reason="the autoscaler wants fewer")

    def delete(self, group: str, provider_ids: Sequence[str]) -> None:
        """Let exactly these nodes go, all of them or none; the autoscaler has drained them.

        One that leaves or is gone stays so, and lowers the target no second time. Raises UsageError for the id
        of another group's node, NotFound for the group.
        """
        with self._services.store.transaction() as session:
            pool = self._group_in(session, group)
            there = {pool.provider_id(one.vm_uuid): one for one in session.nodes(pool.tenant, pool.name)}
            foreign = [one for one in provider_ids if one not in there and not _is_gone(session, pool, one)]
            if foreign:
                shown = ", ".join(printable(one[:80]) or "a node without a provider id" for one in foreign[:5])
                raise UsageError(
                    f"group {pool.group_id}: {counted(len(foreign), 'node')} of others: {shown}",
                    hint="nothing was deleted; a node needs the provider id that its VM was made with",
                )
            named = [there[one] for one in dict.fromkeys(provider_ids) if one in there]
            # A node that was wanted again while it left has a new VM to come, which nobody named here.
            names = [one.name for one in named if not one.wanted_again]
            let_go_in(session, pool, names, reason="the autoscaler deletes it", is_drained=True)

    def instances(self, group: str) -> list[GroupInstance]:
        """The nodes of a group, those that leave too. Raises NotFound for the group.

        The autoscaler deletes what has an error, also below the minimum. The controller would make those nodes again
        and again, so of the failed ones as many have none as the minimum needs, the oldest.
        """
        with self._services.store.reading() as session:
            pool = self._group_in(session, group)
            states = node_states(session, session.nodes(pool.tenant, pool.name))
        spare = sum(is_wanted(one.node) for one in states) - pool.minimum
        found = {one.node.name: _instance(pool, one) for one in states}
        failed = [one.node for one in states if found[one.node.name].code]
        failed.sort(key=lambda node: (node.wanted_at, node.name))
        for node in failed[: max(0, len(failed) - max(0, spare))]:
            found[node.name] = GroupInstance(found[node.name].provider_id, InstanceState.CREATING)
        return list(found.values())

    def template(self, group: str) -> TemplateNode:
        """The template of a group's nodes. Raises NotFound for the group."""
        with self._services.store.reading() as session:
            pool = self._group_in(session, group)
            return template_node(pool, session.least_allocatable(pool.tenant, pool.name))

    def gpu_types(self) -> list[str]:
        """The GPUs that the groups ask for, by name."""
        return sorted({gpu.text_of_one for pool in self.pools() for gpu in pool.request.gpus})

    def _group(self, group: str) -> NodePool:
        with self._services.store.reading() as session:
            return self._group_in(session, group)

    def _group_in(self, session: Session, group: str) -> NodePool:
        for pool in self._pools_in(session):
            if pool.group_id == group:
                return pool
        raise NotFound(
            f"tenant {self._tenant} has no node group {printable(group[:120])!r} in cluster {self._cluster}",
            hint="the pool was deleted, or it is another cluster's",
        )

    def _pools_in(self, session: Session) -> list[NodePool]:
        session.tenant(self._tenant)
        pools = session.node_pools(self._tenant)
        return [one for one in pools if one.cluster == self._cluster and one.role.is_kubernetes]


def _is_gone(session: Session, pool: NodePool, provider_id: str) -> bool:
    """True for an id as the nodes of a pool have it that belongs to no node and no VM: it was deleted."""
    found = _PROVIDER_ID.fullmatch(provider_id)
    if found is None or provider_id != pool.provider_id(found["uuid"]) or session.node_of_vm(found["uuid"]) is not None:
        return False
    return all(vm.uuid != found["uuid"] for vm in session.vms())


def _instance(pool: NodePool, one: NodeStatus) -> GroupInstance:
    node: Node = one.node
    provider_id = pool.provider_id(node.vm_uuid)
    if one.state is NodeState.LEAVING:
        return GroupInstance(provider_id, InstanceState.DELETING)
    is_made = one.state not in (NodeState.WAITING, NodeState.CREATING)
    if is_made and (one.refusal is None or node.joined_at is not None):
        return GroupInstance(provider_id, InstanceState.RUNNING)
    if one.refusal is None:
        return GroupInstance(provider_id, InstanceState.CREATING)
    code = _OUT_OF_ROOM.get(one.refusal)
    return GroupInstance(
        provider_id,
        InstanceState.CREATING,
        code or "".join(word.capitalize() for word in one.refusal.split("-")),
        printable(one.reason[:_LONGEST_REASON]),
        InstanceErrorClass.OTHER if code is None else InstanceErrorClass.OUT_OF_RESOURCES,
    )
