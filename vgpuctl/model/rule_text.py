# SPDX-License-Identifier: Apache-2.0
"""How people write security rules: `tcp:80@group:web`, `egress:deny:any@addresses:partners,priority=200,log`."""

import ipaddress
from typing import NamedTuple, TypeVar

from vgpuctl.errors import UsageError
from vgpuctl.model.security_rule import (
    ANYWHERE,
    DEFAULT_LOG_RATE,
    DEFAULT_PRIORITY,
    HIGHEST_LOG_RATE,
    HIGHEST_PRIORITY,
    ICMP_TYPES,
    LOWEST_PRIORITY,
    Direction,
    Protocol,
    Rule,
    RuleAction,
)
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc_text import describe_ports, member_of, parse_ports

_TYPES = {name: number for number, name in ICMP_TYPES.items()}
_NUMBERED, _HIGHEST_TYPE = "type-", 255
_OF_NAMES = {"group:": "security group", "addresses:": "address group"}
_Word = TypeVar("_Word", Direction, RuleAction)


class _Options(NamedTuple):
    """What follows a rule behind commas."""

    priority: int = DEFAULT_PRIORITY
    stateless: bool = False
    log_per_s: int | None = None


def parse_rule(text: str, *, what: str = "rule") -> Rule:
    """Read `[egress:][deny:|reject:]PROTOCOL[:PORTS|:TYPE][@PEER][,priority=N][,stateless][,log[=N]]`.

    Raises UsageError for what is no rule, with the form that was meant.
    """
    head, *options = text.split(",")
    traffic, at, source = head.partition("@")
    words = traffic.split(":")
    direction = _taken(Direction.INGRESS, words)
    action = _taken(RuleAction.ALLOW, words)
    name, *rest = words or [""]
    protocol = member_of(Protocol, name, what=f"{what} {text!a}")
    if len(rest) > 1:
        raise UsageError(
            f"{what}: {text!a} has {len(rest)} parts behind {protocol}",
            hint="write [egress:][deny:|reject:]PROTOCOL[:PORTS][@PEER]",
        )
    ports, icmp_type = None, None
    if rest and protocol is Protocol.ICMP:
        icmp_type = parse_icmp_type(rest[0], what=what)
    elif rest:
        ports = parse_ports(rest[0], what=what)
    peer = parse_source(source, what=what) if at else ANYWHERE
    found = _options(options, what=f"{what} {text!a}")
    return Rule(protocol, ports, peer, icmp_type, direction, action, found.priority, found.stateless, found.log_per_s)


def describe_rule(rule: Rule) -> str:
    """A rule as `parse_rule` reads it."""
    options = [
        f",priority={rule.priority}" * (rule.priority != DEFAULT_PRIORITY),
        ",stateless" * rule.stateless,
        "" if rule.log_per_s is None else ",log" if rule.log_per_s == DEFAULT_LOG_RATE else f",log={rule.log_per_s}",
    ]
    return describe_traffic(rule) + "".join(options)


def describe_traffic(rule: Rule) -> str:
    """A rule without its options: direction, action, protocol, ports and peer."""
    words = [
        f"{rule.direction}:" * (rule.direction is not Direction.INGRESS),
        f"{rule.action}:" * (rule.action is not RuleAction.ALLOW),
        str(rule.protocol),
        "" if rule.ports is None else f":{describe_ports(rule.ports)}",
        "" if rule.icmp_type is None else f":{describe_icmp_type(rule.icmp_type)}",
        "" if rule.source == ANYWHERE else f"@{rule.source}",
    ]
    return "".join(words)


def parse_icmp_type(text: str, *, what: str = "type") -> int:
    """Read a type of ICMP: `echo-request`, or `type-8`."""
    if text in _TYPES:
        return _TYPES[text]
    number = text.removeprefix(_NUMBERED)
    is_number = number != text and number.isascii() and number.isdecimal() and len(number) <= len(str(_HIGHEST_TYPE))
    if is_number and int(number) <= _HIGHEST_TYPE:
        return int(number)
    raise UsageError(
        f"{what}: {text!a} is not a type of ICMP, which has no ports",
        hint=f"write type-0 to type-{_HIGHEST_TYPE}, or {', '.join(_TYPES)}",
    )


def describe_icmp_type(number: int) -> str:
    """A type of ICMP as `parse_icmp_type` reads it."""
    return ICMP_TYPES.get(number, f"{_NUMBERED}{number}")


def parse_network(text: str, *, what: str = "address") -> str:
    """Read an IPv4 or IPv6 network, or one address, in the form that rules keep."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(
            f"{what}: {text!a} is not a network", hint="such as 10.0.0.0/24, 192.0.2.7, or fd00:1::/64"
        ) from error
    if isinstance(network, ipaddress.IPv6Network):
        _refuse_no_source(network, what=what)
    return str(network)


def parse_source(text: str, *, what: str = "peer") -> str:
    """Read the other end of a rule's traffic: a network, `group:NAME`, `addresses:NAME`, or `any`."""
    for prefix, kind in _OF_NAMES.items():
        if text.startswith(prefix):
            check_name(text.removeprefix(prefix), what=kind)
            return text
    if text == ANYWHERE:
        return text
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(
            f"{what}: {text!a} is neither a network nor a group",
            hint="such as 10.0.0.0/24, fd00:1::/64, group:web or addresses:partners",
        ) from error
    return parse_network(text, what=what)


def _refuse_no_source(network: ipaddress.IPv6Network, *, what: str) -> None:
    """Refuse IPv6 networks that no packet comes from. Raises UsageError."""
    first = network.network_address
    if first.scope_id is not None or first.ipv4_mapped is not None or network.is_multicast:
        raise UsageError(
            f"{what}: no packet comes from {network}",
            hint="write the IPv4 network itself for a mapped one, and no zone or multicast network",
        )


def _taken(default: _Word, words: list[str]) -> _Word:
    """Take the first word if it is one of the default's kind."""
    members = {str(one): one for one in type(default)}
    return members[words.pop(0)] if words and words[0] in members else default


def _options(options: list[str], *, what: str) -> _Options:
    """Read what follows a rule behind commas."""
    given: dict[str, int | bool] = {}
    for option in options:
        name, equals, value = option.partition("=")
        match name:
            case "priority" if equals:
                read = _whole(value, LOWEST_PRIORITY, HIGHEST_PRIORITY, what=f"{what}: priority")
                place = "priority"
            case "stateless" if not equals:
                place, read = "stateless", True
            case "log":
                place = "log_per_s"
                read = _whole(value, 1, HIGHEST_LOG_RATE, what=f"{what}: log") if equals else DEFAULT_LOG_RATE
            case _:
                raise UsageError(
                    f"{what}: {option!a} is not an option of a rule", hint="write priority=200, stateless, log or log=5"
                )
        if place in given:
            raise UsageError(f"{what} has the option {name} twice", hint="give each option once")
        given[place] = read
    return _Options(**given)  # type: ignore[arg-type]  # each name has a value of its type


def _whole(text: str, lowest: int, highest: int, *, what: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= len(str(highest)) and lowest <= int(text) <= highest:
        return int(text)
    raise UsageError(f"{what} is {text!a}", hint=f"use {lowest} to {highest}")
