# SPDX-License-Identifier: Apache-2.0
"""Security rules in a real northd's flows: what they admit, what they log, and what no rule can stop."""

import random
import re
from dataclasses import replace

import pytest

from tests.integration.ovn.test_isolation import ACME, BACK, VPC, Traces, outputs, port, rows, traces
from tests.ovn_fixture import LocalOvn
from tests.proof import network_rules
from vgpuctl.errors import OvnUnreachable
from vgpuctl.model.rule_text import parse_rule
from vgpuctl.model.security_rule import EgressDefault
from vgpuctl.model.vpc import AddressGroup, SecurityGroup, Vpc
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.topology import tenant_owner, vpc_rows
from vgpuctl.ovn.tracing import PacketTracer

__all__ = ["traces"]


def vpc(*rules: str, egress: str = "allow", addresses: tuple[str, ...] = ()) -> Vpc:
    """A tenant whose VMs are all in one group with these rules."""
    return replace(
        VPC,
        ports=(port(ACME, "a", 2, "web"), port(ACME, "b", 3, "web"), port(BACK, "c", 2, "web")),
        groups=(SecurityGroup("web", tuple(map(parse_rule, rules))),),
        address_groups=(AddressGroup("partners", addresses),),
        egress=EgressDefault(egress),
    )


def test_ovn_delivers_what_a_second_model_of_random_rules_says(central: LocalOvn) -> None:
    counts, differences = network_rules.run(central, probes=120, seed=75)
    assert differences == [], "\n".join(differences)
    missing = {
        "egress deny",
        "egress reject",
        "ingress deny",
        "ingress reject",
        "ingress allow",
        "nowhere",
    } - counts.keys()
    assert not missing, counts


def test_the_comparison_finds_a_rule_that_ovn_lacks(central: LocalOvn, northbound: Northbound) -> None:
    """The proof is able to fail: OVN gets the rows of a tenant without its groups."""
    tenants = network_rules.generate(random.Random("7/4"))
    vpcs = [network_rules.vpc_of(tenants, name) for name in tenants]
    without = [replace(one, groups=tuple(replace(group, rules=()) for group in one.groups)) for one in vpcs]
    northbound.apply({tenant_owner(one.tenant): vpc_rows(one) for one in without})
    central.sync()
    tracer = PacketTracer(NorthboundAddress(central.southbound))
    packet = network_rules.Packet("tcp", (40000, 80))
    found = 0
    for sender in tenants["initech"].machines:
        for receiver in tenants["initech"].machines:
            if sender is receiver:
                continue
            expected = network_rules.expect(tenants, sender, receiver.address, packet)
            try:
                network_rules.compare(expected, network_rules.probe(tracer, vpcs, sender, receiver.address, packet))
            except network_rules.Difference:
                found += 1
    assert found >= 12


@pytest.mark.parametrize(
    ("rules", "egress", "packet", "arrives"),
    [
        (("tcp:80",), "allow", "tcp.dst == 80", True),
        (("tcp:80", "deny:tcp@10.0.0.2/32,priority=101"), "allow", "tcp.dst == 80", False),
        (("tcp:80", "deny:tcp@10.0.0.2/32,priority=99"), "allow", "tcp.dst == 80", True),
        (("any", "reject:tcp:80"), "allow", "tcp.dst == 80", False),
        (("icmp:echo-request",), "allow", "icmp4.type == 8", True),
        (("icmp:echo-reply",), "allow", "icmp4.type == 8", False),
        (("any", "egress:deny:udp:53"), "allow", "udp.dst == 53", False),
        (("any",), "deny", "tcp.dst == 80", False),
        (("any", "egress:tcp:80@group:web"), "deny", "tcp.dst == 80", True),
        (("any", "egress:tcp:80@addresses:partners"), "deny", "tcp.dst == 80", False),
        (("udp:53,stateless",), "allow", "udp.src == 40000 && udp.dst == 53", True),
        (("any", "udp:53,stateless"), "deny", "udp.src == 53 && udp.dst == 40000", True),
    ],
)
def test_a_rule_does_what_it_says(
    traces: Traces, northbound: Northbound, rules: tuple[str, ...], egress: str, packet: str, arrives: bool
) -> None:
    world = vpc(*rules, egress=egress)
    northbound.apply(rows(world))
    assert northbound.apply(rows(world)) == []
    traces.bind(world)
    told = traces.send(world, "a", "10.0.0.3", packet)
    assert (world.ports_by_vm["b"].port.id in outputs(told)) is arrives, told


def test_what_no_rule_can_stop(traces: Traces, northbound: Northbound) -> None:
    """DHCP and OVN's own health checks pass, a DHCP server in a VM and management networks do not."""
    world = vpc("deny:any,priority=1000", "egress:any,priority=1000", "egress:deny:udp:67,priority=1000", egress="deny")
    northbound.apply(rows(world))
    traces.bind(world)
    asks = "udp.src == 68 && udp.dst == 67"
    everybody = {"ip4.src": "0.0.0.0", "eth.dst": "ff:ff:ff:ff:ff:ff"}
    told = traces.send(world, "a", "255.255.255.255", asks, **everybody)
    assert "put_dhcp_opts" in told or world.ports_by_vm["a"].port.id in outputs(told), told
    assert outputs(traces.send(world, "a", "192.0.2.9", "tcp.dst == 22")) == []
    flows = traces.central.sbctl("lflow-list")
    (passes,) = set(re.findall(r"ls_out_acl\w* *\), priority=(\d+) *, match=\(eth.src == \$svc_monitor_mac\)", flows))
    highest = max(map(int, re.findall(r"ls_out_acl\w* *\), priority=(\d+) *, match=.*vgp_", flows)))
    assert int(passes) > highest, "health checks pass before every rule"


def test_a_logged_rule_has_its_name_and_a_rate_of_its_own(central: LocalOvn, northbound: Northbound) -> None:
    world = vpc("tcp:80,log=5", "deny:any@10.66.0.0/16,priority=200,log", "tcp:443")
    northbound.apply(rows(world))
    logged = central.nbctl("--bare", "--columns=name,severity", "find", "ACL", "log=true")
    assert sorted(filter(None, logged.splitlines())) == [
        "acme/web deny:any@10.66.0.0/16",
        "acme/web tcp:80",
        "info",
        "info",
    ]
    meters = central.nbctl("--format=csv", "--no-headings", "--columns=fair,unit", "list", "Meter").split()
    assert meters == ["true,pktps"] * 2
    rates = central.nbctl("--format=csv", "--no-headings", "--columns=rate", "list", "Meter_Band").split()
    assert sorted(rates) == ["10", "5"]
    northbound.apply(rows(vpc("tcp:80", "tcp:443")))
    assert central.nbctl("--format=csv", "--no-headings", "--columns=_uuid", "find", "ACL", "log=true") == ""
    assert central.nbctl("--format=csv", "--no-headings", "--columns=name", "list", "Meter") == ""


def test_a_trace_names_the_rule_and_a_database_that_is_away_is_told(traces: Traces, northbound: Northbound) -> None:
    world = vpc("tcp:80", "deny:tcp@group:web,priority=200", "tcp:22@group:web,priority=300")
    northbound.apply(rows(world))
    traces.bind(world)
    tracer = PacketTracer(NorthboundAddress(traces.central.southbound))
    sender = world.ports_by_vm["a"].port
    receiver = world.ports_by_vm["b"].port
    flow = (
        f'inport == "{sender.id}" && eth.src == {sender.mac_address} && eth.dst == {receiver.mac_address} && '
        f"ip4.src == {sender.address} && ip4.dst == {receiver.address} && ip.ttl == 64 && tcp.dst == "
    )
    switch = rows(world)[tenant_owner("acme")]
    (name,) = [
        str(row.columns["name"]) for row in switch if row.table == "Logical_Switch" and row.key == f"switch/{ACME.id}"
    ]
    found = {number: tracer.trace(name, flow + str(number), (world,)).acls for number in (80, 22)}
    assert [(acl.side, acl.rule and acl.rule.priority, acl.action) for acl in found[80]] == [
        ("from-lport", None, "allow-related"),
        ("to-lport", 200, "drop"),
    ]
    assert [(acl.side, acl.rule and acl.rule.priority) for acl in found[22]] == [
        ("from-lport", None),
        ("to-lport", 300),
    ]
    with pytest.raises(OvnUnreachable, match="ovn-trace gave no answer"):
        PacketTracer(NorthboundAddress("unix:/nowhere/sb.sock")).trace(name, flow + "80", (world,))
