# SPDX-License-Identifier: Apache-2.0
"""Load balancers and port forwards: both are OVN's load balancer, the first with health checks."""

import ipaddress
from collections.abc import Iterator

from vgpuctl.model.network import is_ipv6, monitor_of
from vgpuctl.model.vpc import LoadBalancer, Vpc, ovn_name
from vgpuctl.ovn.rows import Reference, Row

_TABLE = "Load_Balancer"


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
    """One balancer each, with its health checks: every backend is asked from an address that no port has."""
    networks = {network.id: network for network in vpc.networks}
    for balancer in vpc.balancers:
        found = [vpc.port_in(vm, balancer.network) for vm in balancer.vms]
        ports = [one.port for one in found if one is not None]
        virtuals = dict.fromkeys(one for one in (balancer.address, balancer.address6) if one)
        checks = [_health_check(balancer, virtual) for virtual in virtuals]
        yield from checks
        yield Row(
            _TABLE,
            f"balancer/{balancer.name}",
            {
                "name": ovn_name("b", vpc.tenant, balancer.name),
                "protocol": [str(balancer.protocol)],
                "vips": {
                    endpoint(virtual, balancer.port): ",".join(
                        endpoint(address, balancer.vm_port)
                        for port in ports
                        for address in port.addresses
                        if is_ipv6(address) == is_ipv6(virtual)
                    )
                    for virtual in virtuals
                },
                "ip_port_mappings": {
                    bracketed(address): f"{port.id}:{bracketed(monitor_of(subnet))}"
                    for port in ports
                    for address, subnet in zip(port.addresses, networks[port.network_id].subnets, strict=True)
                },
            },
            {"health_check": tuple(check.reference for check in checks)},
        )


def _health_check(balancer: LoadBalancer, virtual: str) -> Row:
    return Row(
        "Load_Balancer_Health_Check",
        f"balancer/{balancer.name}" + ("/ipv6" if virtual != balancer.address else ""),
        {
            "vip": endpoint(virtual, balancer.port),
            "options": {
                "interval": str(balancer.health_interval_s),
                "timeout": str(balancer.health_timeout_s),
                "success_count": "1",
                "failure_count": str(balancer.health_failures),
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
