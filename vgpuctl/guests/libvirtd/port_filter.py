# SPDX-License-Identifier: Apache-2.0
"""The libvirt filter of tenants' ports, one for all ports of a host: what a guest may reach, and as whom."""

import contextlib
import ipaddress
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from vgpuctl.guests.domain.nic_view import PORT_FILTER
from vgpuctl.guests.templating import render_template
from vgpuctl.guests.xml_reader import read_xml

_FILTER_UUID = str(uuid.uuid5(uuid.NAMESPACE_URL, "urn:vgpuctl:nwfilter:tenant-port"))
# Private and special networks (RFC 1918, 6598, 3927, 1122): management networks are there, and metadata services.
INTERNAL = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8"),
    *("169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
)

GROUPS = "224.0.0.0/3"
"""Multicast (RFC 5771), reserved addresses and the limited broadcast address (RFC 919)."""


@dataclass(frozen=True)
class Reach:
    """Destinations that guests of a host reach outside their own network. Everything is IPv4.

    host_addresses: the host's own, never reached. reachable: internal networks that the operator opens to guests.
    """

    host_addresses: tuple[str, ...] = ()
    reachable: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostNetworks:
    """libvirt's networks on a host, the operator's too. subnets: their addresses; resolvers: where their names go."""

    subnets: tuple[str, ...]
    resolvers: tuple[str, ...]


def read_networks(descriptions: Iterable[str]) -> HostNetworks:
    """Read the XML of every network of a host. Raises GuestError."""
    subnets: set[str] = set()
    resolvers: set[str] = set()
    for xml in descriptions:
        network = read_xml(xml)
        for ip in network.iterfind("ip"):
            subnet = _subnet(ip.get("address", ""), ip.get("prefix") or ip.get("netmask") or "32")
            if subnet is not None:
                subnets.add(subnet)
        resolvers |= {text for one in network.iterfind("dns/forwarder") if (text := one.get("addr")) and _is_ipv4(text)}
    return HostNetworks(tuple(sorted(subnets)), tuple(sorted(resolvers)))


def render_port_filter(reach: Reach, networks: HostNetworks) -> str:
    """Render the filter; the domain's interface gives $IP, $GATEWAY, $NETWORK and $MASK."""
    own = sorted({address for address in reach.host_addresses if _is_ipv4(address)})
    return render_template(
        "nwfilter.xml.j2",
        name=PORT_FILTER,
        uuid=_FILTER_UUID,
        resolvers=networks.resolvers,
        groups=_split([GROUPS, *_broadcasts(networks.subnets)]),
        refused=[(address, "32") for address in own] + _split(networks.subnets),
        reachable=_split(reach.reachable),
        internal=_split(INTERNAL),
    )


def rules_of(xml: str) -> list[tuple[object, ...]]:
    """The rules of a filter, in an order of their own: libvirt sorts them by priority, and writes masks its own way."""
    return sorted(
        (
            tuple(sorted(rule.items())),
            tuple((match.tag, tuple(sorted(_plain(match).items()))) for match in rule),
        )
        for rule in read_xml(xml).iter("rule")
    )


def _plain(match: ElementTree.Element) -> dict[str, str]:
    found = dict(match.items())
    for key in ("srcipmask", "dstipmask"):
        if key in found and not found[key].startswith("$"):
            with contextlib.suppress(ValueError):  # of IPv6, or none: somebody else wrote the rule, and it differs
                found[key] = str(ipaddress.IPv4Network(f"0.0.0.0/{found[key]}").prefixlen)
    return found


def _broadcasts(subnets: Iterable[str]) -> list[str]:
    """The addresses that all of a subnet hear: its last, and its first, which Linux takes for one too (RFC 1122)."""
    found = [ipaddress.IPv4Network(subnet) for subnet in subnets]
    return [f"{address}/32" for one in found if one.prefixlen < 31 for address in (one[0], one[-1])]


def _split(subnets: Sequence[str]) -> list[tuple[str, str]]:
    return [(subnet.partition("/")[0], subnet.partition("/")[2]) for subnet in subnets]


def _subnet(address: str, prefix: str) -> str | None:
    try:
        return str(ipaddress.IPv4Interface(f"{address}/{prefix}").network)
    except ValueError:  # IPv6, which ports do not carry
        return None


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True
