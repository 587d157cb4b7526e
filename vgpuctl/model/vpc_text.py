# SPDX-License-Identifier: Apache-2.0
"""How people write what belongs to a tenant's networks: `tcp:80@group:web`, `8000-8010`, `udp/53`."""

import ipaddress
from enum import StrEnum
from typing import TypeVar

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import ANYWHERE, PortProtocol, Protocol, Rule

_LAST_PORT = 65535
_Member = TypeVar("_Member", bound=StrEnum)


def parse_rule(text: str, *, what: str = "rule") -> Rule:
    """Read `PROTOCOL[:PORTS][@FROM]`: `icmp`, `tcp:80`, `udp:8000-8010@10.9.0.0/24`, `any@group:web`."""
    traffic, at, source = text.partition("@")
    name, colon, ports = traffic.partition(":")
    protocol = _member(Protocol, name, what=f"{what} {text!a}")
    return Rule(
        protocol,
        parse_ports(ports, what=what) if colon else None,
        parse_source(source, what=what) if at else ANYWHERE,
    )


def describe_rule(rule: Rule) -> str:
    """A rule as `parse_rule` reads it."""
    ports = "" if rule.ports is None else f":{describe_ports(rule.ports)}"
    return f"{rule.protocol}{ports}" + ("" if rule.source == ANYWHERE else f"@{rule.source}")


def parse_ports(text: str, *, what: str = "port") -> tuple[int, int]:
    """Read `80` or `8000-8010`: the first and the last port."""
    first, dash, last = text.partition("-")
    numbers = (first, last if dash else first)
    if all(one.isascii() and one.isdecimal() and len(one) <= len(str(_LAST_PORT)) for one in numbers):
        low, high = map(int, numbers)
        if 1 <= low <= high <= _LAST_PORT:
            return low, high
    raise UsageError(f"{what}: {text!a} is not a port or a range of ports", hint="write 80, or 8000-8010")


def describe_ports(ports: tuple[int, int]) -> str:
    """Ports as `parse_ports` reads them."""
    return "-".join(dict.fromkeys(map(str, ports)))


def parse_source(text: str, *, what: str = "source") -> str:
    """Read where packets come from: an IPv4 or IPv6 network, `group:NAME`, or `any`."""
    if text.startswith("group:"):
        check_name(text.removeprefix("group:"), what="security group")
        return text
    if text == ANYWHERE:
        return text
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(
            f"{what}: {text!a} is neither a network nor a group",
            hint="such as 10.0.0.0/24, fd00:1::/64, or group:web",
        ) from error
    if isinstance(network, ipaddress.IPv6Network):
        _refuse_no_source(network, what=what)
    return str(network)


def _refuse_no_source(network: ipaddress.IPv6Network, *, what: str) -> None:
    """Refuse IPv6 networks that no packet comes from. Raises UsageError."""
    first = network.network_address
    if first.scope_id is not None or first.ipv4_mapped is not None or network.is_multicast:
        raise UsageError(
            f"{what}: no packet comes from {network}",
            hint="write the IPv4 network itself for a mapped one, and no zone or multicast network",
        )


def parse_forwarded(text: str, *, what: str = "port") -> tuple[PortProtocol, int]:
    """Read `8080`, `tcp/8080` or `udp/53`: the protocol and the port."""
    name, slash, port = text.rpartition("/")
    protocol = _member(PortProtocol, name, what=f"{what} {text!a}") if slash else PortProtocol.TCP
    first, last = parse_ports(port, what=what)
    if first != last:
        raise UsageError(f"{what}: {text!a} is not one port", hint="write 8080, or udp/53")
    return protocol, first


def _member(members: type[_Member], name: str, *, what: str) -> _Member:
    try:
        return members(name)
    except ValueError as error:
        raise UsageError(f"{what}: {name!a} is not a protocol here", hint=f"it can be {', '.join(members)}") from error
