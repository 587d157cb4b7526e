# SPDX-License-Identifier: Apache-2.0
"""Security groups as OVN's port groups, their address sets and ACLs: inbound nothing but what a group allows."""

import hashlib
from collections.abc import Iterator

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
        _acl("out", "from-lport", _OUT_PRIORITY, "allow-related", f"inport == @{all_ports} && ip4"),
        _acl(
            "dhcp", "from-lport", _NEVER_PRIORITY, "drop", f"inport == @{all_ports} && udp.src == 67 && udp.dst == 68"
        ),
        _acl("in", "to-lport", _DROP_PRIORITY, "drop", f"outport == @{all_ports} && ip"),
    ]
    if vpc.external_network is not None and vpc.external_network.management:
        management = ovn_name("m", vpc.tenant)
        yield Row("Address_Set", "management", {"name": management, "addresses": list(vpc.external_network.management)})
        match = f"inport == @{all_ports} && ip4.dst == ${management}"
        acls.append(_acl("management", "from-lport", _NEVER_PRIORITY, "drop", match))
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
    """The rule as OVN's expression. northd makes the address set `<port group>_ip4` of every port group."""
    parts = ["ip4" if rule.protocol is Protocol.ANY else f"{rule.protocol}4" if rule.protocol is Protocol.ICMP else ""]
    if rule.protocol.has_ports():
        parts = ["ip4", str(rule.protocol)]
        if rule.ports is not None:
            first, last = rule.ports
            field = f"{rule.protocol}.dst"
            parts.append(f"{field} == {first}" if first == last else f"{field} >= {first} && {field} <= {last}")
    if rule.source_group is not None:
        parts.append(f"ip4.src == ${ovn_name('p', tenant, rule.source_group)}_ip4")
    elif rule.source != ANYWHERE:
        parts.append(f"ip4.src == {rule.source}")
    return " && ".join(parts)


def _acl(key: str, direction: str, priority: int, action: str, match: str) -> Row:
    return Row("ACL", key, {"direction": direction, "priority": priority, "action": action, "match": match})


def _port_group(key: str, name: str, ports: list[Reference], acls: list[Row]) -> Row:
    references = {"ports": tuple(ports), "acls": tuple(acl.reference for acl in acls)}
    return Row("Port_Group", key, {"name": name}, references)
