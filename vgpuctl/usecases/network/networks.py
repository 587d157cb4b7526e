# SPDX-License-Identifier: Apache-2.0
"""create-network and delete-network: a row with the network's addresses, and the network itself in its backend."""

import uuid
from dataclasses import replace

from vgpuctl.errors import NetworkDiffers, NetworkInUse, StateError, UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState
from vgpuctl.model.plural import counted
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import DirectConnect, LoadBalancer, PeeringSpec
from vgpuctl.specs.network import list_differences
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.network.list_networks import shown_network
from vgpuctl.usecases.network.network_backends import apply_network, locked, remove_network, subject_of
from vgpuctl.usecases.network.vpc import carried
from vgpuctl.usecases.network.vpc_addresses import refuse_overlapping_peers
from vgpuctl.usecases.running.services import Services


def create_network(services: Services, request: NetworkRequest) -> tuple[Network, bool]:
    """Create a tenant's network, finish one that an earlier run began, or find that it is there. Returns if it changed.

    Raises NotFound (tenant), NetworkDiffers, NetworkInUse when addresses overlap, NetworkRejected.
    """
    request = complete_request(services, request)
    existing = find_existing(services, request)
    if existing is not None and existing.state is NetworkState.CREATED:
        return existing, False
    network = existing or Network(str(uuid.uuid4()), request, NetworkState.CREATING)
    if existing is None:
        _require_backend(services, request)
        with services.store.transaction() as session:
            refuse_overlap(network, session)
            session.add_network(network)
    return finish_creation(services, network), True


def _require_backend(services: Services, request: NetworkRequest) -> None:
    """Connect to the backend of a new network before its row is made.

    Raises UsageError, OvnError, HostError, GuestError.
    """
    if request.backend is Backend.OVN:
        services.require_northbound()
    else:
        assert request.host is not None
        services.require_libvirt(request.host)


def finish_creation(services: Services, network: Network) -> Network:
    """Create a network that has its row. It may run again after an interruption."""
    with locked(services, subject_of(network)):
        apply_network(services, network)
        with services.store.transaction() as session:
            session.set_network_state(network.id, NetworkState.CREATED)
            note_network(session, EventKind.NETWORK_CREATED, network, after=values_of(network))
    return replace(network, state=NetworkState.CREATED)


def note_network(
    session: Session, kind: EventKind, network: Network, *, before: Values | None = None, after: Values | None = None
) -> None:
    """Add an event of a network."""
    request = network.request
    session.add_event(kind, network.printed_name, tenant=request.tenant, host=request.host, before=before, after=after)


def values_of(network: Network) -> Values:
    """The values of a network for its events."""
    return {"cidr": network.request.cidr, "backend": str(network.request.backend)}


def complete_request(services: Services, request: NetworkRequest) -> NetworkRequest:
    """Check a request, and fill in the host from the inventory. Raises UsageError."""
    check_name(request.tenant, what="tenant")
    host = request.host
    if request.backend is Backend.OVN and host is not None:
        raise UsageError(f"network {request.name} is carried by OVN and is on every host", hint="leave --host out")
    if request.backend is Backend.LIBVIRT:
        names = services.hosts()
        if host is None and len(names) > 1:
            raise UsageError(
                f"network {request.name} needs a host: the inventory has {len(names)}",
                hint="a libvirt network is on one host: give it with --host",
            )
        host = services.host(host or names[0]).name
    return replace(request, host=host)


def find_existing(services: Services, request: NetworkRequest) -> Network | None:
    """The network of this name when it was asked for in the same way. Raises NetworkDiffers, or StateError."""
    with services.store.reading() as session:
        session.tenant(request.tenant)
        network = session.find_network(request.tenant, request.name)
    if network is None:
        return None
    differences = list_differences(network.request, request)
    if differences:
        raise NetworkDiffers(
            f"network {request.name} of tenant {request.tenant} exists with another specification",
            context=differences,
            hint="a network keeps its shape: delete it first, or choose another name",
        )
    if network.state is NetworkState.DELETING:
        raise StateError(
            f"network {request.name} of tenant {request.tenant} is being deleted",
            hint="run `vgpuctl delete-network` or `vgpuctl repair`, then this command again",
        )
    return network


def refuse_overlap(network: Network, session: Session) -> None:
    """Raise NetworkInUse when a network of the tenant, of a peered tenant, or of the same host overlaps."""
    if network.request.backend is Backend.OVN:
        tenant = network.request.tenant
        named = {spec.tenant for spec in session.vpc_objects(tenant, PeeringSpec)}
        for neighbour in sorted(named | set(session.tenants_with_peer(tenant))):
            refuse_overlapping_peers((network,), carried(session, neighbour))
    for other in session.networks():
        if other.id == network.id or not other.subnet.overlaps(network.subnet):
            continue
        if other.request.tenant == network.request.tenant:
            raise NetworkInUse(
                f"{network.request.cidr} overlaps with {other.request.cidr}, "
                f"network {other.request.name} of the same tenant",
                hint="networks of one tenant are routed to one another: choose other addresses",
            )
        if network.request.host is not None and other.request.host == network.request.host:
            raise NetworkInUse(
                f"{network.request.cidr} overlaps with a network of another tenant on host {network.request.host}",
                hint="libvirt networks of one host cannot share addresses: choose others, another host, or OVN",
            )


def delete_network(services: Services, network: Network) -> None:
    """Delete a tenant's network. After an error, the same command continues.

    Raises, with nothing done, NetworkInUse while VMs have ports in it, UsageError without an inventory or a database
    of OVN, and InventoryError for an inventory without its host.
    """
    tenant = network.request.tenant
    if network.request.host is not None:
        services.inventory.require(network.request.host)
    elif not services.has_northbound:
        services.require_northbound()
    with services.store.transaction() as session:
        names = {vm.uuid: vm.request.name for vm in session.vms(tenant=tenant)}
        ports = session.ports(network_id=network.id)
        if ports:
            raise NetworkInUse(
                f"network {network.printed_name} still has {counted(len(ports), 'VM')}",
                context=[f"{names.get(port.vm_uuid, port.vm_uuid)} has {port.address}" for port in ports],
                hint="delete these VMs first",
            )
        balancers, connects = session.vpc_objects(tenant, LoadBalancer), session.vpc_objects(tenant, DirectConnect)
        users = [f"load balancer {one.name}" for one in balancers if one.network == network.request.name]
        users += ["its direct connect" for one in connects if one.network == network.request.name]
        if users:
            raise NetworkInUse(f"network {network.printed_name} is in use", context=users, hint="delete these first")
        session.set_network_state(network.id, NetworkState.DELETING)
    finish_deletion(services, network)


def finish_deletion(services: Services, network: Network) -> None:
    """Delete a network whose row says `deleting`. It may run again after an interruption."""
    with locked(services, subject_of(network)):
        remove_network(services, network)
        with services.store.transaction() as session:
            if session.delete_network(network.id):
                note_network(session, EventKind.NETWORK_DELETED, network, before=values_of(network))
    services.say_done(network.printed_name, "deleted")


DELETION = Deletion(
    find=shown_network,
    names=lambda session, tenant: [one.request.name for one in session.networks(tenant=tenant)],
    printed=lambda shown: shown.network.printed_name,
    describe=lambda shown: (
        f"{shown.network.printed_name}: {shown.network.request.cidr}, {counted(len(shown.ports), 'VM')}"
    ),
    delete=lambda services, shown: delete_network(services, shown.network),
    tells=True,
)
