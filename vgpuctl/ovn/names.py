# SPDX-License-Identifier: Apache-2.0
"""Names of VMs as OVN answers them: each switch has the records of the networks that its VMs reach.

OVN answers a query for a name of these records, whichever resolver it is for, and passes every other one on. So the
tenant's own resolvers stay, and no switch has another tenant's names.
"""

from collections.abc import Iterator

from vgpuctl.model.internal_names import domains_of, records_of, search_list
from vgpuctl.model.network import Network, is_ipv6, mac_address
from vgpuctl.model.vpc import Vpc, ovn_name
from vgpuctl.ovn.rows import Reference, Row

_TABLE = "DNS"


def names_rows(vpc: Vpc) -> Iterator[Row]:
    """The records of each network of a tenant.

    ovn-owned, which OVN has since 24.03: a query of another type for such a name, as AAAA for a VM that has no IPv6
    address, is answered by OVN too. Before, the tenant's resolver denies the name, and some guests then believe that.
    """
    if vpc.domain is None:
        return
    records = records_of(vpc.networks, [(one.vm, one.port) for one in vpc.ports], vpc.domain)
    for network in vpc.networks:
        columns = {"records": records[network.id], "options": {"ovn-owned": "true"}}
        yield Row(_TABLE, f"names/{network.id}", columns)


def names_references(vpc: Vpc, network: Network) -> tuple[Reference, ...]:
    """The records that a network's switch answers: those of all routed networks, or of an isolated one its own."""
    if vpc.domain is None:
        return ()
    reached = [network] if network.request.isolated else [one for one in vpc.networks if not one.request.isolated]
    return tuple(Reference(_TABLE, f"names/{one.id}") for one in reached)


def names_port(vpc: Vpc, network: Network) -> Iterator[Row]:
    """In an isolated network, something with the addresses of the resolver, which no router has there.

    OVN answers ARP and neighbour discovery for it; nobody is behind it, so what is no query for a name of the tenant is
    dropped.
    """
    if vpc.domain is not None and network.request.isolated and not network.request.dns:
        own = " ".join((mac_address(f"{network.id}/gateway"), *network.gateways))
        columns = {"name": ovn_name("n", network.id), "type": "localport", "addresses": [own]}
        yield Row("Logical_Switch_Port", f"names/{network.id}", columns)


def resolvers_of(vpc: Vpc, network: Network, *, is_six: bool) -> list[str]:
    """The resolvers of an IP version. Without any of the tenant, names are asked of the gateway's address."""
    answering = network.gateways if vpc.domain is not None else ()
    return [one for one in network.request.dns or answering if is_ipv6(one) == is_six]


def dhcp_search(vpc: Vpc, network: Network) -> dict[str, str]:
    """DHCP's options of the domains in which guests look for names."""
    searched = search_list(domains_of(vpc.networks, vpc.domain).get(network.id))
    if not searched:
        return {}
    return {"domain_name": f'"{searched[0]}"', "domain_search_list": f'"{",".join(searched)}"'}
