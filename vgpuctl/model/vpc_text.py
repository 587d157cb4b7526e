# SPDX-License-Identifier: Apache-2.0
"""How people write ports of a tenant's networks: `8000-8010`, `udp/53`. Rules are in rule_text."""

from enum import StrEnum
from typing import TypeVar

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc import PortProtocol

_LAST_PORT = 65535
MOST_WEIGHT = 16
"""Of a VM behind a load balancer: OVN lists it so many times."""
_Member = TypeVar("_Member", bound=StrEnum)


def parse_ports(text: str, *, what: str = "port") -> tuple[int, int]:
    """Read `80` or `8000-8010`: the first and the last port."""
    first, dash, last = text.partition("-")
    numbers = (first, last if dash else first)
    if all(one.isascii() and one.isdecimal() and len(one) <= len(str(_LAST_PORT)) for one in numbers):
        low, high = map(int, numbers)
        if 1 <= low <= high <= _LAST_PORT:
            return low, high
    hint = "write 80, or 8000-8010, the lower port first"
    raise UsageError(f"{what}: {text!a} is not a port or a range of ports", hint=hint)


def describe_ports(ports: tuple[int, int]) -> str:
    """Ports as `parse_ports` reads them."""
    return "-".join(dict.fromkeys(map(str, ports)))


def parse_weight(text: str, *, what: str = "weight") -> str:
    """Read `web-1=3`: a VM and its weight. Raises UsageError."""
    name, equals, number = text.partition("=")
    is_number = number.isascii() and number.isdecimal() and len(number) <= len(str(MOST_WEIGHT))
    if not equals or not is_number or not 1 <= int(number) <= MOST_WEIGHT:
        raise UsageError(
            f"{what}: {text[:80]!a} is not VM=NUMBER", hint=f"write web-1=3; the number is 1 to {MOST_WEIGHT}"
        )
    return f"{check_name(name, what=what)}={int(number)}"


def parse_forwarded(text: str, *, what: str = "port") -> tuple[PortProtocol, int]:
    """Read `8080`, `tcp/8080` or `udp/53`: the protocol and the port."""
    name, slash, port = text.rpartition("/")
    protocol = member_of(PortProtocol, name, what=f"{what} {text!a}") if slash else PortProtocol.TCP
    first, last = parse_ports(port, what=what)
    if first != last:
        raise UsageError(f"{what}: {text!a} is not one port", hint="write 8080, or udp/53")
    return protocol, first


def member_of(members: type[_Member], name: str, *, what: str) -> _Member:
    """The member of a closed set of protocols. Raises UsageError."""
    try:
        return members(name)
    except ValueError as error:
        raise UsageError(f"{what}: {name!a} is not a protocol here", hint=f"it can be {', '.join(members)}") from error
