# SPDX-License-Identifier: Apache-2.0
"""The fields of a security rule in a tenant's file; one line of text says the same (vgpuctl/model/rule_text.py)."""

from typing import Any

from vgpuctl.model.rule_text import describe_icmp_type, parse_icmp_type, parse_source
from vgpuctl.model.security_rule import (
    DEFAULT_LOG_RATE,
    HIGHEST_LOG_RATE,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    Direction,
    Protocol,
    Rule,
    RuleAction,
)
from vgpuctl.model.vpc_text import describe_ports, parse_ports
from vgpuctl.specs.field import Choice, Field, Table, Text, Truth, Whole
from vgpuctl.specs.value import Value

_FROM, _TO = "from", "to"


def _rule(values: dict[str, Any], entry: Value) -> Rule:
    """A rule with `to` is one for egress."""
    given = entry.mapping()
    if _FROM in given and _TO in given:
        raise entry.refuse("has both 'from' and 'to'", hint="a rule has one direction: write two rules")
    if _TO in given and values.setdefault("direction", Direction.EGRESS) is not Direction.EGRESS:
        raise given[_TO].refuse("is for rules of direction egress", hint="write 'from', or leave the direction out")
    if _FROM in given and values.get("direction") is Direction.EGRESS:
        raise given[_FROM].refuse("is for rules of direction ingress", hint="write 'to'")
    with entry.located():
        return RULE.build(values)


RULE: Table[Rule] = Table(
    "rule",
    Rule,
    (
        Field("direction", Choice(Direction), "Traffic to the VMs of the group, or from them; `to` says egress too"),
        Field("action", Choice(RuleAction), "What happens to the traffic: reject answers the sender, deny does not"),
        Field("protocol", Choice(Protocol), "Protocol"),
        Field("ports", Text(parse_ports, describe_ports, takes_numbers=True), "Ports of tcp or udp: 80, or 8000-8010"),
        Field("type", Text(parse_icmp_type, describe_icmp_type), "Type of icmp: echo-request, or type-8", "icmp_type"),
        Field(_FROM, Text(parse_source), "Source: a network, group:NAME or addresses:NAME", "source"),
        Field(_TO, Text(parse_source), "Destination of egress: a network, group:NAME or addresses:NAME", "source"),
        Field(
            "priority",
            Whole(LOWEST_PRIORITY, HIGHEST_PRIORITY),
            "The highest decides; of equal ones deny before reject before allow",
        ),
        Field("stateless", Truth(), "No connection tracking; the answers are allowed by their ports alone"),
        Field(
            "log",
            Whole(1, HIGHEST_LOG_RATE),
            f"Packets to log per second, in ovn-controller's log; true is {DEFAULT_LOG_RATE}",
            "log_per_s",
            words={True: DEFAULT_LOG_RATE, False: None},
        ),
    ),
    make=_rule,
)
