# SPDX-License-Identifier: Apache-2.0
"""Security groups as OVN's port groups, address sets and ACLs: of the rules that fit a packet the first one decides."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.network import is_ipv6
from vgpuctl.model.rule_text import describe_traffic
from vgpuctl.model.security_decisions import groups_of, security_groups
from vgpuctl.model.security_rule import (
    ANYWHERE,
    ICMP6_TYPES,
    ICMP_ANSWERS,
    Direction,
    EgressDefault,
    Protocol,
    Rule,
    RuleAction,
)
from vgpuctl.model.vpc import SecurityGroup, Vpc, ovn_name
from vgpuctl.ovn.rows import Reference, Row

_NEVER_PRIORITY, _RULES_PRIORITY, _OUT_PRIORITY, _DROP_PRIORITY = 30_000, 2000, 1001, 1000
_SIDES = {Direction.EGRESS: "from-lport", Direction.INGRESS: "to-lport"}
_PORTS = {"from-lport": "inport", "to-lport": "outport"}
_ACTIONS = {RuleAction.ALLOW: "allow-related", RuleAction.DENY: "drop", RuleAction.REJECT: "reject"}
_LONGEST_NAME = 63
"""Of an ACL, in ovn-nb.ovsschema."""
_SEVERITY = "info"


@dataclass(frozen=True)
class SecurityAcl:
    """One ACL. side: `from-lport` for what a VM sends, `to-lport` for what it gets. group, rule: None for vgpuctl's own
    ACLs, whose reason says what they are for. is_answer: it admits the answers to a stateless rule's traffic.
    """

    key: str
    side: str
    priority: int
    action: str
    match: str
    group: str | None = None
    rule: Rule | None = None
    is_answer: bool = False
    reason: str = ""


def security_rows(vpc: Vpc) -> Iterator[Row]:
    """The port group of all the tenant's ports with what holds for each, and one port group for each security group.

    A port that names no group is in `default`, whose members reach one another unless the tenant says otherwise.
    """
    groups = security_groups(vpc)
    members: dict[str, list[Reference]] = {name: [] for name in groups}
    everybody: list[Reference] = []
    for port in vpc.ports:
        reference = Reference("Logical_Switch_Port", f"port/{port.port.id}")
        everybody.append(reference)
        for name in dict.fromkeys(groups_of(port)):
            if name in members:
                members[name].append(reference)
    for key, (name, _version, parts) in _management(vpc).items():
        yield Row("Address_Set", key, {"name": name, "addresses": parts})
    for group in vpc.address_groups:
        for name, parts in zip(address_sets(vpc.tenant, group.name), _by_version(group.addresses), strict=True):
            yield Row("Address_Set", f"addresses/{group.name}/{name}", {"name": name, "addresses": parts})
    yield from _meters(vpc)
    yield from _port_group("everybody", ovn_name("p", vpc.tenant), everybody, _own_acls(vpc), vpc.tenant)
    functions = [Reference("Logical_Switch_Port", f"function/{place.name}") for place in vpc.functions]
    if functions:
        yield from _port_group("functions", _functions(vpc), functions, _function_acls(vpc), vpc.tenant)
    for name, security_group in groups.items():
        port_group = ovn_name("p", vpc.tenant, name)
        acls = _group_acls(vpc, security_group)
        yield from _port_group(f"group/{name}", port_group, members[name], acls, vpc.tenant)


def security_acls(vpc: Vpc) -> list[SecurityAcl]:
    """Every ACL of a tenant's VMs."""
    return [*_own_acls(vpc), *(acl for group in security_groups(vpc).values() for acl in _group_acls(vpc, group))]


def _own_acls(vpc: Vpc) -> list[SecurityAcl]:
    """What holds for all ports of the tenant, whatever its rules say, and what no rule is about."""
    ports = ovn_name("p", vpc.tenant)
    reason = f"the tenant's default for egress is {vpc.egress}"
    out = SecurityAcl("out", "from-lport", _OUT_PRIORITY, "allow-related", f"inport == @{ports} && ip", reason=reason)
    if vpc.egress is EgressDefault.DENY:
        out = replace(out, priority=_DROP_PRIORITY, action="drop")
    acls = [
        out,
        SecurityAcl("in", "to-lport", _DROP_PRIORITY, "drop", f"outport == @{ports} && ip", reason="no rule allows it"),
    ]
    servers = sorted({one for network in vpc.networks for one in network.gateways if not is_ipv6(one)})
    asked = f"ip4.dst == {{{', '.join(('255.255.255.255', *servers))}}}"
    never = [
        ("asks-dhcp", "allow-related", f"udp.src == 68 && udp.dst == 67 && {asked}", "DHCP is allowed"),
        ("dhcp", "drop", "udp.src == 67 && udp.dst == 68", "a VM is no DHCP server"),
    ]
    if any(network.request.cidr6 is not None for network in vpc.networks):
        asked = "ip6.dst == ff02::1:2"
        never.append(("asks-dhcp6", "allow-related", f"udp.src == 546 && udp.dst == 547 && {asked}", "DHCP is allowed"))
        never.append(("dhcp6", "drop", "ip6 && udp.src == 547 && udp.dst == 546", "a VM is no DHCP server"))
    for key, (name, version, _parts) in _management(vpc).items():
        assert vpc.external_network is not None
        why = f"it is a management network of {vpc.external_network.name}"
        never.append((key, "drop", f"{version}.dst == ${name}", why))
    return acls + [
        SecurityAcl(key, "from-lport", _NEVER_PRIORITY, action, f"inport == @{ports} && {match}", reason=why)
        for key, action, match, why in never
    ]


def _functions(vpc: Vpc) -> str:
    """The port group of the tenant's network functions, which rules of its security groups do not bind."""
    return ovn_name("u", vpc.tenant)


def _function_acls(vpc: Vpc) -> list[SecurityAcl]:
    """Functions do not reach management networks either."""
    return [
        SecurityAcl(
            *(f"function/{key}", "from-lport", _NEVER_PRIORITY, "drop"),
            f"inport == @{_functions(vpc)} && {version}.dst == ${name}",
            reason="it is a management network",
        )
        for key, (name, version, _parts) in _management(vpc).items()
    ]


def _management(vpc: Vpc) -> dict[str, tuple[str, str, list[str]]]:
    """The management networks of each IP version, by key: the name of their address set, the version, and they."""
    external = vpc.external_network
    fours, sixes = _by_version(() if external is None else external.management)
    found = {
        "management": (ovn_name("m", vpc.tenant), "ip4", fours),
        "management6": (ovn_name("m6", vpc.tenant), "ip6", sixes),
    }
    return {key: one for key, one in found.items() if one[2]}


def _by_version(networks: Sequence[str]) -> tuple[list[str], list[str]]:
    """The IPv4 networks, and the IPv6 networks."""
    return [one for one in networks if not is_ipv6(one)], [one for one in networks if is_ipv6(one)]


def address_sets(tenant: str, group: str) -> tuple[str, str]:
    """The names of an address group's address sets: of IPv4, and of IPv6."""
    return ovn_name("a", tenant, group), ovn_name("a6", tenant, group)


def _group_acls(vpc: Vpc, group: SecurityGroup) -> list[SecurityAcl]:
    """One ACL for each rule, and one more for the answers to the traffic of a stateless one."""
    acls = []
    for rule in dict.fromkeys(group.rules):
        for is_answer in (False, True) if rule.stateless else (False,):
            match = rule_match(vpc.tenant, rule, is_answer=is_answer)
            if match is None:
                continue
            side = _SIDES[rule.direction]
            if is_answer:
                side = next(one for one in _PORTS if one != side)
            match = f"{_PORTS[side]} == @{ovn_name('p', vpc.tenant, group.name)} && {match}"
            priority = _RULES_PRIORITY + len(RuleAction) * rule.priority + rule.action.rank
            digest = hashlib.sha256(f"{side}/{priority}/{is_answer}/{match}".encode()).hexdigest()[:12]
            action = "allow-stateless" if rule.stateless else _ACTIONS[rule.action]
            acls.append(
                SecurityAcl(f"{group.name}/{digest}", side, priority, action, match, group.name, rule, is_answer)
            )
    return acls


def rule_match(tenant: str, rule: Rule, *, is_answer: bool = False) -> str | None:
    """The traffic of a rule, or the answers to it, as OVN's expression. None for an ICMP type that has no answer.

    A rule whose peer is a network is for that network's IP version alone. northd makes the address sets
    `<port group>_ip4` and `_ip6` of every port group.
    """
    version = ("ip6" if is_ipv6(rule.network) else "ip4") if rule.network else "ip"
    parts = [version]
    if rule.protocol is Protocol.ICMP:
        number = ICMP_ANSWERS.get(rule.icmp_type, -1) if is_answer and rule.icmp_type is not None else rule.icmp_type
        types = {
            "ip4": _icmp("icmp4", number),
            "ip6": _icmp("icmp6", None if number is None else ICMP6_TYPES.get(number, -1)),
        }
        wanted = [text for one, text in types.items() if version in ("ip", one) and text is not None]
        if not wanted:
            return None
        parts = [wanted[0] if len(wanted) == 1 else f"({' || '.join(wanted)})"]
    if rule.protocol.has_ports():
        parts.append(str(rule.protocol))
        if rule.ports is not None:
            first, last = rule.ports
            field = f"{rule.protocol}.{'src' if is_answer else 'dst'}"
            parts.append(f"{field} == {first}" if first == last else f"{field} >= {first} && {field} <= {last}")
    side = "src" if (rule.direction is Direction.INGRESS) is not is_answer else "dst"
    if rule.network:
        parts.append(f"{version}.{side} == {rule.network}")
    elif rule.source != ANYWHERE:
        members = ovn_name("p", tenant, rule.source_group or "")
        sets = address_sets(tenant, rule.address_group) if rule.address_group else (f"{members}_ip4", f"{members}_ip6")
        parts.append(f"(ip4.{side} == ${sets[0]} || ip6.{side} == ${sets[1]})")
    return " && ".join(parts)


def _icmp(name: str, number: int | None) -> str | None:
    """ICMP of one version, of one type or of all (None). None for a type that the version lacks (-1)."""
    if number is None:
        return name
    return None if number < 0 else f"{name}.type == {number}"


def log_name(tenant: str, group: str, rule: Rule) -> str:
    """The name of a rule in ovn-controller's log: `acme/web deny:tcp:22`, with a digest at the end of a long one."""
    text = f"{tenant}/{group} {describe_traffic(rule)}"
    if len(text) <= _LONGEST_NAME:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: _LONGEST_NAME - len(digest) - 1]}~{digest}"


def _meters(vpc: Vpc) -> Iterator[Row]:
    """One meter for each rate of logging. OVN gives each ACL of a fair meter a rate of its own."""
    rates = {rule.log_per_s for group in vpc.groups for rule in group.rules if rule.log_per_s is not None}
    for rate in sorted(rates):
        band = Row("Meter_Band", f"log/{rate}", {"action": "drop", "rate": rate, "burst_size": 0})
        yield band
        columns = {"name": _meter(vpc.tenant, rate), "unit": "pktps", "fair": [True]}
        yield Row("Meter", f"log/{rate}", columns, {"bands": (band.reference,)})


def _meter(tenant: str, rate: int) -> str:
    return ovn_name("l", tenant, str(rate))


def _acl_row(acl: SecurityAcl, tenant: str) -> Row:
    columns: dict[str, object] = {
        "direction": acl.side,
        "priority": acl.priority,
        "action": acl.action,
        "match": acl.match,
    }
    if acl.group is not None and acl.rule is not None:
        rate = acl.rule.log_per_s
        is_logged = rate is not None and not acl.is_answer
        columns["log"] = is_logged
        columns["name"] = [log_name(tenant, acl.group, acl.rule)] if is_logged else []
        columns["severity"] = [_SEVERITY] if is_logged else []
        columns["meter"] = [_meter(tenant, rate)] if is_logged and rate is not None else []
    return Row("ACL", acl.key, columns)


def _port_group(key: str, name: str, ports: list[Reference], acls: list[SecurityAcl], tenant: str) -> Iterator[Row]:
    """A port group behind its ACLs."""
    rows = [_acl_row(acl, tenant) for acl in acls]
    yield from rows
    references = {"ports": tuple(ports), "acls": tuple(row.reference for row in rows)}
    yield Row("Port_Group", key, {"name": name}, references)
