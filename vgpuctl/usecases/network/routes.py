# SPDX-License-Identifier: Apache-2.0
"""Refuse static routes that would take addresses of others, and those that lead to no next hop of the tenant."""

import ipaddress
from collections.abc import Iterable

from vgpuctl.errors import NetworkInUse, NotFound, UsageError
from vgpuctl.model.network import AddressKind, Network, Subnet, is_address, is_ipv6, overlap
from vgpuctl.model.vpc import DISCARD, DirectConnect, ExternalNetwork, Gateway, PeeringSpec, Route
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.vpc import carried

_HELD = {
    AddressKind.GATEWAY: "the tenant's router itself",
    AddressKind.MONITOR: "the address that OVN's health checks ask from",
    AddressKind.BALANCER: "a load balancer's",
    AddressKind.FUNCTION: "a network function's",
}


def refuse_unfit_routes(session: Session, tenant: str, *, external: ExternalNetwork | None = None) -> None:
    """Refuse what makes a route of the tenant unfit: a network, a gateway, a peering or an external network.

    external: as it is to be. Raises as refuse_unfit_route.
    """
    for route in session.vpc_objects(tenant, Route):
        refuse_unfit_route(session, tenant, route, external=external)


def refuse_unfit_route(session: Session, tenant: str, route: Route, *, external: ExternalNetwork | None = None) -> None:
    """Raise NetworkInUse for a prefix that is another's, UsageError or NotFound for a next hop that is none.

    A VM that does not exist yet is no error: its route drops packets until then, and says so.
    """
    label = f"route {route.prefix} of tenant {tenant}"
    networks = carried(session, tenant)
    prefix = ipaddress.ip_network(route.prefix)
    for network in networks:
        if any(_is_within(prefix, one) for one in network.subnets):
            raise NetworkInUse(
                f"{label} is within its own network {network.request.name} ({network.request.cidrs})",
                hint="the router delivers there itself: choose a prefix outside the tenant's networks",
            )
    _refuse_outside(session, tenant, route, label, external)
    _refuse_peers(session, tenant, route, label)
    _refuse_vpns(session, tenant, route, label)
    for hop in route.next_hops:
        if hop != DISCARD and hop not in route.addresses:
            _refuse_network(session, tenant, hop, label)
    for address in route.addresses:
        _refuse_address(session, tenant, address, label, networks)


def _refuse_outside(session: Session, tenant: str, route: Route, label: str, external: ExternalNetwork | None) -> None:
    prefix = ipaddress.ip_network(route.prefix)
    for gateway in session.vpc_objects(tenant, Gateway):
        there = session.external_network(gateway.external_network)
        outside = external if external is not None and external.name == there.name else there
        is_given = not is_ipv6(route.prefix) or outside.gateway6 is not None
        if route.is_default and is_given:
            raise NetworkInUse(
                f"{label} would replace the default route of the tenant's gateway to {outside.name}",
                hint="delete the gateway first, or route narrower prefixes",
            )
        if route.is_default:
            continue
        for what, others in (
            ("the external network", outside.subnets),
            ("a management network of", _networks(outside.management)),
            ("a prefix that is routed to tenants by", _networks(outside.routed6)),
        ):
            for one in others:
                if overlap([prefix], [one]):
                    raise NetworkInUse(
                        f"{label} overlaps with {one}, {what} {outside.name}",
                        hint="these addresses are the provider's or other tenants': choose another prefix",
                    )


def _refuse_peers(session: Session, tenant: str, route: Route, label: str) -> None:
    named = {spec.tenant for spec in session.vpc_objects(tenant, PeeringSpec)}
    for neighbour in () if route.is_default else sorted(named | set(session.tenants_with_peer(tenant))):
        for network in carried(session, neighbour):
            if not network.request.isolated and overlap([ipaddress.ip_network(route.prefix)], network.subnets):
                raise NetworkInUse(
                    f"{label} overlaps with {network.printed_name} ({network.request.cidrs}) of a peered tenant",
                    hint="the peering routes there: choose another prefix, or delete the peering",
                )


def _refuse_vpns(session: Session, tenant: str, route: Route, label: str) -> None:
    for vpn in () if route.is_default else session.vpc_objects(tenant, VpnConnection):
        if overlap([ipaddress.ip_network(route.prefix)], vpn.subnets):
            raise NetworkInUse(
                f"{label} overlaps with {', '.join(vpn.prefixes)} of VPN connection {vpn.name}",
                hint="the tunnel has these addresses: choose another prefix, or take it out of the VPN connection",
            )


def _refuse_network(session: Session, tenant: str, hop: str, label: str) -> None:
    vm, at, name = hop.partition("@")
    if not at:
        return
    network = session.network(tenant, name)
    if network not in carried(session, tenant) or network.request.isolated:
        why = "is isolated" if network.request.isolated else "is not carried by OVN"
        raise UsageError(
            f"{label} cannot lead to {hop}: network {name} {why}, so the tenant's router has no port there",
            hint=f"name VM {vm} in another network of the tenant",
        )


def _refuse_address(session: Session, tenant: str, address: str, label: str, networks: Iterable[Network]) -> None:
    wanted = ipaddress.ip_address(address)
    network = next((one for one in networks if any(wanted in subnet for subnet in one.subnets)), None)
    if network is None:
        raise NotFound(
            f"{label} cannot lead to {address}: the address is in no network of the tenant that OVN carries",
            hint=f"see `vgpuctl list-networks --tenant {tenant}`",
        )
    name = network.request.name
    if network.request.isolated:
        raise UsageError(
            f"{label} cannot lead to {address}: network {name} is isolated, so the tenant's router has no port there",
            hint="choose a next hop in another network",
        )
    kind = session.addresses(network.id).get(address)
    if kind in _HELD:
        raise UsageError(f"{label} cannot lead to {address}, which is {_HELD[kind]}", hint="choose another next hop")
    if kind is AddressKind.PORT:
        owner = _vm_at(session, network, address)
        raise UsageError(
            f"{label} leads to {address}, which is VM {owner}'s",
            hint=f"write {owner}, so that its port may send from the prefix: `--via {owner}`",
        )
    subnet = next(one for one in network.subnets if wanted in one)
    if wanted == subnet.network_address or (subnet.version == 4 and wanted == subnet.broadcast_address):
        raise UsageError(f"{label} cannot lead to {address}: no host can have this address", hint="give a host's")
    if all(one.network != name for one in session.vpc_objects(tenant, DirectConnect)):
        raise UsageError(
            f"{label} cannot lead to {address}: network {name} has no direct connect, so only VMs have addresses there",
            hint="write the name of a VM, or create the direct connect first with `vgpuctl create-direct-connect`",
        )


def _vm_at(session: Session, network: Network, address: str) -> str:
    names = {vm.uuid: vm.request.name for vm in session.vms(tenant=network.request.tenant)}
    owners = [port.vm_uuid for port in session.ports(network_id=network.id) if address in port.addresses]
    return names.get(owners[0], owners[0])


def _networks(texts: Iterable[str]) -> tuple[Subnet, ...]:
    return tuple(ipaddress.ip_network(one) for one in texts)


def _is_within(prefix: Subnet, network: Subnet) -> bool:
    return overlap([prefix], [network]) and prefix.prefixlen >= network.prefixlen


def is_through(network: Network, next_hops: Iterable[str]) -> bool:
    """True if one of the next hops is in the network: an address of it, or a VM that is named in it."""
    return any(_is_in(hop, network) for hop in next_hops)


def _is_in(hop: str, network: Network) -> bool:
    if hop.partition("@")[2] == network.request.name:
        return True
    return is_address(hop) and any(ipaddress.ip_address(hop) in one for one in network.subnets)
