# SPDX-License-Identifier: Apache-2.0
"""Which security rule decides about a packet, and which rules never do. Pure: ovn/security makes OVN decide alike."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from vgpuctl.errors import UsageError
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import Subnet, is_ipv6, monitor_of
from vgpuctl.model.rule_text import describe_icmp_type, describe_rule, parse_icmp_type
from vgpuctl.model.security_rule import ANYWHERE, ICMP_ANSWERS, Direction, EgressDefault, Protocol, Rule, RuleAction
from vgpuctl.model.vpc import DEFAULT_GROUP, SecurityGroup, Vpc, VpcPort
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.model.vpc_text import parse_ports

OWN_DEFAULT = SecurityGroup(DEFAULT_GROUP, (Rule(source=f"group:{DEFAULT_GROUP}"),))
"""The group of ports that name none, unless the tenant has one of this name."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_ALL = ("0.0.0.0/0", "::/0")


@dataclass(frozen=True)
class Traffic:
    """A packet that begins a connection. port: of tcp and udp. icmp_type: of icmp."""

    protocol: Protocol
    port: int | None = None
    icmp_type: int | None = None

    def __str__(self) -> str:
        """As a user writes it: `tcp/443`."""
        if self.icmp_type is not None:
            return f"{self.protocol}/{describe_icmp_type(self.icmp_type)}"
        return f"{self.protocol}/{self.port}"


def parse_traffic(text: str, *, what: str = "TRAFFIC") -> Traffic:
    """Read `tcp/443`, `udp/53`, `icmp` (an echo request) or `icmp/TYPE`. Raises UsageError."""
    name, slash, rest = text.partition("/")
    if name == Protocol.ICMP:
        return Traffic(Protocol.ICMP, icmp_type=parse_icmp_type(rest if slash else "echo-request", what=what))
    if name not in (Protocol.TCP, Protocol.UDP) or not slash:
        raise UsageError(f"{what} is {text[:80]!a}", hint="write tcp/443, udp/53, icmp or icmp/TYPE")
    first, last = parse_ports(rest, what=what)
    if first != last:
        raise UsageError(f"{what} is {text[:80]!a}, not one port", hint="write tcp/443")
    return Traffic(Protocol(name), first)


@dataclass(frozen=True)
class Decided:
    """What becomes of a packet. group, rule: None where no rule fits; then reason says what decides."""

    action: RuleAction
    group: str | None = None
    rule: Rule | None = None
    reason: str = ""


def security_groups(vpc: Vpc) -> dict[str, SecurityGroup]:
    """The tenant's groups by name, with the one that ports without a group are in."""
    return {group.name: group for group in (OWN_DEFAULT, *vpc.groups)}


def groups_of(port: VpcPort) -> tuple[str, ...]:
    """The names of a port's groups."""
    return port.groups or (DEFAULT_GROUP,)


def decide(vpc: Vpc, port: VpcPort, direction: Direction, other: str, traffic: Traffic) -> Decided:
    """What becomes of a packet at a port. other: the address at the other end."""
    address = ipaddress.ip_address(other)
    external = vpc.external_network if direction is Direction.EGRESS else None
    if external is not None and any(address in ipaddress.ip_network(one) for one in external.management):
        return Decided(RuleAction.DENY, reason=f"it is a management network of {external.name}")
    groups = security_groups(vpc)
    fitting = [
        (rule.rank, -number, name, rule)
        for number, name in enumerate(groups_of(port))
        if name in groups
        for rule in groups[name].rules
        if _fits(vpc, rule, direction, address, traffic)
    ]
    if fitting:
        _rank, _number, name, rule = max(fitting, key=lambda one: one[:2])
        return Decided(rule.action, name, rule)
    if direction is Direction.INGRESS:
        return Decided(RuleAction.DENY, reason="no rule allows it")
    action = RuleAction.DENY if vpc.egress is EgressDefault.DENY else RuleAction.ALLOW
    return Decided(action, reason=f"the tenant's default for egress is {vpc.egress}")


def rules_that_never_match(vpc: Vpc) -> Iterator[tuple[SecurityGroup, str]]:
    """The rules that have no effect, with the reason in words. A rule is compared with single others of its group."""
    for group in vpc.groups:
        for rule in group.rules:
            reason = _why_never(vpc, group, rule)
            if reason is not None:
                yield group, f"{describe_rule(rule)} never matches: {reason}"


def hidden_backends(vpc: Vpc) -> Iterator[tuple[VpcKind, str, str]]:
    """VMs behind balancers that no connection reaches although their health checks pass: kind, key, and the warning.

    OVN's health checks pass all ACLs (northd: `eth.src == $svc_monitor_mac`), so they say nothing about the rules.
    A balancer that reads HTTP connects from the addresses of its instances, and its own checks obey the rules.
    """
    networks = {network.id: network for network in vpc.networks}
    for balancer in vpc.balancers:
        if balancer.protocol.is_http():
            yield from _hidden_members(vpc, balancer)
            continue
        for vm in balancer.vms:
            port = vpc.port_in(vm, balancer.network)
            if port is None:
                continue
            traffic = Traffic(Protocol(balancer.protocol.transport), balancer.vm_port)
            if not _is_open(vpc, port, traffic):
                groups = ", ".join(groups_of(port))
                text = f"no rule of VM {vm}'s security groups ({groups}) allows {traffic}, so it answers no client"
                yield VpcKind.LOAD_BALANCER, balancer.name, text
                continue
            for subnet in networks[port.port.network_id].subnets:
                monitor = monitor_of(subnet)
                decided = decide(vpc, port, Direction.INGRESS, monitor, traffic)
                if decided.rule is None or decided.group is None or decided.action is RuleAction.ALLOW:
                    continue
                text = (
                    f"rule {describe_rule(decided.rule)} of security group {decided.group} is about the health checks "
                    f"of load balancer {balancer.name} to VM {vm} ({traffic} from {monitor}); OVN lets these pass, so "
                    "the balancer goes on to send connections there"
                )
                yield VpcKind.SECURITY_GROUP, decided.group, text
                yield VpcKind.LOAD_BALANCER, balancer.name, text


def _hidden_members(vpc: Vpc, balancer: LoadBalancer) -> Iterator[tuple[VpcKind, str, str]]:
    """Members of pools that the balancer's instances cannot connect to."""
    for pool in balancer.all_pools:
        traffic = Traffic(Protocol.TCP, pool.vm_port or balancer.vm_port)
        for vm in pool.vms:
            port = vpc.port_in(vm, balancer.network)
            if port is None:
                continue
            version = is_ipv6(port.port.address)
            sources = [one for instance in balancer.instances for one in instance if is_ipv6(one) == version]
            refused = [
                one
                for one in sources
                if decide(vpc, port, Direction.INGRESS, one, traffic).action is not RuleAction.ALLOW
            ]
            if refused:
                groups = ", ".join(groups_of(port))
                yield (
                    VpcKind.LOAD_BALANCER,
                    balancer.name,
                    f"no rule of VM {vm}'s security groups ({groups}) allows {traffic} from the balancer's instances"
                    f" ({', '.join(refused)}), so it gets no request: allow it from the network {balancer.network}",
                )


def _is_open(vpc: Vpc, port: VpcPort, traffic: Traffic) -> bool:
    """True if a rule allows this traffic to the port, from wherever."""
    groups = security_groups(vpc)
    return any(
        rule.direction is Direction.INGRESS and rule.action is RuleAction.ALLOW and _is_about(rule, traffic)
        for name in groups_of(port)
        if name in groups
        for rule in groups[name].rules
    )


def _fits(vpc: Vpc, rule: Rule, direction: Direction, other: _Address, traffic: Traffic) -> bool:
    is_about = _is_about(rule, traffic) if rule.direction is direction else _is_answer(rule, traffic)
    return is_about and any(other in one for one in _peer(vpc, rule))


def _is_answer(rule: Rule, traffic: Traffic) -> bool:
    """True if a stateless rule of the other direction takes the traffic for an answer, whatever port it comes from."""
    if not rule.stateless or rule.ports is not None or rule.protocol not in (Protocol.ANY, traffic.protocol):
        return False
    return rule.icmp_type is None or ICMP_ANSWERS.get(rule.icmp_type) == traffic.icmp_type


def _is_about(rule: Rule, traffic: Traffic) -> bool:
    if rule.protocol not in (Protocol.ANY, traffic.protocol):
        return False
    if rule.ports is not None and (traffic.port is None or not rule.ports[0] <= traffic.port <= rule.ports[1]):
        return False
    return rule.icmp_type in (None, traffic.icmp_type)


def _peer(vpc: Vpc, rule: Rule) -> list[Subnet]:
    """The addresses of a rule's other end."""
    if rule.source_group is not None:
        members = (port for port in vpc.ports if rule.source_group in groups_of(port))
        return [ipaddress.ip_network(address) for port in members for address in port.port.addresses]
    if rule.address_group is not None:
        found = (one for one in vpc.address_groups if one.name == rule.address_group)
        return [ipaddress.ip_network(address) for one in found for address in one.addresses]
    return [ipaddress.ip_network(one) for one in ([rule.network] if rule.network else _ALL)]


def _why_never(vpc: Vpc, group: SecurityGroup, rule: Rule) -> str | None:
    if not _peer(vpc, rule):
        if rule.source_group is not None:
            return f"security group {rule.source_group} has no members"
        return f"address group {rule.address_group} is empty"
    place = group.rules.index(rule)
    for number, other in enumerate(group.rules):
        is_first = other.rank > rule.rank or (other.rank == rule.rank and number < place)
        covers_more = other.rank == rule.rank and not _covers(vpc, rule, other)
        if number != place and (is_first or covers_more) and _covers(vpc, other, rule):
            return f"{describe_rule(other)} decides first"
    return None


def _covers(vpc: Vpc, one: Rule, other: Rule) -> bool:
    """True if a rule is about all traffic of another one."""
    if one.direction is not other.direction or one.protocol not in (Protocol.ANY, other.protocol):
        return False
    if one.ports is not None and not _holds(one.ports, other.ports):
        return False
    if one.icmp_type not in (None, other.icmp_type):
        return False
    if one.source in (ANYWHERE, other.source):
        return True
    if one.source_group is not None or other.source_group is not None:
        return False  # who is in them changes
    wholes = _peer(vpc, one)
    return all(any(_is_within(part, whole) for whole in wholes) for part in _peer(vpc, other))


def _is_within(part: Subnet, whole: Subnet) -> bool:
    return part.version == whole.version and part.overlaps(whole) and part.prefixlen >= whole.prefixlen


def _holds(ports: tuple[int, int], inner: tuple[int, int] | None) -> bool:
    return inner is not None and ports[0] <= inner[0] and inner[1] <= ports[1]
