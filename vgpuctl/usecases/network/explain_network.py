# SPDX-License-Identifier: Apache-2.0
"""explain-network: whether traffic passes between two ends, and the rule that decides.

OVN's own flows answer, by ovn-trace. Where its southbound database cannot be asked, the store answers what it knows.
"""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import OvnError, UsageError
from vgpuctl.model.network import is_ipv6, mac_address
from vgpuctl.model.routes import next_hops_of, route_for
from vgpuctl.model.rule_text import describe_rule
from vgpuctl.model.security_decisions import Decided, Traffic, decide
from vgpuctl.model.security_rule import ICMP6_TYPES, Direction, Protocol, RuleAction
from vgpuctl.model.vpc import Route, Vpc, VpcPort, ovn_name
from vgpuctl.ovn.security import SecurityAcl
from vgpuctl.ovn.topology import vpc_rows
from vgpuctl.ovn.tracing import Traced
from vgpuctl.usecases.network.network_ends import (
    End,
    NetworkEnd,
    behind_route,
    find_end,
    network_of,
    of_one_version,
    shared_network,
)
from vgpuctl.usecases.network.vpc import read_vpc
from vgpuctl.usecases.running.services import Services

BY_OVN, BY_STORE = "ovn-trace", "store"
_OUTSIDE_MAC = "52:00:00:00:00:01"
_NOT_LOOKED_AT = "OVN was not asked: port security, balancers, chassis and tunnels were not looked at"
_AT_NEXT_HOP = "ls_out_apply_port_sec"
_BY_PREFIX = "the next hop's port takes its route's prefix: the store says so, as ovn-trace knows no prefixes there"
_FROM_PREFIX = "the sender is behind a route: ovn-trace knows no prefixes in port security"
"""ovn-trace 23.03 compares port security with single addresses; ovn-controller's flows have prefixes too."""
_ACTIONS = {"drop": RuleAction.DENY, "reject": RuleAction.REJECT}
_STAGES = {
    "ls_in_check_port_sec": "port security",
    "ls_in_apply_port_sec": "port security",
    "ls_out_check_port_sec": "port security",
    "ls_in_l2_lkup": "no port of the network has the destination's MAC address",
    "ls_in_l2_unknown": "no port of the network has the destination's MAC address",
    "lr_in_ip_routing": "the router has no route",
    "lr_in_policy": "what comes from behind a route does not leave the tenant's own networks",
    "lr_in_admission": "the router does not take it: the network is isolated, or no host has the gateway",
    "lr_in_arp_request": "nobody has the address of the next hop",
}
"""Stages of OVN's pipeline (ovn-northd(8)) in words."""


@dataclass(frozen=True)
class RuleDecision:
    """What decided at one end. group, rule: None where no rule is about the traffic; reason says what decides then."""

    direction: Direction
    vm: str
    action: RuleAction
    group: str | None
    rule: str | None
    reason: str


@dataclass(frozen=True)
class ExplainedTraffic:
    """Whether the traffic passes. is_allowed: None if the store alone cannot know. answered_by: `ovn-trace` or `store`.

    way: the networks and routers that the packet goes through, as OVN tells. reason: what ends its way, if no rule
    does. route: the tenant's static route that decides where it goes, None for another. remarks: what was not looked
    at, and why.
    """

    tenant: str
    sender: NetworkEnd
    receiver: NetworkEnd
    traffic: str
    is_allowed: bool | None
    answered_by: str
    decisions: tuple[RuleDecision, ...]
    way: tuple[str, ...] = ()
    reason: str = ""
    route: str | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Question:
    vpc: Vpc
    peers: tuple[Vpc, ...]
    sender: End
    receiver: End
    traffic: Traffic

    @property
    def vpcs(self) -> tuple[Vpc, ...]:
        return (self.vpc, *self.peers)


def explain_network(services: Services, tenant: str, sender: str, receiver: str, traffic: Traffic) -> ExplainedTraffic:
    """Explain what becomes of the first packet of a connection. sender, receiver: a VM, an address, or `outside`.

    Raises NotFound for a VM that is not there, StateError for one without an interface in a network of OVN's, and
    UsageError for ends that no packet of this tenant goes between.
    """
    with services.store.reading() as session:
        session.tenant(tenant)
        vpc = read_vpc(session, tenant)
        peers = tuple(read_vpc(session, peering.tenant) for peering in vpc.peerings)
        names = [vm.request.name for vm in session.vms(tenant=tenant)]
    shared = shared_network(vpc, sender, receiver)
    source, target = (find_end(vpc, peers, one, shared, names) for one in (sender, receiver))
    source = behind_route(vpc, source)
    if source.port is None and target.port is None:
        raise UsageError(
            f"neither {sender} nor {receiver} is a VM of tenant {tenant}", hint="give the name of a VM, or its address"
        )
    source, target = of_one_version(source, target)
    if traffic.icmp_type is not None and is_ipv6(target.shown.address) and traffic.icmp_type not in ICMP6_TYPES:
        raise UsageError(f"{traffic} is of ICMPv4 alone, and {target.shown.address} is an IPv6 address")
    if source.port is None and _is_inside((vpc, *peers), source.shown.address):
        raise UsageError(f"no VM of tenant {tenant} has {sender}", hint="give the name of a VM, or an address outside")
    if source.shown.address == target.shown.address:
        raise UsageError(f"{sender} and {receiver} are the same end", hint="give two different ends")
    if source.port is not None and source.vpc is not vpc:
        raise UsageError(f"{sender} is a VM of another tenant", hint="give --tenant of the sender's tenant")
    return _explain(services, _Question(vpc, peers, source, target, traffic))


def _explain(services: Services, question: _Question) -> ExplainedTraffic:
    entry = None
    if question.sender.port is None:
        entry = _way_in(question)
        if entry is None:
            reason = (
                f"VM {question.receiver.shown.vm} has no floating IP, and no port forward leads to its "
                f"{question.traffic}"
            )
            return _answer(question, is_allowed=False, answered_by=BY_STORE, reason=reason)
    tracer = services.tracer
    if tracer is None:
        remark = "OVN's southbound database was not named: set VGPUCTL_OVN_SOUTHBOUND"
        return _by_store(question, remark)
    if _is_foreign(question.sender):
        return _by_store(question, _FROM_PREFIX)
    switch, packet = _packet_in(question, *entry) if entry is not None else _packet_out(question)
    try:
        return _by_ovn(question, tracer.trace(switch, packet, question.vpcs))
    except OvnError as error:
        return _by_store(question, error.message)


def _by_ovn(question: _Question, traced: Traced) -> ExplainedTraffic:
    route = _route_of(question, traced.prefixes)
    decisions = tuple(_decision(question, acl, route) for acl in traced.acls)
    is_allowed = _has_arrived(question, traced)
    is_open = all(one.action is RuleAction.ALLOW for one in decisions)
    reason, remarks = "", tuple[str, ...]()
    if not is_allowed and is_open and traced.last_stage == _AT_NEXT_HOP and route is not None:
        is_allowed, remarks = True, (_BY_PREFIX,)
    if not is_allowed and route is not None and not next_hops_of(question.vpc, route):
        reason = f"route {route.prefix} drops its packets"
    elif not is_allowed and is_open:
        reason = _STAGES.get(traced.last_stage, f"its way ends in OVN's stage {traced.last_stage}")
    places = dict(_places(question))
    way = tuple(dict.fromkeys(places.get(port, port) for port in traced.inports))
    answer = _answer(question, is_allowed=is_allowed, answered_by=BY_OVN, reason=reason)
    return replace(answer, decisions=decisions, way=way, route=_written(route), remarks=remarks)


def _has_arrived(question: _Question, traced: Traced) -> bool:
    """True if the packet leaves by the receiver's port. An address that no VM has can be a balancer's, or outside.

    To go outside, OVN may have to ask for the next hop's address first.
    """
    receiver, sender = question.receiver.port, question.sender.port
    if receiver is not None:
        return receiver.port.id in traced.outputs
    external = question.vpc.external_network
    asked = [] if external is None else [name for name in traced.questions if name == _localnet(external.name)]
    return any(sender is None or name != sender.port.id for name in (*traced.outputs, *asked))


def _by_store(question: _Question, why: str) -> ExplainedTraffic:
    decisions = tuple(_decisions_of_store(question))
    is_open = all(one.action is RuleAction.ALLOW for one in decisions)
    has_way, reason = _way_of_store(question)
    is_allowed = False if not is_open else has_way
    shown = reason if is_open and has_way is not True else ""
    answer = _answer(question, is_allowed=is_allowed, answered_by=BY_STORE, reason=shown)
    route = None if question.receiver.port is not None else route_for(question.vpc, question.receiver.shown.address)
    return replace(answer, decisions=decisions, route=_written(route), remarks=(why, _NOT_LOOKED_AT))


def _decisions_of_store(question: _Question) -> Iterator[RuleDecision]:
    sender, receiver = question.sender, question.receiver
    if sender.port is not None and sender.vpc is not None:
        decided = decide(sender.vpc, sender.port, Direction.EGRESS, receiver.shown.address, question.traffic)
        yield _shown(Direction.EGRESS, sender.port.vm, decided)
        if decided.action is not RuleAction.ALLOW:
            return
    port, vpc = (receiver.port, receiver.vpc) if receiver.port is not None else (_only_hop(question), question.vpc)
    if port is not None and vpc is not None:
        decided = decide(vpc, port, Direction.INGRESS, sender.shown.address, question.traffic)
        yield _shown(Direction.INGRESS, port.vm, decided)


def _only_hop(question: _Question) -> VpcPort | None:
    """The port that every packet to the receiver's address goes to first, where a static route leads to one VM."""
    route = route_for(question.vpc, question.receiver.shown.address)
    hops = [] if route is None else next_hops_of(question.vpc, route)
    return hops[0].port if len(hops) == 1 else None


def _way_of_store(question: _Question) -> tuple[bool | None, str]:
    """Whether the store knows a way for the packet; None where it cannot know."""
    ends = [one for one in (question.sender, question.receiver) if one.port is not None]
    networks = [network for one in ends if (network := network_of(one)) is not None]
    is_one_network = len({network.id for network in networks}) == 1 and len(ends) > 1
    for network in networks:
        if network.request.isolated and not is_one_network:
            return False, f"network {network.request.name} is isolated"
    if question.receiver.port is not None:
        return True, ""
    address = question.receiver.shown.address
    route = route_for(question.vpc, address)
    if route is not None:
        return _way_over(question, route)
    if _is_foreign(question.sender) and not _is_inside((question.vpc,), address):
        return False, _STAGES["lr_in_policy"]
    if _is_inside(question.vpcs, address):
        return None, f"no VM has {address}: it may be a load balancer's"
    if question.vpc.external_network is None:
        return False, f"tenant {question.vpc.tenant} has no gateway"
    return True, ""


def _is_foreign(end: End) -> bool:
    """True for an address behind a route, which sends by the port of a VM."""
    return end.port is not None and end.shown.address not in end.port.port.addresses


def _way_over(question: _Question, route: Route) -> tuple[bool | None, str]:
    """The same where a static route decides: its next hops must let the packet in."""
    hops = next_hops_of(question.vpc, route)
    if not hops:
        return False, f"route {route.prefix} drops its packets"
    ends = question.sender.shown.address, question.traffic
    ports = [hop.port for hop in hops if hop.port is not None]
    closed = [one for one in ports if decide(question.vpc, one, Direction.INGRESS, *ends).action != RuleAction.ALLOW]
    names = ", ".join(one.vm for one in closed)
    return None if 0 < len(closed) < len(hops) else not closed, f"{names} does not let it in" if closed else ""


def _route_of(question: _Question, prefixes: Sequence[str]) -> Route | None:
    """The tenant's route among the prefixes that OVN's routers chose."""
    found = {route.prefix: route for route in question.vpc.routes}
    return next((found[one] for one in prefixes if one in found), None)


def _written(route: Route | None) -> str | None:
    return None if route is None else f"{route.prefix} via {', '.join(route.next_hops)}"


def _is_inside(vpcs: Sequence[Vpc], address: str) -> bool:
    """True if an address is of a tenant's network."""
    found = ipaddress.ip_address(address)
    return any(found in subnet for vpc in vpcs for network in vpc.networks for subnet in network.subnets)


def _decision(question: _Question, acl: SecurityAcl, route: Route | None) -> RuleDecision:
    direction = Direction.EGRESS if acl.side == "from-lport" else Direction.INGRESS
    end = question.sender if direction is Direction.EGRESS else question.receiver
    decided = Decided(_ACTIONS.get(acl.action, RuleAction.ALLOW), acl.group, acl.rule, acl.reason)
    by_route = ", ".join(route.vms) if route is not None and direction is Direction.INGRESS else ""
    return _shown(direction, end.shown.vm or by_route or end.shown.name, decided)


def _shown(direction: Direction, vm: str, decided: Decided) -> RuleDecision:
    rule = None if decided.rule is None else describe_rule(decided.rule)
    return RuleDecision(direction, vm, decided.action, decided.group, rule, decided.reason)


def _answer(question: _Question, *, is_allowed: bool | None, answered_by: str, reason: str) -> ExplainedTraffic:
    return ExplainedTraffic(
        question.vpc.tenant,
        question.sender.shown,
        question.receiver.shown,
        str(question.traffic),
        is_allowed,
        answered_by,
        (),
        reason=reason,
    )


def _way_in(question: _Question) -> tuple[str, Traffic] | None:
    """The external address and traffic by which the receiver is reached from outside: a floating IP, or a forward."""
    vm, traffic, network = question.receiver.shown.vm, question.traffic, network_of(question.receiver)
    is_six = is_ipv6(question.receiver.shown.address)
    if is_six and network is not None and network.request.cidr6 in question.vpc.routed6:
        return question.receiver.shown.address, traffic
    for floating_ip in question.vpc.floating_ips:
        address = floating_ip.address6 if is_six else floating_ip.address
        if floating_ip.vm == vm and address:
            return address, traffic
    for forward in question.vpc.forwards:
        address = forward.address6 if is_six else forward.address
        wanted = (vm, str(traffic.protocol), traffic.port)
        if (forward.vm, str(forward.protocol), forward.vm_port) == wanted and address:
            return address, replace(traffic, port=forward.port)
    return None


def _packet_in(question: _Question, address: str, traffic: Traffic) -> tuple[str, str]:
    """The switch of the external network, and a packet that comes from outside."""
    external = question.vpc.external_network
    assert external is not None  # floating IPs and forwards need a gateway
    fields = {
        "inport": f'"{_localnet(external.name)}"',
        "eth.src": _OUTSIDE_MAC,
        "eth.dst": mac_address(f"{question.vpc.tenant}/external"),
    }
    return ovn_name("x", external.name), _packet(fields, question.sender.shown.address, address, traffic)


def _packet_out(question: _Question) -> tuple[str, str]:
    """The sender's switch, and a packet that it sends."""
    sender, network = question.sender.port, network_of(question.sender)
    assert sender is not None and network is not None
    receiver = question.receiver.port
    is_neighbour = receiver is not None and receiver.port.network_id == network.id
    fields = {
        "inport": f'"{sender.port.id}"',
        "eth.src": sender.port.mac_address,
        "eth.dst": receiver.port.mac_address if receiver and is_neighbour else mac_address(f"{network.id}/gateway"),
    }
    ends = (question.sender.shown.address, question.receiver.shown.address)
    return ovn_name("s", network.id), _packet(fields, *ends, question.traffic)


def _packet(fields: dict[str, str], source: str, target: str, traffic: Traffic) -> str:
    version = 6 if is_ipv6(target) else 4
    given = {**fields, f"ip{version}.src": source, f"ip{version}.dst": target, "ip.ttl": "64"}
    last = f"{traffic.protocol}.dst == {traffic.port}"
    if traffic.protocol is Protocol.ICMP and traffic.icmp_type is not None:
        number = traffic.icmp_type if version == 4 else ICMP6_TYPES[traffic.icmp_type]
        last = f"icmp{version}.type == {number}"
    return " && ".join((*(f"{name} == {value}" for name, value in given.items()), last))


def _places(question: _Question) -> Iterator[tuple[str, str]]:
    """Every port of switches and routers, with the name of its switch or router in the user's words."""
    for vpc in question.vpcs:
        prefix = "" if vpc is question.vpc else f"{vpc.tenant}/"
        networks = {f"switch/{network.id}": f"{prefix}{network.request.name}" for network in vpc.networks}
        rows = vpc_rows(vpc)
        names = {row.reference: str(row.columns.get("name")) for row in rows}
        for row in rows:
            if row.table in ("Logical_Switch", "Logical_Router"):
                place = networks.get(row.key, f"{prefix}router")
                yield from ((names[port], place) for port in row.references.get("ports", ()))
            if row.parent is not None and vpc.external_network is not None:
                yield names[row.reference], vpc.external_network.name
        if vpc.external_network is not None:
            yield _localnet(vpc.external_network.name), vpc.external_network.name


def _localnet(external: str) -> str:
    return ovn_name("x", external, "localnet")
