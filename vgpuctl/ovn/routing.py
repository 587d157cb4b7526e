# SPDX-License-Identifier: Apache-2.0
"""A tenant's static routes as rows of OVN, and the policies that keep what they bring in inside the tenant."""

from collections.abc import Iterator, Sequence

from vgpuctl.model.network import is_ipv6
from vgpuctl.model.routes import next_hops_of
from vgpuctl.model.vpc import DISCARD, Vpc, ovn_name
from vgpuctl.ovn.rows import Row

_TABLE = "Logical_Router_Static_Route"
_INSIDE_PRIORITY = 1000


def route_rows(vpc: Vpc) -> Iterator[Row]:
    """One row for each next hop: OVN shares connections among rows of one prefix, by a hash of addresses and ports.

    A route without a next hop drops its packets. They would take the default route instead, and leave by the gateway.
    """
    for route in vpc.routes:
        hops = next_hops_of(vpc, route)
        for hop in hops:
            columns = {
                "ip_prefix": route.prefix,
                "nexthop": hop.address,
                "output_port": [ovn_name("g", hop.network.id)],
            }
            yield Row(_TABLE, f"route/{route.prefix}/{hop.address}", columns)
        if not hops:
            columns = {"ip_prefix": route.prefix, "nexthop": DISCARD, "output_port": []}
            yield Row(_TABLE, f"route/{route.prefix}/{DISCARD}", columns)


def boundary_rows(vpc: Vpc, outside: Sequence[str]) -> Iterator[Row]:
    """Drop what comes from behind a route and would leave the tenant: no NAT translates it, and peers trust addresses.

    outside: the router's ports to the external network and to peers.
    """
    for version in (4, 6) if outside else ():
        is_six = version == 6
        prefixes = [one.prefix for one in vpc.routes if is_ipv6(one.prefix) == is_six and next_hops_of(vpc, one)]
        if not prefixes:
            continue
        own = [str(one) for network in vpc.networks for one in network.subnets if one.version == version]
        parts = [_is_in(f"ip{version}.src", prefixes)]
        parts += [f"!({_is_in(f'ip{version}.src', own)})"] if own else []
        parts.append(_is_in("outport", [f'"{one}"' for one in outside]))
        columns = {"priority": _INSIDE_PRIORITY, "match": " && ".join(parts), "action": "drop"}
        yield Row("Logical_Router_Policy", f"inside/{version}", columns)


def _is_in(field: str, values: Sequence[str]) -> str:
    """True for one of the values, as OVN's expression."""
    return f"{field} == {{{', '.join(values)}}}"
