# SPDX-License-Identifier: Apache-2.0
"""Static routes of tenants: where they lead now, what a VM that routes may send, which route a packet takes. Pure."""

import ipaddress
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from vgpuctl.errors import UsageError
from vgpuctl.model.network import Network, Subnet, is_address, is_ipv6, parse_resolver, read_subnet6, unusable6
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import DISCARD, Route, Vpc, VpcPort

_NOBODY = tuple(map(ipaddress.IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))
"""No packet on a network comes from these (RFC 6890)."""
_SOMEBODY6: tuple[Subnet, ...] = (ipaddress.IPv6Network("2000::/3"), ipaddress.IPv6Network("fd00::/8"))


@dataclass(frozen=True)
class NextHop:
    """Where a route leads now. network: whose router port leads there. port: of a VM; None behind a direct connect."""

    address: str
    network: Network
    port: VpcPort | None = None


def parse_prefix(text: str, *, what: str = "prefix") -> str:
    """Read the destination of a route: a network of IPv4 or IPv6, `0.0.0.0/0` or `::/0` for all. Raises UsageError."""
    hint = "write a network such as 10.66.0.0/16 or fd00:66::/48, or 0.0.0.0/0 for every destination"
    try:
        subnet: Subnet = read_subnet6(text) if is_ipv6(text) else ipaddress.IPv4Network(text)
    except ValueError as error:
        try:
            hint = f"did you mean {ipaddress.ip_network(text.partition('%')[0], strict=False)}?"
        except ValueError:
            pass  # More is wrong than bits of the host.
        raise UsageError(f"{what} {text[:80]!a} is not a network: {error}", hint=hint) from error
    if subnet.prefixlen == 0:
        return str(subnet)
    if isinstance(subnet, ipaddress.IPv6Network):
        kind = unusable6(subnet)
    else:
        nobody = next((one for one in _NOBODY if subnet.subnet_of(one)), None)
        kind = None if nobody is None else f"no router sends packets to {nobody}"
    if kind is not None:
        raise UsageError(f"{what} {text}: {kind}", hint=hint)
    return str(subnet)


def parse_next_hop(text: str, *, what: str = "next hop") -> str:
    """Read a VM, `VM@NETWORK`, an address, or `discard`. Raises UsageError."""
    if text == DISCARD:
        return text
    if is_ipv6(text) or is_address(text):
        return parse_resolver(text, what=what)
    vm, at, network = text.partition("@")
    check_name(vm, what=what)
    return text if not at else f"{vm}@{check_name(network, what=f'{what}: network')}"


def next_hops_of(vpc: Vpc, route: Route) -> list[NextHop]:
    """The next hops that can be sent to now, each address once; none for a route that drops its packets."""
    found: dict[str, NextHop] = {}
    for text in route.next_hops:
        hop = _next_hop(vpc, text, is_six=is_ipv6(route.prefix))
        if hop is not None:
            found.setdefault(hop.address, hop)
    return list(found.values())


def _next_hop(vpc: Vpc, text: str, *, is_six: bool) -> NextHop | None:
    routed = {one.id: one for one in vpc.networks if not one.request.isolated}
    if text == DISCARD:
        return None
    if is_address(text):
        address = ipaddress.ip_address(text)
        network = next((one for one in routed.values() if any(address in subnet for subnet in one.subnets)), None)
        return None if network is None else NextHop(text, network)
    vm, at, name = text.partition("@")
    for port in sorted((one for one in vpc.ports if one.vm == vm), key=lambda one: one.port.position):
        network = routed.get(port.port.network_id)
        if network is None or (at and name != network.request.name):
            continue
        for own in port.port.addresses:
            if is_ipv6(own) == is_six:
                return NextHop(own, network, port)
    return None


def remarks_on_route(vpc: Vpc, route: Route, vms: Collection[str]) -> Iterator[str]:
    """Next hops that nothing can be sent to now. vms: the names of the tenant's VMs."""
    is_six = is_ipv6(route.prefix)
    for text in route.next_hops:
        if text == DISCARD or _next_hop(vpc, text, is_six=is_six) is not None:
            continue
        vm, at, network = text.partition("@")
        if vm not in vms:
            yield f"tenant {vpc.tenant} has no VM {vm}, so nothing is sent to it"
        else:
            where = f"network {network}" if at else "a network of the tenant's router"
            yield f"VM {vm} has no IPv{6 if is_six else 4} address in {where}, so nothing is sent to it"
    if not route.is_discard and not next_hops_of(vpc, route):
        yield "no next hop is left, so packets to it are dropped"


def foreign_sources(vpc: Vpc) -> dict[str, list[str]]:
    """The networks that a VM's port may send from beside its own addresses, by the port's id: what is routed to it.

    Never addresses of the tenant's own networks, of peers, of the provider, or of management networks: so a VM that
    routes, also one with a default route, cannot pose as any of them.
    """
    wanted: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for route in vpc.routes:
        for hop in next_hops_of(vpc, route):
            if hop.port is not None:
                wanted[hop.port.port.id][route.prefix] = None
    if not wanted:
        return {}
    kept = tuple(_of_others(vpc))
    return {
        port: [str(one) for prefix in prefixes for one in _without(ipaddress.ip_network(prefix), kept)]
        for port, prefixes in wanted.items()
    }


def _of_others(vpc: Vpc) -> Iterator[Subnet]:
    yield from _NOBODY
    for network in (*vpc.networks, *(one for peering in vpc.peerings for one in peering.networks)):
        yield from network.subnets
    external = vpc.external_network
    if external is not None:
        yield from external.subnets
        yield from (ipaddress.ip_network(one) for one in (*external.management, *external.routed6))


def _without(whole: Subnet, holes: Iterable[Subnet]) -> list[Subnet]:
    """The parts of a network that are in none of the others."""
    parts = list(_SOMEBODY6) if whole.version == 6 and whole.prefixlen == 0 else [whole]
    for hole in holes:
        parts = [rest for part in parts for rest in _minus(part, hole)]
    return sorted(parts, key=lambda one: (one.network_address.packed, one.prefixlen))


def _minus(part: Subnet, hole: Subnet) -> list[Subnet]:
    if isinstance(part, ipaddress.IPv4Network) and isinstance(hole, ipaddress.IPv4Network):
        if part.overlaps(hole):
            return [] if part.subnet_of(hole) else list(part.address_exclude(hole))
    elif isinstance(part, ipaddress.IPv6Network) and isinstance(hole, ipaddress.IPv6Network) and part.overlaps(hole):
        return [] if part.subnet_of(hole) else list(part.address_exclude(hole))
    return [part]


def route_for(vpc: Vpc, address: str) -> Route | None:
    """The route that the tenant's router takes for a destination: the longest prefix, as OVN chooses.

    None where a network of the tenant or of a peer, or the external network, has the address.
    """
    wanted = ipaddress.ip_address(address)
    nearer = [one for network in vpc.networks for one in network.subnets]
    nearer += [one for peering in vpc.peerings for network in peering.networks for one in network.subnets]
    nearer += [] if vpc.external_network is None else vpc.external_network.subnets
    if any(wanted in one for one in nearer):
        return None
    fitting = [one for one in vpc.routes if wanted in ipaddress.ip_network(one.prefix)]
    return max(fitting, key=lambda one: ipaddress.ip_network(one.prefix).prefixlen, default=None)
