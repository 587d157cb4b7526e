# SPDX-License-Identifier: Apache-2.0
"""What no VPN connection may be: its prefixes are nobody else's where its tenant's packets go, its port is free."""

import ipaddress
from collections.abc import Iterable, Iterator

from vgpuctl.errors import NetworkInUse, UsageError
from vgpuctl.model.network import SMALLEST_MTU6, Network, Subnet, is_ipv6, overlap
from vgpuctl.model.vpc import ExternalNetwork, PeeringSpec, PortForward, PortProtocol, Route
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.model.wireguard import endpoint_address, tunnel_mtu_of
from vgpuctl.store.store import Session
from vgpuctl.usecases.network.tunnel_mtu import tunnel_mtu
from vgpuctl.usecases.network.vpc import carried

Place = tuple[str, Subnet]
"""What a network is, and the network."""


def refuse_unusable_network(vpn: VpnConnection, network: Network, external: ExternalNetwork) -> None:
    """Raise UsageError for a network, or an external one, without the IP versions of the prefixes and the endpoint."""
    if network.request.isolated:
        raise UsageError(
            f"network {network.printed_name} is isolated, so no packet of VPN connection {vpn.name} leaves it",
            hint="choose a network with a router",
        )
    inside = {subnet.version for subnet in network.subnets}
    for prefix in vpn.subnets:
        if prefix.version not in inside:
            raise UsageError(
                f"network {network.printed_name} has no IPv{prefix.version} addresses, which the other site's network"
                f" {prefix} needs",
                hint="choose a network that has them",
            )
    if vpn.endpoint is None:
        return
    version = ipaddress.ip_address(endpoint_address(vpn.endpoint)).version
    outside = {subnet.version for subnet in external.subnets}
    for versions, name in ((inside, f"network {network.printed_name}"), (outside, f"external network {external.name}")):
        if version not in versions:
            raise UsageError(
                f"{name} has no IPv{version} addresses, so it does not reach the endpoint {vpn.endpoint}",
                hint="give an endpoint of the other IP version",
            )


def refuse_vpn(session: Session, tenant: str, vpn: VpnConnection) -> None:
    """Raise NetworkInUse or UsageError for prefixes, an endpoint or a port that it cannot have."""
    prefixes = list(vpn.subnets)
    for number, prefix in enumerate(prefixes):
        if overlap((prefix,), prefixes[:number]):
            raise UsageError(
                f"{prefix} of VPN connection {vpn.name} overlaps with another of its prefixes",
                hint="give each network of the other site once",
            )
    if any(is_ipv6(one) for one in vpn.prefixes) and tunnel_mtu_of(tunnel_mtu(session)) < SMALLEST_MTU6:
        raise UsageError(
            f"VPN connection {vpn.name} is to carry IPv6, which needs packets of {SMALLEST_MTU6} bytes, and its tunnel"
            f" carries {tunnel_mtu_of(tunnel_mtu(session))}",
            hint="raise `vgpu.network.mtu` of the hosts by the difference, and run `vgpuctl apply-hosts`",
        )
    others = [one for one in session.vpc_objects(tenant, VpnConnection) if one.key != vpn.key]
    places = [*_tenants_places(session, tenant), *_provider(session.external_networks())]
    places += [(f"VPN connection {one.name}", subnet) for one in others for subnet in one.subnets]
    routes = [one for one in session.vpc_objects(tenant, Route) if not one.is_default]
    places += [(f"route {one.key}", ipaddress.ip_network(one.prefix)) for one in routes]
    _refuse_overlap(f"VPN connection {vpn.name} of tenant {tenant}", prefixes, places)
    if vpn.endpoint is not None:
        _refuse_endpoint(session, vpn)
    users = [f"VPN connection {one.name}" for one in others if one.port == vpn.port]
    users += [
        f"port forward {one.key}"
        for one in session.vpc_objects(tenant, PortForward)
        if one.protocol is PortProtocol.UDP and one.port == vpn.port
    ]
    if users:
        raise NetworkInUse(
            f"UDP port {vpn.port} of the gateway of tenant {tenant} is {users[0]}'s",
            hint="give another one with --port",
        )


def refuse_forwarded_port(session: Session, tenant: str, forward: PortForward) -> None:
    """Raise NetworkInUse for a port at which a VPN connection of the tenant listens."""
    for vpn in session.vpc_objects(tenant, VpnConnection):
        if forward.protocol is PortProtocol.UDP and forward.port == vpn.port:
            raise NetworkInUse(
                f"UDP port {forward.port} of the gateway of tenant {tenant} is VPN connection {vpn.name}'s",
                hint="forward another port",
            )


def refuse_network_of_vpn(session: Session, tenant: str, network: Network) -> None:
    """Raise NetworkInUse for a network, new to a tenant or to a peer of it, that is at the other end of its VPN."""
    for vpn in session.vpc_objects(tenant, VpnConnection):
        where = [(f"network {network.printed_name}", subnet) for subnet in network.subnets]
        _refuse_overlap(f"VPN connection {vpn.name} of tenant {tenant}", vpn.subnets, where)


def refuse_peer_of_vpn(session: Session, tenant: str, peer: str) -> None:
    """Raise NetworkInUse for a peering if networks of one are at the other end of a VPN of the other."""
    for ours, theirs in ((tenant, peer), (peer, tenant)):
        for network in carried(session, theirs):
            refuse_network_of_vpn(session, ours, network)


def refuse_provider_of_vpn(session: Session, external: ExternalNetwork) -> None:
    """Raise NetworkInUse if an external network has addresses that are at the other end of any tenant's VPN."""
    for tenant in session.tenants():
        for vpn in session.vpc_objects(tenant.name, VpnConnection):
            _refuse_overlap(f"VPN connection {vpn.name} of tenant {tenant.name}", vpn.subnets, _provider((external,)))


def _refuse_endpoint(session: Session, vpn: VpnConnection) -> None:
    """Packets to the other site must not go into its own tunnel, nor to a network that is closed to tenants."""
    assert vpn.endpoint is not None
    address = ipaddress.ip_network(endpoint_address(vpn.endpoint))
    if overlap((address,), vpn.subnets):
        raise UsageError(
            f"the endpoint {vpn.endpoint} of VPN connection {vpn.name} is in a network of the other site, so the"
            " tunnel's packets would go into the tunnel",
            hint="give the address of the other site's router to outside",
        )
    closed = [(f"a management network of {one.name}", subnet) for one, subnet in _management(session)]
    for what, subnet in closed:
        if overlap((address,), (subnet,)):
            raise UsageError(f"the endpoint {vpn.endpoint} is in {subnet}, {what}, which no tenant reaches")


def _tenants_places(session: Session, tenant: str) -> Iterator[Place]:
    """The networks of a tenant and of its peers."""
    named = {spec.tenant for spec in session.vpc_objects(tenant, PeeringSpec)}
    for one in (tenant, *sorted(named | set(session.tenants_with_peer(tenant)))):
        for network in carried(session, one):
            for subnet in network.subnets:
                yield f"network {network.printed_name}", subnet


def _provider(networks: Iterable[ExternalNetwork]) -> Iterator[Place]:
    """What is the provider's: external networks, prefixes that are routed to tenants, management networks."""
    for one in networks:
        for subnet in one.subnets:
            yield f"external network {one.name}", subnet
        for text in one.routed6:
            yield f"a prefix that external network {one.name} routes to tenants", ipaddress.ip_network(text)
        for text in one.management:
            yield f"a management network of {one.name}", ipaddress.ip_network(text)


def _management(session: Session) -> Iterator[tuple[ExternalNetwork, Subnet]]:
    for one in session.external_networks():
        for text in one.management:
            yield one, ipaddress.ip_network(text)


def _refuse_overlap(whose: str, prefixes: Iterable[Subnet], places: Iterable[Place]) -> None:
    prefixes = tuple(prefixes)
    for what, subnet in places:
        for prefix in prefixes:
            if overlap((prefix,), (subnet,)):
                raise NetworkInUse(
                    f"{prefix} of {whose} overlaps with {subnet}, {what}",
                    hint="an address is at one end of a tunnel alone: choose other networks, or delete one of the two",
                )
