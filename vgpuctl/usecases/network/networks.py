# SPDX-License-Identifier: Apache-2.0
"""create-network and delete-network: a row with the network's addresses, and the network itself in its backend."""

import ipaddress
import uuid
from dataclasses import replace

from vgpuctl.errors import NetworkDiffers, NetworkInUse, StateError, UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import SMALLEST_MTU6, Backend, Network, NetworkRequest, NetworkState, is_local6
from vgpuctl.model.plural import counted
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import DirectConnect, ExternalNetwork, Gateway, PeeringSpec, Route
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.specs.network import list_differences
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.network.list_networks import shown_network
from vgpuctl.usecases.network.network_backends import apply_network, locked, remove_network, subject_of
from vgpuctl.usecases.network.routes import is_through, refuse_unfit_routes
from vgpuctl.usecases.network.tunnel_mtu import tunnel_mtu
from vgpuctl.usecases.network.vpc import carried
from vgpuctl.usecases.network.vpc_addresses import refuse_overlapping_outside, refuse_overlapping_peers
from vgpuctl.usecases.network.vpn_refusals import refuse_network_of_vpn
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
            refuse_small_mtu(request, tunnel_mtu(session))
            external = external_of_prefix(network, session)
            session.add_network(network)
            _refuse_routes(session, network)
            if external is not None:
                session.hold_routed_prefix(external, network)
    return finish_creation(services, network), True


def _refuse_routes(session: Session, network: Network) -> None:
    """Raise NetworkInUse if a route of the tenant, or of a peer, leads elsewhere with addresses of a new network."""
    tenant = network.request.tenant
    if network.request.backend is Backend.OVN:
        named = {spec.tenant for spec in session.vpc_objects(tenant, PeeringSpec)}
        for one in sorted({tenant} | named | set(session.tenants_with_peer(tenant))):
            refuse_unfit_routes(session, one)


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
    request = network.request
    found = {"cidr": request.cidr, "cidr6": request.cidr6, "backend": str(request.backend)}
    return {name: value for name, value in found.items() if value is not None}


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
    """Raise NetworkInUse when it overlaps with one of its tenant, a peered tenant, its gateway or the same host."""
    if network.request.backend is Backend.OVN:
        tenant = network.request.tenant
        named = {spec.tenant for spec in session.vpc_objects(tenant, PeeringSpec)}
        refuse_network_of_vpn(session, tenant, network)
        for neighbour in sorted(named | set(session.tenants_with_peer(tenant))):
            refuse_overlapping_peers((network,), carried(session, neighbour))
            refuse_network_of_vpn(session, neighbour, network)
        for gateway in session.vpc_objects(tenant, Gateway):
            refuse_overlapping_outside((network,), session.external_network(gateway.external_network))
    for other in session.networks():
        if other.id == network.id or not other.overlaps(network):
            continue
        if other.request.tenant == network.request.tenant:
            raise NetworkInUse(
                f"{network.request.cidrs} overlaps with {other.request.cidrs}, "
                f"network {other.request.name} of the same tenant",
                hint="networks of one tenant are routed to one another: choose other addresses",
            )
        if network.request.host is not None and other.request.host == network.request.host:
            raise NetworkInUse(
                f"{network.request.cidrs} overlaps with a network of another tenant on host {network.request.host}",
                hint="libvirt networks of one host cannot share addresses: choose others, another host, or OVN",
            )


def refuse_small_mtu(request: NetworkRequest, mtu: int) -> None:
    """Raise UsageError for IPv6 where the hosts' tunnels are too narrow. mtu: of guests."""
    if request.cidr6 is not None and mtu < SMALLEST_MTU6:
        raise UsageError(
            f"network {request.name} is to have IPv6 addresses, which need packets of {SMALLEST_MTU6} bytes, and the"
            f" tunnels between hosts carry {mtu}",
            hint="raise `vgpu.network.mtu` of the hosts by the difference, and run `vgpuctl apply-hosts`",
        )


def external_of_prefix(network: Network, session: Session) -> ExternalNetwork | None:
    """The external network that routes the network's IPv6 addresses to tenants; None for addresses of the tenant alone.

    Raises UsageError for global addresses that no external network routes, NetworkInUse for another tenant's.
    """
    cidr6 = network.request.cidr6
    if cidr6 is None:
        return None
    external = next((one for one in session.external_networks() if one.routes(cidr6)), None)
    if external is None and not is_local6(ipaddress.IPv6Network(cidr6)):
        raise UsageError(
            f"{cidr6} is not within a prefix that an external network routes to tenants",
            hint="use unique local addresses (fd00::/8), or let the operator declare the prefix, with --routed6 of"
            " `vgpuctl create-external-network`",
        )
    if external is not None and cidr6 in session.external_addresses(external.name):
        raise NetworkInUse(
            f"{cidr6} of external network {external.name} is another network's",
            hint="a routed prefix is one network's alone: choose another /64 of the same prefix",
        )
    return external


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
                context=[f"{names.get(port.vm_uuid, port.vm_uuid)} has {', '.join(port.addresses)}" for port in ports],
                hint="delete these VMs first",
            )
        balancers, connects = session.vpc_objects(tenant, LoadBalancer), session.vpc_objects(tenant, DirectConnect)
        users = [f"load balancer {one.name}" for one in balancers if one.network == network.request.name]
        vpns = session.vpc_objects(tenant, VpnConnection)
        users += [f"VPN connection {one.name}" for one in vpns if one.network == network.request.name]
        users += ["its direct connect" for one in connects if one.network == network.request.name]
        routes = session.vpc_objects(tenant, Route)
        users += [f"route {one.prefix}" for one in routes if is_through(network, one.next_hops)]
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
        f"{shown.network.printed_name}: {shown.network.request.cidrs}, {counted(len(shown.ports), 'VM')}"
    ),
    delete=lambda services, shown: delete_network(services, shown.network),
    tells=True,
)
