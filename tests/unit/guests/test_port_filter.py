# SPDX-License-Identifier: Apache-2.0
"""Destinations that a guest of a tenant's network reaches: the rendered rules decide, in libvirt's order."""

import ipaddress
from dataclasses import dataclass
from xml.etree import ElementTree

import pytest

from vgpuctl.guests.libvirtd.port_filter import HostNetworks, Reach, read_networks, render_port_filter, rules_of

MAC, ADDRESS, GATEWAY = "52:54:00:00:00:07", "10.11.0.7", "10.11.0.1"
VARIABLES = {"$MAC": MAC, "$IP": ADDRESS, "$GATEWAY": GATEWAY, "$NETWORK": "10.11.0.0", "$MASK": "255.255.255.0"}
NETWORKS = HostNetworks(("10.11.0.0/24", "192.168.122.0/24", "203.0.113.0/24"), ("10.99.0.53",))
REACH = Reach(("127.0.0.1", "10.11.0.1", "198.51.100.4", "172.20.0.2"), ("10.50.0.0/16",))


@dataclass(frozen=True)
class Packet:
    """One IPv4 packet that a guest sends."""

    to: str
    protocol: str = "tcp"
    port: int = 443
    source: str = ADDRESS
    mac: str = MAC
    source_port: int = 40000


def judge(xml: str, packet: Packet) -> str:
    """The action of the first rule that fits, lowest priority first."""
    rules = [rule for rule in ElementTree.fromstring(xml).iter("rule") if rule.get("direction") != "in"]
    for rule in sorted(rules, key=lambda one: int(one.get("priority", "500"))):
        if _fits(rule[0], packet):
            return str(rule.get("action"))
    return "accept"


def _fits(match: ElementTree.Element, packet: Packet) -> bool:
    wanted = {key: VARIABLES.get(value, value) for key, value in match.items()}
    is_inverted = wanted.pop("match", "yes") == "no"
    if match.tag == "arp":
        return False
    there: dict[str, object] = {
        "srcmacaddr": packet.mac,
        "srcipaddr": packet.source,
        "protocol": packet.protocol,
        "srcportstart": str(packet.source_port),
        "dstportstart": str(packet.port),
    }
    mask = wanted.pop("dstipmask", "32")
    target = wanted.pop("dstipaddr", None)
    fits = all(there[key] == value for key, value in wanted.items())
    if target is not None:
        fits = fits and ipaddress.IPv4Address(packet.to) in ipaddress.IPv4Network(f"{target}/{mask}")
    return fits != is_inverted


REACHED = [
    Packet("1.1.1.1"),
    Packet("10.11.0.9"),
    Packet(GATEWAY, "udp", 53),
    Packet(GATEWAY, "udp", 67, source_port=68),
    Packet(GATEWAY, "icmp", 0),
    Packet("255.255.255.255", "udp", 67, source="0.0.0.0", source_port=68),
    Packet("255.255.255.255", "udp", 67, source_port=68),
    Packet("10.99.0.53", "udp", 53),
    Packet("10.50.3.4"),
]
REFUSED = [
    Packet(GATEWAY, port=22),
    Packet(GATEWAY, port=16509),
    Packet("198.51.100.4", port=22),
    Packet("172.20.0.2", port=22),
    Packet("192.168.122.1", "udp", 53),
    Packet("203.0.113.1", "udp", 53),
    Packet("203.0.113.9"),
    Packet("192.168.1.10"),
    Packet("10.0.0.5", port=22),
    Packet("172.16.9.9"),
    Packet("169.254.169.254", port=80),
    Packet("100.64.0.1"),
    Packet("127.0.0.1", port=22),
    Packet("10.99.0.53", port=22),
    Packet("1.1.1.1", source="10.11.0.8"),
    Packet("1.1.1.1", mac="52:54:00:00:00:08"),
    Packet("10.11.0.9", "udp", 68, source_port=67),
    Packet("255.255.255.255", "udp", 111),
    Packet("10.11.0.255", "udp", 111),
    Packet("10.11.0.0", "udp", 111),
    Packet("192.168.122.255", "udp", 111),
    Packet("224.0.0.251", "udp", 5353),
]


@pytest.mark.parametrize("packet", REACHED, ids=str)
def test_a_guest_reaches_its_network_and_the_world(packet: Packet) -> None:
    assert judge(render_port_filter(REACH, NETWORKS), packet) == "accept"


@pytest.mark.parametrize("packet", REFUSED, ids=str)
def test_a_guest_reaches_neither_the_host_nor_other_networks(packet: Packet) -> None:
    assert judge(render_port_filter(REACH, NETWORKS), packet) == "drop"


def test_the_hosts_networks_are_read_from_libvirt() -> None:
    found = read_networks(
        [
            "<network><ip address='192.168.122.1' netmask='255.255.255.0'/></network>",
            "<network><dns><forwarder addr='192.0.2.53'/><forwarder domain='x'/></dns>"
            "<ip address='10.1.2.1' prefix='30'/><ip family='ipv6' address='fd00::1' prefix='64'/></network>",
        ]
    )
    assert found == HostNetworks(("10.1.2.0/30", "192.168.122.0/24"), ("192.0.2.53",))


def test_a_mask_in_libvirts_own_writing_is_the_same_rule() -> None:
    xml = render_port_filter(REACH, NETWORKS)
    assert rules_of(xml.replace("dstipmask='8'", "dstipmask='255.0.0.0'")) == rules_of(xml)
    for other in ("ffff::", "64", "255.0.255.0", "x"):
        assert rules_of(xml.replace("dstipmask='8'", f"dstipmask='{other}'", 1)) != rules_of(xml)
