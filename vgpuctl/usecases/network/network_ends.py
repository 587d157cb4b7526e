# SPDX-License-Identifier: Apache-2.0
"""The ends of a packet that explain-network is asked about: a VM, an address, or outside."""

import contextlib
import difflib
import ipaddress
from dataclasses import dataclass, replace

from vgpuctl.errors import NotFound, StateError, UsageError
from vgpuctl.model.network import Network, is_ipv6
from vgpuctl.model.routes import next_hops_of, route_for
from vgpuctl.model.vpc import Vpc, VpcPort

OUTSIDE = "outside"
_OUTSIDE_ADDRESSES = ("198.51.100.1", "2001:db8:ffff::1")
"""Addresses for documentation (RFC 5737 and 3849): nobody has them."""


@dataclass(frozen=True)
class NetworkEnd:
    """One end of the traffic. name: as asked for. vm, network: None for an address that no VM of OVN's networks has."""

    name: str
    address: str
    vm: str | None = None
    network: str | None = None


@dataclass(frozen=True)
class End:
    """An end, its addresses, its port, and the tenant's world that this is in."""

    shown: NetworkEnd
    addresses: tuple[str, ...]
    vpc: Vpc | None = None
    port: VpcPort | None = None


def shared_network(vpc: Vpc, *ends: str) -> str | None:
    """The id of a network in which both VMs have an interface."""
    found = [{port.port.network_id for port in vpc.ports if port.vm == end} for end in ends]
    both = set.intersection(*found)
    return next((network.id for network in vpc.networks if network.id in both), None)


def find_end(vpc: Vpc, peers: tuple[Vpc, ...], name: str, shared: str | None, names: list[str]) -> End:
    """The end that a user calls so."""
    if name == OUTSIDE:
        return End(NetworkEnd(name, _OUTSIDE_ADDRESSES[0]), _OUTSIDE_ADDRESSES)
    with contextlib.suppress(ValueError):
        return _at_address(vpc, peers, name, str(ipaddress.ip_address(name)))
    ports = [port for port in vpc.ports if port.vm == name]
    for port in sorted(ports, key=lambda one: (one.port.network_id != shared, one.port.position)):
        return _of_port(name, vpc, port)
    if name in names:
        raise StateError(
            f"VM {name} of tenant {vpc.tenant} has no interface in a network that OVN carries",
            hint="see `vgpuctl show-vm`; `vgpuctl attach-nic` adds an interface",
        )
    near = difflib.get_close_matches(name, [port.vm for port in vpc.ports], n=3)
    raise NotFound(
        f"tenant {vpc.tenant} has no VM {name}",
        hint=f"did you mean {', '.join(near)}?" if near else "give the name of a VM, an IP address, or `outside`",
    )


def _at_address(vpc: Vpc, peers: tuple[Vpc, ...], name: str, address: str) -> End:
    for floating_ip in vpc.floating_ips:
        port = vpc.ports_by_vm.get(floating_ip.vm)
        for own, inside in ((floating_ip.address, False), (floating_ip.address6, True)):
            reached = [one for one in port.port.addresses if is_ipv6(one) is inside] if port is not None else []
            if own == address and port is not None and reached:
                return _of_port(name, vpc, port, tuple(reached))
    for one in (vpc, *peers):
        for port in one.ports:
            if address in port.port.addresses:
                return _of_port(name, one, port, (address,))
    return End(NetworkEnd(name, address), (address,))


def _of_port(name: str, vpc: Vpc, port: VpcPort, addresses: tuple[str, ...] = ()) -> End:
    network = next(one for one in vpc.networks if one.id == port.port.network_id)
    addresses = addresses or port.port.addresses
    return End(NetworkEnd(name, addresses[0], port.vm, network.request.name), addresses, vpc, port)


def of_one_version(source: End, target: End) -> tuple[End, End]:
    """Both ends with addresses of one IP version, IPv4 if they have it. Raises UsageError."""
    for one in source.addresses:
        for other in target.addresses:
            if is_ipv6(one) == is_ipv6(other):
                shown = replace(source.shown, address=one), replace(target.shown, address=other)
                return replace(source, shown=shown[0]), replace(target, shown=shown[1])
    told = [f"{one.shown.name} has {', '.join(one.addresses)}" for one in (source, target)]
    raise UsageError(
        f"{source.shown.name} and {target.shown.name} have no addresses of one IP version",
        context=told,
        hint="give ends with addresses of one version",
    )


def behind_route(vpc: Vpc, end: End) -> End:
    """An address behind a static route sends by the port of the VM that the route leads to."""
    route = route_for(vpc, end.shown.address) if end.port is None and end.shown.name != OUTSIDE else None
    hops = [] if route is None else [one.port for one in next_hops_of(vpc, route) if one.port is not None]
    return replace(end, vpc=vpc, port=hops[0]) if hops else end


def network_of(end: End) -> Network | None:
    """The network of an end that has a port."""
    if end.vpc is None or end.port is None:
        return None
    return next((one for one in end.vpc.networks if one.id == end.port.port.network_id), None)
