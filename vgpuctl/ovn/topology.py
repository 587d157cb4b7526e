# SPDX-License-Identifier: Apache-2.0
"""Rows of the northbound database for a tenant's VPC. Pure: equal VPCs give equal rows.

Names derive from the tenant and the ids of the store, so tenants may use the same names and addresses. Source of every
column: ovn-nb(5) of OVN 23.03.
"""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vgpuctl.model.bgp import BgpSpeaker
from vgpuctl.model.network import (
    Backend,
    Network,
    NetworkRequest,
    NetworkState,
    Subnet,
    is_ipv6,
    link_local,
    mac_address,
)
from vgpuctl.model.network_function import FunctionPlace
from vgpuctl.model.routes import foreign_sources
from vgpuctl.model.vpc import ExternalNetwork, Vpc, VpcPort, link_addresses, ovn_name
from vgpuctl.ovn.balancing import balancer_references, balancer_rows, forward_rows, router_references
from vgpuctl.ovn.gateways import chassis_rows, gateway_port
from vgpuctl.ovn.names import dhcp_search, names_port, names_references, names_rows, resolvers_of
from vgpuctl.ovn.routing import boundary_rows, route_rows
from vgpuctl.ovn.rows import Reference, Row
from vgpuctl.ovn.security import security_rows
from vgpuctl.ovn.vpn import vpn_forwards, vpn_routes

ROUTER = Reference("Logical_Router", "router")
_LEASE_S = 3600
_BURST_PART = 10  # a burst of a tenth of a second


def external_owner(name: str) -> str:
    """The owner of the rows of an external network."""
    return f"external/{name}"


def tenant_owner(name: str) -> str:
    """The owner of a tenant's rows."""
    return f"tenant/{name}"


def vpc_rows(vpc: Vpc) -> list[Row]:
    """Every row of a tenant, none when it has no network."""
    if not vpc.networks:
        return []
    forwards = [*forward_rows(vpc), *vpn_forwards(vpc)]
    rows = [*_networks(vpc), *security_rows(vpc), *balancer_rows(vpc), *forwards, *names_rows(vpc)]
    routed = [network for network in vpc.networks if not network.request.isolated]
    router_ports = [Reference("Logical_Router_Port", f"gateway/{network.id}") for network in routed]
    routes: list[Reference] = []
    nat: list[Reference] = []
    ways_out = (*_way_out(vpc, routed), *_peerings(vpc))
    outside = [str(row.columns["name"]) for row in ways_out if row.table == "Logical_Router_Port"]
    policies = list(boundary_rows(vpc, outside))
    for row in (*ways_out, *vpn_routes(vpc), *route_rows(vpc), *policies):
        rows.append(row)
        found = {"Logical_Router_Port": router_ports, "Logical_Router_Static_Route": routes, "NAT": nat}.get(row.table)
        if found is not None:
            found.append(row.reference)
    rows.append(
        Row(
            *(ROUTER.table, ROUTER.key),
            {"name": ovn_name("r", vpc.tenant), "enabled": [True]},
            {
                "ports": tuple(router_ports),
                "static_routes": tuple(routes),
                "nat": tuple(nat),
                "policies": tuple(row.reference for row in policies),
                "load_balancer": (*router_references(vpc), *(row.reference for row in forwards)),
            },
        )
    )
    return rows


def external_rows(network: ExternalNetwork) -> list[Row]:
    """The switch of the external network with its localnet port; tenants' routers add their ports."""
    localnet = Row(
        "Logical_Switch_Port",
        "localnet",
        _localnet(ovn_name("x", network.name, "localnet"), network.physical_network, network.vlan),
        parent=Reference("Logical_Switch", "switch", external_owner(network.name)),
    )
    speakers = () if network.bgp is None else network.bgp.speakers
    ports = [replace(_function_port(speaker_place(network, one)), parent=localnet.parent) for one in speakers]
    return [Row("Logical_Switch", "switch", {"name": ovn_name("x", network.name)}), localnet, *ports]


def speaker_place(network: ExternalNetwork, speaker: BgpSpeaker) -> FunctionPlace:
    """The place of a speaker of BGP: its port is in the external network itself, and has routes to nowhere else."""
    owner = external_owner(network.name)
    request = NetworkRequest(network.name, owner, network.cidr, isolated=True, backend=Backend.OVN)
    inside = Network(owner, request, NetworkState.CREATED)
    return FunctionPlace("bgp", owner, speaker.chassis, 1, inside, (speaker.address,), speaker.chassis)


def _networks(vpc: Vpc) -> Iterator[Row]:
    connects = {one.network: one for one in vpc.direct_connects}
    foreign = foreign_sources(vpc)
    for network in vpc.networks:
        members = [port for port in vpc.ports if port.port.network_id == network.id]
        own: list[Row] = [*_dhcp(vpc, network), *names_port(vpc, network)]
        own.extend(_port(network, port, foreign.get(port.port.id, ())) for port in members)
        own += [_function_port(one) for one in vpc.functions if one.network.id == network.id]
        if not network.request.isolated:
            own.extend(_gateway(vpc, network))
        if network.request.name in connects:
            connect = connects[network.request.name]
            columns = _localnet(ovn_name("l", network.id), connect.physical_network, connect.vlan)
            own.append(Row("Logical_Switch_Port", f"localnet/{network.id}", columns))
        limits = [limit for port in members for limit in _limits(port)]
        yield from own
        yield from limits
        yield Row(
            "Logical_Switch",
            f"switch/{network.id}",
            {"name": ovn_name("s", network.id)},
            {
                "ports": tuple(row.reference for row in own if row.table == "Logical_Switch_Port"),
                "qos_rules": tuple(limit.reference for limit in limits),
                "load_balancer": balancer_references(vpc),
                "dns_records": names_references(vpc, network),
            },
        )


def _port(network: Network, port: VpcPort, foreign: Sequence[str]) -> Row:
    """A VM's port. Port security drops what does not come from its own MAC and addresses, ARP and ND included.

    With an IPv6 address it also lets pass what comes from the link-local address that follows from the MAC address.
    foreign: networks that it may send from too, because routes lead to it.
    """
    own = " ".join((port.port.mac_address, *port.port.addresses))
    security = " ".join((own, *foreign))
    return Row(
        "Logical_Switch_Port",
        f"port/{port.port.id}",
        {"name": port.port.id, "addresses": [own], "port_security": [security], "enabled": [True], "type": ""},
        {
            f"dhcpv{one.version}_options": (Reference("DHCP_Options", _dhcp_key(network, one)),)
            for one in network.subnets
        },
    )


def _function_port(place: FunctionPlace) -> Row:
    """The port of a program of vgpuctl's on a host, in no security group. Only its own chassis may have it."""
    own = (place.mac, *place.addresses)
    columns: dict[str, object] = {
        "name": place.name,
        "addresses": [" ".join(own)],
        "port_security": [" ".join((*own, *place.behind))],
        "enabled": [True],
        "type": "",
        "options": {"requested-chassis": place.chassis} if place.chassis else {},
    }
    return Row("Logical_Switch_Port", f"function/{place.name}", columns)


def _limits(port: VpcPort) -> Iterator[Row]:
    if port.bandwidth_mbps is None:
        return
    rate = port.bandwidth_mbps * 1000
    for direction, side in (("from-lport", "inport"), ("to-lport", "outport")):
        yield Row(
            "QoS",
            f"limit/{port.port.id}/{direction}",
            {
                "priority": 100,
                "direction": direction,
                "match": f'{side} == "{port.port.id}"',
                "bandwidth": {"rate": rate, "burst": max(rate // _BURST_PART, 1)},
            },
        )


def _dhcp(vpc: Vpc, network: Network) -> Iterator[Row]:
    """OVN's DHCP server of each IP version. DHCPv6 names no router and no MTU: router advertisements do."""
    mac = mac_address(f"{network.id}/gateway")
    for subnet, gateway in zip(network.subnets, network.gateways, strict=True):
        is_six = is_ipv6(gateway)
        options = {"server_id": mac if is_six else gateway}
        if not is_six:
            options |= {"lease_time": str(_LEASE_S), "server_mac": mac, "mtu": str(vpc.mtu)}
            options |= dhcp_search(vpc, network)
            if not network.request.isolated:
                options["router"] = gateway
        resolvers = resolvers_of(vpc, network, is_six=is_six)
        if resolvers:
            options["dns_server"] = "{" + ", ".join(resolvers) + "}"
        yield Row("DHCP_Options", _dhcp_key(network, subnet), {"cidr": str(subnet), "options": options})


def dhcp_keys(network: Network) -> list[str]:
    """The keys of the rows of a network's DHCP servers."""
    return [_dhcp_key(network, subnet) for subnet in network.subnets]


def _dhcp_key(network: Network, subnet: Subnet) -> str:
    return f"dhcp{'' if subnet.version == 4 else subnet.version}/{network.id}"


def _gateway(vpc: Vpc, network: Network) -> Iterator[Row]:
    name = ovn_name("g", network.id)
    pairs = zip(network.subnets, network.gateways, strict=True)
    yield Row(
        "Logical_Router_Port",
        f"gateway/{network.id}",
        {
            "name": name,
            "mac": mac_address(f"{network.id}/gateway"),
            "networks": [f"{gateway}/{subnet.prefixlen}" for subnet, gateway in pairs],
            "ipv6_ra_configs": _advertisement(vpc, network),
        },
    )
    yield Row("Logical_Switch_Port", f"gateway/{network.id}", _router_port(f"{name}-port", name))


def _advertisement(vpc: Vpc, network: Network) -> dict[str, str]:
    """What OVN advertises as the network's router; nothing without IPv6. Guests get their addresses by DHCPv6."""
    if network.request.cidr6 is None:
        return {}
    said = {"address_mode": "dhcpv6_stateful", "send_periodic": "true", "mtu": str(vpc.mtu)}
    for resolver in resolvers_of(vpc, network, is_six=True)[:1]:  # OVN advertises one alone
        said["rdnss"] = resolver
    return said


def _way_out(vpc: Vpc, routed: list[Network]) -> Iterator[Row]:
    external, address = vpc.external_network, vpc.router_address
    if external is None or address is None or not routed:
        return
    name = gateway_port(vpc.tenant)
    chassis = list(chassis_rows(vpc))
    yield from chassis
    networks = [f"{address}/{ipaddress.IPv4Network(external.cidr).prefixlen}"]
    if external.cidr6 is not None and vpc.router_address6 is not None:
        networks.append(f"{vpc.router_address6}/{ipaddress.IPv6Network(external.cidr6).prefixlen}")
    yield Row(
        "Logical_Router_Port",
        "external",
        {"name": name, "mac": mac_address(f"{vpc.tenant}/external"), "networks": networks},
        {"gateway_chassis": tuple(row.reference for row in chassis)},
    )
    yield Row(
        "Logical_Switch_Port",
        "external",
        _router_port(f"{name}-port", name, **{"nat-addresses": "router"}),
        parent=Reference("Logical_Switch", "switch", external_owner(external.name)),
    )
    yield Row(
        "Logical_Router_Static_Route",
        "external",
        {"ip_prefix": "0.0.0.0/0", "nexthop": external.gateway, "output_port": [name]},
    )
    for network in routed:
        if network.request.cidr is not None:
            columns = {"type": "snat", "external_ip": address, "logical_ip": network.request.cidr}
            yield Row("NAT", f"snat/{network.id}", columns)
    for floating_ip in vpc.floating_ips:
        port = vpc.ports_by_vm.get(floating_ip.vm)
        if port is not None and not is_ipv6(port.port.address):
            columns = {"type": "dnat_and_snat", "external_ip": floating_ip.address, "logical_ip": port.port.address}
            yield Row("NAT", f"floating-ip/{floating_ip.address}", columns)
    yield from _way_out6(vpc, routed, name)


def _way_out6(vpc: Vpc, routed: list[Network], port_name: str) -> Iterator[Row]:
    """The same of IPv6. A network whose prefix is routed to the tenant has no NAT."""
    external, address = vpc.external_network, vpc.router_address6
    if external is None or external.gateway6 is None or address is None:
        return
    yield Row(
        "Logical_Router_Static_Route",
        "external6",
        {"ip_prefix": "::/0", "nexthop": external.gateway6, "output_port": [port_name]},
    )
    for network in routed:
        if network.request.cidr6 is not None and network.request.cidr6 not in vpc.routed6:
            columns = {"type": "snat", "external_ip": address, "logical_ip": network.request.cidr6}
            yield Row("NAT", f"snat6/{network.id}", columns)
    for floating_ip in vpc.floating_ips:
        port = vpc.ports_by_vm.get(floating_ip.vm)
        if floating_ip.address6 and port is not None and port.port.address6 is not None:
            columns = {"type": "dnat_and_snat", "external_ip": floating_ip.address6, "logical_ip": port.port.address6}
            yield Row("NAT", f"floating-ip/{floating_ip.address6}", columns)


def _peerings(vpc: Vpc) -> Iterator[Row]:
    for peering in vpc.peerings:
        first, second = sorted((vpc.tenant, peering.tenant))
        is_first = vpc.tenant == first
        names = [f"{ovn_name('q', first, second)}_{side}" for side in "ab"]
        addresses = link_addresses(peering.block)
        own, other = (0, 1) if is_first else (1, 0)
        yield Row(
            "Logical_Router_Port",
            f"peer/{peering.tenant}",
            {
                "name": names[own],
                "mac": mac_address(names[own]),
                "networks": [f"{addresses[own]}/30"],
                "peer": [names[other]],
            },
        )
        for network in peering.networks:
            for subnet in () if network.request.isolated else network.subnets:
                is_six = isinstance(subnet, ipaddress.IPv6Network)
                yield Row(
                    "Logical_Router_Static_Route",
                    f"peer/{peering.tenant}/{subnet}",
                    {
                        "ip_prefix": str(subnet),
                        "nexthop": link_local(mac_address(names[other])) if is_six else addresses[other],
                        "output_port": [names[own]],
                    },
                )


def _router_port(name: str, router_port: str, **options: str) -> dict[str, object]:
    return {
        "name": name,
        "type": "router",
        "addresses": ["router"],
        "options": {"router-port": router_port, **options},
    }


def _localnet(name: str, physical_network: str, vlan: int | None) -> dict[str, object]:
    return {
        "name": name,
        "type": "localnet",
        "addresses": ["unknown"],
        "options": {"network_name": physical_network},
        "tag": [] if vlan is None else [vlan],
    }
