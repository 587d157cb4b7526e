# SPDX-License-Identifier: Apache-2.0
"""Random security rules of three tenants, as a real northd makes flows of them, against a second model of the rules.

The tenants have overlapping networks of both IP versions, groups, address groups and egress policies; two of them may
be peered. A packet is traced by ovn-trace between two ports, or to an address that nobody has. The model here reads the
rules as a user writes them and shares no code with vgpuctl. OVN must deliver what the model delivers, and the rule that
decides must be one that the model names.

A case is a probe. `python -m tests.proof.network_rules --probes 2000 [--seed 42]`
"""

import argparse
import ipaddress
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.ovn_fixture import LocalOvn, missing_for_ovn
from vgpuctl.model.network import Backend, Network, NetworkRequest, NetworkState, Port, mac_address
from vgpuctl.model.rule_text import parse_rule
from vgpuctl.model.security_rule import EgressDefault, Rule
from vgpuctl.model.vpc import AddressGroup, Peering, SecurityGroup, Vpc, VpcPort, ovn_name
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.security import SecurityAcl
from vgpuctl.ovn.topology import tenant_owner, vpc_rows
from vgpuctl.ovn.tracing import PacketTracer, Traced

PROBES_OF_A_WORLD = 100
_PORTS = (22, 53, 80, 443, 8000, 8005)
_GROUPS = ("web", "db", "default")
_ADDRESSES = ("partners", "empty")
_FOREIGN6 = ("fd00::/16", "fd00:0:0:1::/64", "fd00:5::/32", "fd00::4/127", "::/0")
_FOREIGN = ("10.0.0.0/24", "10.0.1.0/24", "10.5.0.0/16", "10.0.0.4/31", "0.0.0.0/1", "172.16.0.0/12")
_ANSWERED = {8: 0, 13: 14}
_TYPES6 = {8: 128, 0: 129}
_TYPES = {"echo-request": 8, "echo-reply": 0, "type-13": 13, "type-42": 42}


@dataclass(frozen=True)
class Written:
    """A rule as a user writes it, in parts. ports: first and last. kind: a type of ICMP."""

    direction: str
    action: str
    protocol: str
    ports: tuple[int, int] | None
    kind: str | None
    peer: str
    priority: int
    is_stateless: bool
    is_logged: bool

    @property
    def line(self) -> str:
        """The rule in one line."""
        ports = "" if self.ports is None else f":{self.ports[0]}-{self.ports[1]}"
        return (
            ("egress:" if self.direction == "egress" else "")
            + ("" if self.action == "allow" else f"{self.action}:")
            + self.protocol
            + (f":{self.kind}" if self.kind else ports)
            + (f"@{self.peer}" if self.peer else "")
            + f",priority={self.priority}"
            + ",stateless" * self.is_stateless
            + ",log" * self.is_logged
        )


@dataclass(frozen=True)
class Machine:
    """A VM with one interface."""

    tenant: str
    name: str
    network: str
    address: str
    address6: str
    groups: tuple[str, ...]

    @property
    def addresses(self) -> tuple[str, str]:
        """Its addresses of both IP versions."""
        return self.address, self.address6

    def beside(self, other: str) -> str:
        """Its address of the same IP version."""
        return self.address6 if ":" in other else self.address


@dataclass(frozen=True)
class Tenant:
    """A tenant as its file declares it. networks: name, both CIDRs and whether it is isolated."""

    name: str
    networks: tuple[tuple[str, str, str, bool], ...]
    machines: tuple[Machine, ...]
    groups: dict[str, tuple[Written, ...]]
    addresses: dict[str, tuple[str, ...]]
    egress: str
    peer: str | None


@dataclass(frozen=True)
class Packet:
    """A packet that begins a connection. ports: of the source and of the destination."""

    protocol: str
    ports: tuple[int, int] = (0, 0)
    kind: int = 0


@dataclass(frozen=True)
class Expected:
    """What the model expects. arrives: the machine that gets the packet. egress, ingress: the rules that may decide
    there, by group; none of them for a default, and None where the packet does not come so far.
    """

    arrives: Machine | None
    egress: frozenset[tuple[str, Written]]
    ingress: frozenset[tuple[str, Written]] | None
    word: str


class Difference(Exception):
    """OVN and the model disagree."""


def generate(chance: random.Random) -> dict[str, Tenant]:
    """Three tenants. The networks of `acme` and `globex` overlap; `initech` may be peered with one of them."""
    peered = chance.choice(("acme", "globex", None))
    tenants = {}
    for name in ("acme", "globex", "initech"):
        prefix, prefix6 = ("10.5", "fd00:5:0") if name == "initech" else ("10.0", "fd00:0:0")
        networks = (
            ("front", f"{prefix}.0.0/24", f"{prefix6}:0::/64", False),
            ("back", f"{prefix}.1.0/24", f"{prefix6}:1::/64", chance.random() < 0.15),
        )
        places = ((0, "front"), (0, "front"), (0, "front"), (1, "back"), (1, "back"))
        machines = tuple(
            Machine(
                *(name, f"vm-{number}", network, f"{prefix}.{place}.{number + 2}"),
                str(ipaddress.ip_address(f"{prefix6}:{place}::{number + 2:x}")),
                _some_groups(chance),
            )
            for number, (place, network) in enumerate(places)
        )
        peer = peered if name == "initech" else "initech" if name == peered else None
        groups = {group: _rules(chance) for group in _GROUPS if group != "default" or chance.random() < 0.5}
        addresses = {"partners": (chance.choice(_FOREIGN), chance.choice(_FOREIGN6)), "empty": ()}
        egress = chance.choice(("allow", "allow", "deny"))
        tenants[name] = Tenant(name, networks, machines, groups, addresses, egress, peer)
    return tenants


def _some_groups(chance: random.Random) -> tuple[str, ...]:
    return tuple(chance.sample(("web", "db"), chance.choice((0, 1, 1, 2))))


def _rules(chance: random.Random) -> tuple[Written, ...]:
    """Rules that do not contradict one another."""
    found: dict[tuple[object, ...], Written] = {}
    for _ in range(chance.choice((1, 3, 5, 8))):
        rule = _rule(chance)
        low, high = rule.ports or (0, 0)
        found.setdefault((rule.priority, rule.direction, rule.protocol, low, high, rule.kind, rule.peer), rule)
    return tuple(found.values())


def _rule(chance: random.Random) -> Written:
    protocol = chance.choice(("tcp", "tcp", "udp", "icmp", "any"))
    ports = tuple(sorted(chance.choices(_PORTS, k=2))) if protocol in ("tcp", "udp") and chance.random() < 0.7 else None
    peers = [
        *[""] * 7,
        *_FOREIGN,
        *(f"group:{one}" for one in _GROUPS[:2]),
        *(f"addresses:{one}" for one in _ADDRESSES),
    ]
    action = chance.choice(("allow", "allow", "allow", "allow", "deny", "reject"))
    peer = chance.choice(peers)
    kinds = [
        one
        for one in _TYPES
        if ":" not in peer.replace("group:", "").replace("addresses:", "") or _TYPES[one] in _TYPES6
    ]
    return Written(
        chance.choice(("ingress", "ingress", "egress")),
        action,
        protocol,
        None if ports is None else (ports[0], ports[1]),
        chance.choice(kinds) if protocol == "icmp" and chance.random() < 0.6 else None,
        peer,
        chance.choice((1, 99, 100, 100, 101, 1000)),
        action == "allow" and chance.random() < 0.2,
        chance.random() < 0.2,
    )


def expect(tenants: dict[str, Tenant], sender: Machine, address: str, packet: Packet) -> Expected:
    """What becomes of a packet, by the words of docs/networks.md."""
    own = tenants[sender.tenant]
    allowed, egress = _decided(own, sender, "egress", address, packet)
    if allowed != "allow":
        return Expected(None, egress, None, f"egress {allowed}")
    receiver = _reached(tenants, sender, address)
    if receiver is None:
        return Expected(None, egress, None, "nowhere")
    allowed, ingress = _decided(tenants[receiver.tenant], receiver, "ingress", sender.beside(address), packet)
    return Expected(receiver if allowed == "allow" else None, egress, ingress, f"ingress {allowed}")


def _reached(tenants: dict[str, Tenant], sender: Machine, address: str) -> Machine | None:
    """The machine to which the sender's networks lead for an address, None for nobody."""
    own = tenants[sender.tenant]
    for machine in own.machines:
        if address in machine.addresses:
            together = machine.network == sender.network
            return machine if together or not (_is_isolated(own, machine) or _is_isolated(own, sender)) else None
    if own.peer is None or _is_isolated(own, sender):
        return None
    peer = tenants[own.peer]
    found = (one for one in peer.machines if address in one.addresses and not _is_isolated(peer, one))
    return next(found, None)


def _is_isolated(tenant: Tenant, machine: Machine) -> bool:
    return next(isolated for name, _cidr, _cidr6, isolated in tenant.networks if name == machine.network)


def _decided(
    tenant: Tenant, machine: Machine, direction: str, other: str, packet: Packet
) -> tuple[str, frozenset[tuple[str, Written]]]:
    """What decides at a machine: the action, and the rules of the highest rank with their groups."""
    fitting = []
    for group in machine.groups or ("default",):
        if group == "default" and group not in tenant.groups:
            if direction == "ingress" and other in _members(tenant, "default"):
                return "allow", frozenset()  # its own rule, which no user wrote
            continue
        fitting += [
            (group, rule) for rule in tenant.groups[group] if _speaks_of(tenant, rule, direction, other, packet)
        ]
    if not fitting:
        return ("deny" if direction == "ingress" else tenant.egress), frozenset()
    strictness = ("allow", "reject", "deny")
    best = max((rule.priority, strictness.index(rule.action)) for _group, rule in fitting)
    chosen = [(group, rule) for group, rule in fitting if (rule.priority, strictness.index(rule.action)) == best]
    return chosen[0][1].action, frozenset(chosen)


def _speaks_of(tenant: Tenant, rule: Written, direction: str, other: str, packet: Packet) -> bool:
    is_answer = rule.direction != direction
    if is_answer and not rule.is_stateless:
        return False
    if rule.protocol not in ("any", packet.protocol):
        return False
    if rule.ports is not None and not rule.ports[0] <= packet.ports[0 if is_answer else 1] <= rule.ports[1]:
        return False
    if rule.kind is not None:
        wanted = _TYPES[rule.kind]
        if packet.kind != (_ANSWERED.get(wanted, -1) if is_answer else wanted):
            return False
    return _is_peer(tenant, rule.peer, other)


def _is_peer(tenant: Tenant, peer: str, other: str) -> bool:
    if not peer:
        return True
    if peer.startswith("group:"):
        return other in _members(tenant, peer.removeprefix("group:"))
    networks = tenant.addresses[peer.removeprefix("addresses:")] if peer.startswith("addresses:") else (peer,)
    return any(ipaddress.ip_address(other) in ipaddress.ip_network(one) for one in networks)


def _members(tenant: Tenant, group: str) -> set[str]:
    return {address for one in tenant.machines if group in (one.groups or ("default",)) for address in one.addresses}


def vpc_of(tenants: dict[str, Tenant], name: str) -> Vpc:
    """The tenant as vgpuctl has it, its rules read from their lines."""
    tenant = tenants[name]
    networks = {one[0]: _network(name, *one) for one in tenant.networks}
    ports = []
    for machine in tenant.machines:
        port_id = _id(name, machine.name)
        network = networks[machine.network]
        port = Port(port_id, network.id, _id(name, machine.name, "vm"), 0, mac_address(port_id), *machine.addresses)
        ports.append(VpcPort(port, machine.name, machine.groups))
    peerings: tuple[Peering, ...] = ()
    if tenant.peer is not None:
        others = tuple(_network(tenant.peer, *one) for one in tenants[tenant.peer].networks)
        peerings = (Peering(tenant.peer, 3, others),)
    return Vpc(
        name,
        tuple(networks.values()),
        tuple(ports),
        tuple(
            SecurityGroup(group, tuple(dict.fromkeys(parse_rule(rule.line) for rule in rules)))
            for group, rules in tenant.groups.items()
        ),
        peerings=peerings,
        address_groups=tuple(AddressGroup(group, addresses) for group, addresses in tenant.addresses.items()),
        egress=EgressDefault(tenant.egress),
    )


def _network(tenant: str, name: str, cidr: str, cidr6: str, isolated: bool) -> Network:
    request = NetworkRequest(name, tenant, cidr, isolated=isolated, backend=Backend.OVN, cidr6=cidr6)
    return Network(_id(tenant, name), request, NetworkState.CREATED)


def _id(*words: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(words)))


def probe(tracer: PacketTracer, vpcs: Sequence[Vpc], sender: Machine, address: str, packet: Packet) -> Traced:
    """Trace a packet through the real flows."""
    vpc = next(one for one in vpcs if one.tenant == sender.tenant)
    own = vpc.ports_by_vm[sender.name].port
    neighbours = {
        there: one.port.mac_address
        for one in vpc.ports
        if one.port.network_id == own.network_id
        for there in one.port.addresses
    }
    version = 6 if ":" in address else 4
    inside = (
        f"icmp{version}.type == {_TYPES6[packet.kind] if version == 6 and packet.protocol == 'icmp' else packet.kind}"
    )
    if packet.protocol != "icmp":
        inside = f"{packet.protocol}.src == {packet.ports[0]} && {packet.protocol}.dst == {packet.ports[1]}"
    flow = (
        f'inport == "{own.id}" && eth.src == {own.mac_address} && '
        f"eth.dst == {neighbours.get(address, mac_address(f'{own.network_id}/gateway'))} && "
        f"ip{version}.src == {sender.beside(address)} && ip{version}.dst == {address} && ip.ttl == 64 && {inside}"
    )
    return tracer.trace(ovn_name("s", own.network_id), flow, vpcs)


def compare(expected: Expected, traced: Traced) -> None:
    """Raise Difference where OVN delivers something else, or another rule decides."""
    arrived = set(traced.outputs)
    wanted = set() if expected.arrives is None else {_id(expected.arrives.tenant, expected.arrives.name)}
    if arrived != wanted:
        raise Difference(f"OVN delivers to {sorted(arrived)}, the model to {sorted(wanted)} ({expected.word})")
    for side, rules in (("from-lport", expected.egress), ("to-lport", expected.ingress)):
        found = next((acl for acl in traced.acls if acl.side == side), None)
        if rules is None:
            if found is not None:
                raise Difference(f"{_told(found)} decided {side}, and the packet should not come so far")
        elif found is None:
            raise Difference(f"no ACL decided {side}, the model has {sorted(rule.line for _group, rule in rules)}")
        elif rules and (found.group, found.rule) not in _parsed(rules):
            raise Difference(f"{_told(found)} decided {side}, not {sorted(rule.line for _group, rule in rules)}")
        elif not rules and found.rule is not None and found.rule.source != "group:default":
            raise Difference(f"{_told(found)} decided {side}, and the model knows no rule")


def _parsed(rules: frozenset[tuple[str, Written]]) -> set[tuple[str, Rule]]:
    return {(group, parse_rule(rule.line)) for group, rule in rules}


def _told(acl: SecurityAcl) -> str:
    return f"{acl.group or acl.key}: {acl.match} ({acl.action})"


def run(central: LocalOvn, *, probes: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Probe random worlds. Returns how often the model expected what, and the differences."""
    tracer = PacketTracer(NorthboundAddress(central.southbound))
    counts: Counter[str] = Counter()
    differences = []
    with Northbound(NorthboundAddress(central.northbound)) as northbound:
        for number in range(-(-probes // PROBES_OF_A_WORLD)):
            chance = random.Random(f"{seed}/{number}")
            tenants = generate(chance)
            vpcs = [vpc_of(tenants, name) for name in tenants]
            northbound.apply({tenant_owner(vpc.tenant): vpc_rows(vpc) for vpc in vpcs})
            again = northbound.apply({tenant_owner(vpc.tenant): vpc_rows(vpc) for vpc in vpcs})
            if again:
                differences.append(f"{seed}/{number}: a second apply changes {again[:3]}")
            central.sync()
            for _ in range(min(PROBES_OF_A_WORLD, probes - number * PROBES_OF_A_WORLD)):
                sender, address, packet = _question(chance, tenants)
                expected = expect(tenants, sender, address, packet)
                counts[expected.word] += 1
                try:
                    compare(expected, probe(tracer, vpcs, sender, address, packet))
                except Difference as difference:
                    differences.append(
                        f"{seed}/{number}: {sender.tenant}/{sender.name} to {address} {packet}: {difference}"
                    )
    return counts, differences


def _question(chance: random.Random, tenants: dict[str, Tenant]) -> tuple[Machine, str, Packet]:
    everybody = [machine for tenant in tenants.values() for machine in tenant.machines]
    sender = chance.choice(everybody)
    if chance.random() < 0.6:
        everybody = list(tenants[sender.tenant].machines)
    others = [address for one in everybody for address in one.addresses if address not in sender.addresses]
    address = "10.0.0.99" if chance.random() < 0.03 else chance.choice(others)
    protocol = chance.choice(("tcp", "tcp", "udp", "icmp"))
    if protocol == "icmp":
        kinds = [one for one in _TYPES.values() if ":" not in address or one in _TYPES6]
        return sender, address, Packet(protocol, kind=chance.choice(kinds))
    return sender, address, Packet(protocol, (chance.choice((40000, *_PORTS)), chance.choice(_PORTS)))


def main() -> int:
    """Probe, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=42)
    given = parser.parse_args()
    missing = missing_for_ovn()
    if missing is not None:
        print(missing, file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    began = time.monotonic()
    try:
        with LocalOvn(folder) as central:
            counts, differences = run(central, probes=given.probes, seed=given.seed)
    finally:
        shutil.rmtree(folder)
    for word, count in sorted(counts.items()):
        print(f"{count:6} {word}")
    print(f"{sum(counts.values())} probes in {time.monotonic() - began:.0f} s, {len(differences)} differences")
    print("\n".join(differences[:20]))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
