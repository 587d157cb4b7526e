# SPDX-License-Identifier: Apache-2.0
"""How people write what belongs to a tenant's networks: `tcp:80@group:web`, `8000-8010`, `udp/53`."""

import ipaddress

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import ANYWHERE, Protocol, Rule

_LAST_PORT = 65535


def parse_rule(text: str) -> Rule:
    """Read `PROTOCOL[:PORTS][@FROM]`: `icmp`, `tcp:80`, `udp:8000-8010@10.9.0.0/24`, `any@group:web`."""
    what, at, source = text.partition("@")
    name, colon, ports = what.partition(":")
    protocol = _protocol(name, what=f"rule {text!a}")
    if colon and not protocol.has_ports():
        raise UsageError(f"rule {text!a} has ports, and {protocol} has none", hint="write tcp:80 or udp:53")
    return Rule(protocol, parse_ports(ports) if colon else None, parse_source(source) if at else ANYWHERE)


def describe_rule(rule: Rule) -> str:
    """A rule as `parse_rule` reads it."""
    ports = "" if rule.ports is None else ":" + "-".join(dict.fromkeys(map(str, rule.ports)))
    return f"{rule.protocol}{ports}" + ("" if rule.source == ANYWHERE else f"@{rule.source}")


def parse_ports(text: str) -> tuple[int, int]:
    """Read `80` or `8000-8010`: the first and the last port."""
    first, dash, last = text.partition("-")
    numbers = (first, last if dash else first)
    if all(one.isascii() and one.isdecimal() and len(one) <= len(str(_LAST_PORT)) for one in numbers):
        low, high = map(int, numbers)
        if 1 <= low <= high <= _LAST_PORT:
            return low, high
    raise UsageError(f"{text!a} is no port and no range of ports", hint="write 80, or 8000-8010")


def parse_source(text: str) -> str:
    """Read where packets come from: a network, or `group:NAME`."""
    if text.startswith("group:"):
        check_name(text.removeprefix("group:"), what="security group")
        return text
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError as error:
        raise UsageError(
            f"{text!a} is neither a network nor a group", hint="such as 10.0.0.0/24, or group:web"
        ) from error


def parse_forwarded(text: str) -> tuple[Protocol, int]:
    """Read `8080`, `tcp/8080` or `udp/53`: the protocol and the port."""
    name, slash, port = text.rpartition("/")
    protocol = _protocol(name, what=f"port {text!a}") if slash else Protocol.TCP
    first, last = parse_ports(port)
    if first != last or not protocol.has_ports():
        raise UsageError(f"{text!a} is not one port of tcp or udp", hint="write 8080, or udp/53")
    return protocol, first


def _protocol(name: str, *, what: str) -> Protocol:
    try:
        return Protocol(name)
    except ValueError as error:
        raise UsageError(f"{what}: {name!a} is no protocol", hint=f"it can be {', '.join(Protocol)}") from error
