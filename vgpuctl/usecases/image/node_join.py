# SPDX-License-Identifier: Apache-2.0
"""The join files of a node on their way into its seed. No VM's row, queue entry or answer has their secrets."""

from collections.abc import Sequence

from vgpuctl.errors import InventoryError
from vgpuctl.model.constraints import Label
from vgpuctl.model.lease import without_leaving
from vgpuctl.model.node_pool import NodePool
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.node_config.join.files import Joining
from vgpuctl.node_config.join.setup import (
    NodeSetup,
    has_join,
    node_setup,
    refuse_to_join,
    write_for_guest,
)
from vgpuctl.node_config.labels import NodePlace, node_labels
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services


def join_of(services: Services, vm: Vm) -> NodeSetup | None:
    """How the VM joins its cluster, with the secrets; None for a VM outside of pools, or that joins by other means.

    Raises StoreUnusable when the secrets are sealed with another key, StateError for a pool without all that is needed.
    """
    with services.store.reading() as session:
        node = session.node_of_vm(vm.uuid)
        if node is None:
            return None
        pool = session.node_pool(node.tenant, node.pool)
        if not has_join(pool):
            return None
        pool = session.with_pool_secrets(pool)
        place = place_of(services, session, vm)
    return node_setup(Joining(pool, node.name, node.vm_uuid, node_labels(pool, place)), write_for_guest)


def place_of(services: Services, session: Session, vm: Vm) -> NodePlace:
    """Where a VM is, by the inventory, the facts of its host as last read, and its leases."""
    known = session.all_facts().get(vm.host)
    leases = without_leaving(session.leases(vm_uuid=vm.uuid, host=vm.host))
    shares = tuple(lease.share for lease in leases)
    return NodePlace(vm.host, _labels_of(services, vm.host), None if known is None else known.facts, shares)


def refuse_unjoinable(session: Session, requests: Sequence[VmRequest]) -> None:
    """Raise StateError before a VM is made for a node that could not join: incomplete secrets, an expired token."""
    for pool in _pools_of(session, requests):
        refuse_to_join(pool, session.now())


def _pools_of(session: Session, requests: Sequence[VmRequest]) -> list[NodePool]:
    nodes = [session.node(one.tenant, one.name) for one in requests]
    return [session.node_pool(one.tenant, one.pool) for one in nodes if one is not None]


def _labels_of(services: Services, host: str) -> frozenset[Label]:
    try:
        return services.inventory.constraints(host).labels
    except InventoryError:
        return frozenset()
