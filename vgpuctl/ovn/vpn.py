# SPDX-License-Identifier: Apache-2.0
"""VPN connections: routes to the other site by the tunnel's function, and the UDP port of the gateway's address."""

from collections.abc import Iterator

from vgpuctl.model.network import is_ipv6
from vgpuctl.model.vpc import Vpc, ovn_name
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.ovn.balancing import endpoint
from vgpuctl.ovn.rows import Row


def vpn_routes(vpc: Vpc) -> Iterator[Row]:
    """The tenant's router sends packets for the other site to the function."""
    ids = {network.request.name: network.id for network in vpc.networks}
    for vpn in _vpns(vpc):
        for prefix in vpn.prefixes:
            hops = [one for one in vpn.addresses if is_ipv6(one) == is_ipv6(prefix)]
            if hops:
                columns = {
                    "ip_prefix": prefix,
                    "nexthop": hops[0],
                    "output_port": [ovn_name("g", ids[vpn.network])],
                }
                yield Row("Logical_Router_Static_Route", f"vpn/{vpn.name}/{prefix}", columns)


def vpn_forwards(vpc: Vpc) -> list[Row]:
    """The UDP port of the gateway's address leads to the function, as a forwarded port does."""
    rows = []
    for vpn in _vpns(vpc):
        vips = {
            endpoint(own, vpn.port): endpoint(address, vpn.port)
            for own in (vpc.router_address, vpc.router_address6)
            for address in vpn.addresses
            if own and is_ipv6(own) == is_ipv6(address)
        }
        columns = {"name": ovn_name("w", vpc.tenant, vpn.name), "protocol": ["udp"], "vips": vips}
        if vips:
            rows.append(Row("Load_Balancer", f"vpn/{vpn.name}", columns))
    return rows


def _vpns(vpc: Vpc) -> Iterator[VpnConnection]:
    """Those whose network is there and has a router."""
    routed = {network.request.name for network in vpc.networks if not network.request.isolated}
    yield from (one for one in vpc.vpns if one.network in routed and one.addresses)
