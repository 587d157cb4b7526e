# SPDX-License-Identifier: Apache-2.0
"""Security groups as OVN's port groups, their address sets and ACLs: inbound nothing but what a group allows."""

import hashlib
from collections.abc import Iterator

from vgpuctl.model.network import is_ipv6
from vgpuctl.model.vpc import ANYWHERE, DEFAULT_GROUP, Protocol, Rule, SecurityGroup, Vpc, ovn_name
from vgpuctl.ovn.rows import Reference, Row

_NEVER_PRIORITY, _ALLOW_PRIORITY, _OUT_PRIORITY, _DROP_PRIORITY = 2000, 1002, 1001, 1000
_OWN_DEFAULT = SecurityGroup(DEFAULT_GROUP, (Rule(source=f"group:{DEFAULT_GROUP}"),))


def security_rows(vpc: Vpc) -> Iterator[Row]:
    """The port group of all the tenant's ports with its default deny, and one port group for each security group.

    A port that names no group is in `default`, whose members reach one another unless the tenant says otherwise.
    """
    groups = {group.name: group for group in (_OWN_DEFAULT, *vpc.groups)}
    members: dict[str, list[Reference]] = {name: [] for name in groups}
    everybody: list[Reference] = []
    for port in vpc.ports:
        reference = Reference("Logical_Switch_Port", f"port/{port.port.id}")
        everybody.append(reference)
        for name in dict.fromkeys(port.groups or (DEFAULT_GROUP,)):
            if name in members:
                members[name].append(reference)
    all_ports = ovn_name("p", vpc.tenant)
    acls = [
        _acl("out", "from-lport", _OUT_PRIORITY, "allow-related", f"inport == @{all_ports} && ip"),
        _acl(
            "dhcp", "from-lport", _NEVER_PRIORITY, "drop", f"inport == @{all_ports} && udp.src == 67 && udp.dst == 68"
        ),
        _acl("in", "to-lport", _DROP_PRIORITY, "drop", f"outport == @{all_ports} && ip"),
    ]
    if any(network.request.cidr6 is not None for network in vpc.networks):
        server = f"inport == @{all_ports} && ip6 && udp.src == 547 && udp.dst == 546"
        acls.append(_acl("dhcp6", "from-lport", _NEVER_PRIORITY, "drop", server))
    management = () if vpc.external_network is None else vpc.external_network.management
    for key, kind, parts, field in (
        ("management", "m", [one for one in management if not is_ipv6(one)], "ip4.dst"),
        ("management6", "m6", [one for one in management if is_ipv6(one)], "ip6.dst"),
    ):
        if parts:
            name = ovn_name(kind, vpc.tenant)
            yield Row("Address_Set", key, {"name": name, "addresses": parts})
            match = f"inport == @{all_ports} && {field} == ${name}"
            acls.append(_acl(key, "from-lport", _NEVER_PRIORITY, "drop", match))
    yield from acls
    yield _port_group("everybody", all_ports, everybody, acls)
    for name, group in groups.items():
        yield from _group(vpc, group, members[name])


def _group(vpc: Vpc, group: SecurityGroup, members: list[Reference]) -> Iterator[Row]:
    port_group = ovn_name("p", vpc.tenant, group.name)
    acls = []
    for rule in dict.fromkeys(group.rules):
        match = f"outport == @{port_group} && {_match(vpc.tenant, rule)}"
        digest = hashlib.sha256(match.encode()).hexdigest()[:12]
        acls.append(_acl(f"{group.name}/{digest}", "to-lport", _ALLOW_PRIORITY, "allow-related", match))
    yield from acls
    yield _port_group(f"group/{group.name}", port_group, members, acls)


def _match(tenant: str, rule: Rule) -> str:
    """The rule as OVN's expression. northd makes address sets `<port group>_ip4` and `_ip6` of every port group.

    A rule whose source has one IP version is for that version alone.
    """
    is_network = rule.source_group is None and rule.source != ANYWHERE
    ip = ("ip6" if is_ipv6(rule.source) else "ip4") if is_network else "ip"
    parts = [ip]
    if rule.protocol is Protocol.ICMP:
        parts = [{"ip4": "icmp4", "ip6": "icmp6"}.get(ip, "(icmp4 || icmp6)")]
    if rule.protocol.has_ports():
        parts = [ip, str(rule.protocol)]
        if rule.ports is not None:
            first, last = rule.ports
            field = f"{rule.protocol}.dst"
            parts.append(f"{field} == {first}" if first == last else f"{field} >= {first} && {field} <= {last}")
    if rule.source_group is not None:
        members = ovn_name("p", tenant, rule.source_group)
        parts.append(f"(ip4.src == ${members}_ip4 || ip6.src == ${members}_ip6)")
    elif is_network:
        parts.append(f"{ip}.src == {rule.source}")
    return " && ".join(parts)


def _acl(key: str, direction: str, priority: int, action: str, match: str) -> Row:
    return Row("ACL", key, {"direction": direction, "priority": priority, "action": action, "match": match})


def _port_group(key: str, name: str, ports: list[Reference], acls: list[Row]) -> Row:
    references = {"ports": tuple(ports), "acls": tuple(acl.reference for acl in acls)}
    return Row("Port_Group", key, {"name": name}, references)
