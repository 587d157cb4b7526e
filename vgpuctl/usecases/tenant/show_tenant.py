# SPDX-License-Identifier: Apache-2.0
"""show-tenant: a tenant with its quotas, VMs, queue, reservations, networks, node pools and licences."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.model.licence import Edition
from vgpuctl.model.natural_order import natural
from vgpuctl.model.network import Backend, NetworkState
from vgpuctl.model.node_pool import NodeState
from vgpuctl.model.qualified_name import split_name
from vgpuctl.model.reservation import Reservation
from vgpuctl.usecases.licence.list_licence_pools import list_licence_pools
from vgpuctl.usecases.network.list_networks import list_networks
from vgpuctl.usecases.node.list_node_pools import list_node_pools
from vgpuctl.usecases.placement.queue import Waiting, list_queue
from vgpuctl.usecases.placement.shown_reservations import list_reservations
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.tenant.list_tenants import ListedTenant, list_tenants
from vgpuctl.usecases.vm.list_vms import list_with_queued


@dataclass(frozen=True)
class NetworkOfTenant:
    """A network. free: addresses that nobody holds."""

    name: str
    cidr: str | None
    backend: Backend
    state: NetworkState
    free: int
    cidr6: str | None = None


@dataclass(frozen=True)
class NodePoolOfTenant:
    """A pool of nodes. size: nodes that are wanted. states: how many nodes are in each state."""

    name: str
    cluster: str
    size: int
    minimum: int
    maximum: int
    states: Mapping[NodeState, int]


@dataclass(frozen=True)
class LicencesOfTenant:
    """Seats that a tenant's VMs have in a licence pool, and VMs of its queue that need one."""

    pool: str
    edition: Edition
    seats: int
    waiting: tuple[str, ...]


@dataclass(frozen=True)
class ShownTenant:
    """A tenant. vm_states: how many VMs are in each state, `queued` too. queue: its entries at their positions.

    reservations: those that are not over, by their next window.
    """

    tenant: ListedTenant
    vm_states: Mapping[str, int]
    queue: tuple[Waiting, ...]
    reservations: tuple[Reservation, ...]
    networks: tuple[NetworkOfTenant, ...]
    node_pools: tuple[NodePoolOfTenant, ...]
    licences: tuple[LicencesOfTenant, ...]


def show_tenant(services: Services, name: str, *, has_inventory: bool) -> ShownTenant:
    """Everything that the store has of a tenant, as the lists compute it. No host is contacted.

    has_inventory: True if the inventory counts for the expected start of queued VMs, as in `list_queue`.
    Raises NotFound.
    """
    (listed,) = list_tenants(services, [name])
    vms = list_with_queued(services, tenant=name, host=None)
    _settings, queue = list_queue(services, has_inventory=has_inventory, tenant=name)
    return ShownTenant(
        listed,
        dict(sorted(Counter(one.word for one in vms).items())),
        tuple(queue),
        tuple(list_reservations(services, tenant=name, past=False)),
        _networks(services, name),
        _node_pools(services, name),
        _licences(services, name),
    )


def _networks(services: Services, name: str) -> tuple[NetworkOfTenant, ...]:
    return tuple(
        NetworkOfTenant(request.name, request.cidr, request.backend, one.network.state, one.free, request.cidr6)
        for one in sorted(list_networks(services, tenant=name), key=lambda one: natural(one.network.request.name))
        for request in [one.network.request]
    )


def _node_pools(services: Services, name: str) -> tuple[NodePoolOfTenant, ...]:
    return tuple(
        NodePoolOfTenant(pool.name, pool.cluster, one.size, pool.minimum, pool.maximum, one.counts)
        for one in sorted(list_node_pools(services, name), key=lambda one: natural(one.pool.name))
        for pool in [one.pool]
    )


def _licences(services: Services, name: str) -> tuple[LicencesOfTenant, ...]:
    found: list[LicencesOfTenant] = []
    for one in list_licence_pools(services):
        seats = one.tenants.get(name, 0)
        waiting = _of_tenant(one.waiting, name)
        if seats or waiting:
            found.append(LicencesOfTenant(one.pool.name, one.pool.edition, seats, waiting))
    return tuple(found)


def _of_tenant(labels: Sequence[str], tenant: str) -> tuple[str, ...]:
    return tuple(label for label in labels if split_name(label)[0] == tenant)
