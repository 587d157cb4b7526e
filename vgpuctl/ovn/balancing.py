# SPDX-License-Identifier: Apache-2.0
"""Load balancers and port forwards: both are OVN's load balancer, the first with health checks."""

from collections.abc import Iterator

from vgpuctl.model.network import monitor_of
from vgpuctl.model.vpc import Vpc, ovn_name
from vgpuctl.ovn.rows import Reference, Row

_TABLE = "Load_Balancer"


def balancer_references(vpc: Vpc) -> tuple[Reference, ...]:
    """The tenant's balancers, which each of its switches and its router know."""
    return tuple(Reference(_TABLE, f"balancer/{balancer.name}") for balancer in vpc.balancers)


def balancer_rows(vpc: Vpc) -> Iterator[Row]:
    """One balancer each, with its health check: every backend is asked from an address that no port has."""
    networks = {network.id: network for network in vpc.networks}
    for balancer in vpc.balancers:
        virtual = f"{balancer.address}:{balancer.port}"
        found = [vpc.port_in(vm, balancer.network) for vm in balancer.vms]
        ports = [one.port for one in found if one is not None]
        check = Row(
            "Load_Balancer_Health_Check",
            f"balancer/{balancer.name}",
            {
                "vip": virtual,
                "options": {
                    "interval": str(balancer.health_interval_s),
                    "timeout": str(balancer.health_timeout_s),
                    "success_count": "1",
                    "failure_count": str(balancer.health_failures),
                },
            },
        )
        yield check
        yield Row(
            _TABLE,
            f"balancer/{balancer.name}",
            {
                "name": ovn_name("b", vpc.tenant, balancer.name),
                "protocol": [str(balancer.protocol)],
                "vips": {virtual: ",".join(f"{port.address}:{balancer.vm_port}" for port in ports)},
                "ip_port_mappings": {
                    port.address: f"{port.id}:{monitor_of(networks[port.network_id].subnet)}" for port in ports
                },
            },
            {"health_check": (check.reference,)},
        )


def forward_rows(vpc: Vpc) -> list[Row]:
    """One balancer with one backend for each forwarded port, on the router alone."""
    rows = []
    for forward in vpc.forwards:
        port = vpc.ports_by_vm.get(forward.vm)
        if port is None or vpc.router_address is None:
            continue
        key = f"forward/{forward.protocol}/{forward.address}/{forward.port}"
        target = f"{port.port.address}:{forward.vm_port}"
        columns = {
            "name": ovn_name("f", vpc.tenant, key),
            "protocol": [str(forward.protocol)],
            "vips": {f"{forward.address}:{forward.port}": target},
        }
        rows.append(Row(_TABLE, key, columns))
    return rows
