# SPDX-License-Identifier: Apache-2.0
"""Load balancers and port forwards: both are OVN's load balancer, the first with health checks."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from vgpuctl.model.load_balancer import BalancerHash, LoadBalancer
from vgpuctl.model.network import Subnet, is_ipv6, monitor_of
from vgpuctl.model.vpc import Vpc, ovn_name
from vgpuctl.ovn.rows import Reference, Row

_TABLE = "Load_Balancer"
_OF_PROGRAMS = (2, 2, 2)
"""Seconds between checks, for an answer, and failed ones before a program gets no connections."""
_FIELDS = {
    BalancerHash.CONNECTION: [],
    BalancerHash.FIVE_TUPLE: ["ip_src", "ip_dst", "tp_src", "tp_dst"],
    BalancerHash.SOURCE: ["ip_src"],
}
IPV6_SOURCE = "ipv6_src"
"""Of selection_fields; OVN 25.03 has it, 23.03 has not."""


def balancer_references(vpc: Vpc) -> tuple[Reference, ...]:
    """The tenant's balancers, which each of its switches knows."""
    return tuple(Reference(_TABLE, f"balancer/{balancer.name}") for balancer in vpc.balancers)


def router_references(vpc: Vpc) -> tuple[Reference, ...]:
    """The balancers that the tenant's router knows.

    It would answer ARP and neighbour discovery for their addresses also in the external network, so none has an
    address of that.
    """
    outside = () if vpc.external_network is None else vpc.external_network.subnets
    return tuple(
        reference
        for balancer, reference in zip(vpc.balancers, balancer_references(vpc), strict=True)
        if not any(
            ipaddress.ip_address(one) in subnet
            for one in (balancer.address, balancer.address6)
            for subnet in outside
            if one
        )
    )


def balancer_rows(vpc: Vpc) -> Iterator[Row]:
    """One balancer each, with its health checks: every backend is asked from an address that no port has.

    The backends are VMs, or the programs of a balancer that reads HTTP.
    """
    for balancer in vpc.balancers:
        backends = _backends(vpc, balancer)
        backend_port = balancer.port if balancer.protocol.is_http() else balancer.vm_port
        virtuals = dict.fromkeys(one for one in (balancer.address, balancer.address6) if one)
        checks = [_health_check(balancer, virtual) for virtual in virtuals]
        yield from checks
        yield Row(
            _TABLE,
            f"balancer/{balancer.name}",
            {
                "name": ovn_name("b", vpc.tenant, balancer.name),
                "protocol": [balancer.protocol.transport],
                "vips": {
                    endpoint(virtual, balancer.port): ",".join(
                        endpoint(one.address, backend_port)
                        for one in backends
                        for _ in range(one.share)
                        if is_ipv6(one.address) == is_ipv6(virtual)
                    )
                    for virtual in virtuals
                },
                "ip_port_mappings": {
                    bracketed(one.address): f"{one.port}:{bracketed(monitor_of(one.subnet))}" for one in backends
                },
                "selection_fields": selection_fields(balancer),
                "options": {"affinity_timeout": str(balancer.affinity_s)} if balancer.affinity_s else {},
            },
            {"health_check": tuple(check.reference for check in checks)},
        )


@dataclass(frozen=True)
class _Backend:
    """One address that connections go to. port: the logical switch port. share: how often OVN lists it.

    A VM that drains is not listed: its open connections are translated by what the hosts' connection tracking has.
    """

    port: str
    address: str
    subnet: Subnet
    share: int = 1


def _backends(vpc: Vpc, balancer: LoadBalancer) -> list[_Backend]:
    if balancer.protocol.is_http():
        own = [one for one in vpc.functions if (one.kind, one.owner) == (balancer.kind, balancer.name) and one.chassis]
        return [
            _Backend(one.name, address, subnet)
            for one in own
            for subnet, address in zip(one.network.subnets, one.addresses, strict=True)
        ]
    networks = {network.id: network for network in vpc.networks}
    found = [(vm, vpc.port_in(vm, balancer.network)) for vm in balancer.vms]
    return [
        _Backend(one.port.id, address, subnet, balancer.share_of(vm))
        for vm, one in found
        if one is not None
        for address, subnet in zip(one.port.addresses, networks[one.port.network_id].subnets, strict=True)
    ]


def selection_fields(balancer: LoadBalancer) -> list[str]:
    """The fields whose hash chooses the backend; none for Open vSwitch's own hash."""
    is_by_source6 = balancer.selection is BalancerHash.SOURCE and balancer.address6 != ""
    return [*_FIELDS[balancer.selection], *([IPV6_SOURCE] if is_by_source6 else [])]


def _health_check(balancer: LoadBalancer, virtual: str) -> Row:
    asked = (balancer.health_interval_s, balancer.health_timeout_s, balancer.health_failures)
    # A balancer of HTTP checks its VMs itself, as it was asked to; here its own programs are checked.
    interval_s, timeout_s, failures = _OF_PROGRAMS if balancer.protocol.is_http() else asked
    return Row(
        "Load_Balancer_Health_Check",
        f"balancer/{balancer.name}" + ("/ipv6" if virtual != balancer.address else ""),
        {
            "vip": endpoint(virtual, balancer.port),
            "options": {
                "interval": str(interval_s),
                "timeout": str(timeout_s),
                "success_count": "1",
                "failure_count": str(failures),
            },
        },
    )


def forward_rows(vpc: Vpc) -> list[Row]:
    """One balancer with a backend of each IP version for each forwarded port, on the router alone."""
    rows = []
    for forward in vpc.forwards:
        port = vpc.ports_by_vm.get(forward.vm)
        if port is None or vpc.router_address is None:
            continue
        vips = {
            endpoint(own, forward.port): endpoint(address, forward.vm_port)
            for own in (forward.address, forward.address6)
            for address in port.port.addresses
            if own and is_ipv6(own) == is_ipv6(address)
        }
        key = f"forward/{forward.protocol}/{forward.address}/{forward.port}"
        columns = {"name": ovn_name("f", vpc.tenant, key), "protocol": [str(forward.protocol)], "vips": vips}
        if vips:
            rows.append(Row(_TABLE, key, columns))
    return rows


def bracketed(address: str) -> str:
    """An address as OVN writes it where a port may follow."""
    return f"[{address}]" if is_ipv6(address) else address


def endpoint(address: str, port: int) -> str:
    """An address with a port."""
    return f"{bracketed(address)}:{port}"
