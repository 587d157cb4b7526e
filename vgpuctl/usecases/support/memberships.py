# SPDX-License-Identifier: Apache-2.0
"""Which VMs are nodes, and of which pool and cluster."""

from dataclasses import dataclass

from vgpuctl.store.store import Session


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
