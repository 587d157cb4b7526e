# SPDX-License-Identifier: Apache-2.0
"""A tenant's gateway as OVN's group of chassis: the first one that is up carries it, by BFD between them."""

import hashlib
from collections.abc import Collection, Iterator, Sequence

from vgpuctl.model.vpc import Vpc, ovn_name
from vgpuctl.ovn.rows import Row


def gateway_port(tenant: str) -> str:
    """The name of the router port to the external network in OVN."""
    return ovn_name("o", tenant)


def chassis_order(tenant: str, chassis: Sequence[str], aside: Collection[str] = ()) -> list[str]:
    """The chassis of a tenant's gateway, the first one first.

    Rendezvous hashing (Thaler and Ravishankar 1998) gives each tenant an order of its own: first places, and the
    second ones behind each of them, are spread over all chassis, and a chassis more or less moves no other tenant's.
    aside: chassis that are last, because their hosts are drained or fenced; they carry a gateway if no other can.
    """
    return sorted(chassis, key=lambda one: (one in aside, hashlib.sha256(f"{tenant}/{one}".encode()).digest(), one))


def chassis_rows(vpc: Vpc) -> Iterator[Row]:
    """The group's chassis with their priorities, highest first."""
    if vpc.external_network is None:
        return
    order = chassis_order(vpc.tenant, vpc.external_network.chassis, vpc.aside)
    name = gateway_port(vpc.tenant)
    for position, one in enumerate(order):
        columns = {"name": f"{name}_{one}", "chassis_name": one, "priority": len(order) - position}
        yield Row("Gateway_Chassis", f"chassis/{one}", columns)
