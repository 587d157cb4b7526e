# SPDX-License-Identifier: Apache-2.0
"""Security rules with real packets between network namespaces: connections, answers, resets, DHCP, and the log."""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.integration.ovn.chassis import wait_for
from tests.integration.ovn.packets import HOST, PacketHost, missing_for_packets
from tests.integration.ovn.test_ipv6 import BACK, FRONT, ports
from tests.ovn_fixture import LocalOvn
from vgpuctl.agent.facts import flows, packet_log
from vgpuctl.agent.wire.packet_log import LogMark
from vgpuctl.model.rule_text import describe_rule, parse_rule
from vgpuctl.model.security_rule import EgressDefault
from vgpuctl.model.vpc import AddressGroup, SecurityGroup, Vpc
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.security import security_acls
from vgpuctl.ovn.southbound import Southbound
from vgpuctl.ovn.topology import dhcp_keys, tenant_owner, vpc_rows
from vgpuctl.usecases.observed.packet_log_record import describe_packet

WEB = ("web",)
PORTS = (*ports(FRONT, a=WEB, b=WEB), *ports(BACK, c=WEB))
"""Two VMs with both IP versions, and one with IPv6 alone behind the router."""


def vpc(*rules: str, egress: str = "allow") -> Vpc:
    """A tenant all of whose VMs have these rules."""
    return Vpc(
        "acme",
        (FRONT, BACK),
        PORTS,
        (SecurityGroup("web", tuple(map(parse_rule, rules))),),
        address_groups=(AddressGroup("b-alone", ("10.0.0.3/32", "fd00:1::3/128")),),
        egress=EgressDefault(egress),
    )


@dataclass(frozen=True)
class World:
    """The endpoints, and the database that their rules are in."""

    host: PacketHost
    northbound: Northbound

    def has(self, wanted: Vpc) -> None:
        """Give the tenant other rules, and wait until the host has them."""
        self.northbound.apply({tenant_owner("acme"): vpc_rows(wanted)})
        self.host.settle()

    def asks(self, probe: str) -> str:
        """The answer to `SENDER PROTOCOL RECEIVER PORT`; a receiver of a and b with a 6 is asked by IPv6."""
        sender, protocol, receiver, number = probe.split()
        (port,) = [one.port for one in PORTS if one.vm == receiver[0]]
        address = port.addresses[-1 if "6" in receiver else 0]
        return self.host.inside(f"acme/{sender}", "ask", protocol, address, number).strip()


@pytest.fixture(scope="module")
def world(central: LocalOvn) -> Iterator[World]:
    missing = missing_for_packets() or (None if shutil.which("busybox") else "busybox is not installed")
    if missing is not None:
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(missing)
        pytest.skip(missing)
    with Northbound(NorthboundAddress(central.northbound)) as northbound:
        northbound.apply({tenant_owner("acme"): vpc_rows(vpc())})
        with PacketHost(central, "provider", ("203.0.113.1/24",)) as host:
            host.plug(vpc())
            yield World(host, northbound)


CASES: dict[str, tuple[Vpc, tuple[str, ...]]] = {
    "nothing is let in without a rule": (vpc(), ("a tcp b 80 silence", "a tcp b6 80 silence", "a udp b 53 silence")),
    "each action, in a network and through the router": (
        vpc("tcp:80", "reject:tcp:81", "deny:udp@fd00::/8", "any,priority=50"),
        (
            *("a tcp b 80 answered", "a tcp c6 80 answered", "a tcp b 81 refused", "a tcp b6 81 refused"),
            *("a udp b 53 answered", "a udp b6 53 silence"),
        ),
    ),
    "a higher priority decides first": (
        vpc("any", "deny:tcp:80@addresses:b-alone,priority=200", "tcp:80@10.0.0.3/32,priority=300"),
        ("b tcp a 80 answered", "b tcp a6 80 silence", "b tcp a6 81 answered"),
    ),
    "an address group of both versions": (
        vpc("any", "deny:tcp:80@addresses:b-alone,priority=200"),
        ("b tcp a 80 silence", "b tcp a6 80 silence", "c tcp a6 80 answered", "b tcp a 81 answered"),
    ),
    "stateless, with answers": (
        vpc("udp:53,stateless", "tcp:80,stateless"),
        ("a udp b 53 answered", "a udp b6 53 answered", "a tcp c6 80 answered"),
    ),
    "egress rules": (
        vpc("any", "egress:reject:tcp:81", "egress:deny:udp@group:web"),
        ("a tcp b 81 refused", "a udp c6 53 silence", "a tcp b 80 answered"),
    ),
    "nothing goes out without a rule, but answers do": (
        vpc("any", "egress:tcp:80@fd00:2::/64", egress="deny"),
        ("a tcp c6 80 answered", "a tcp b 80 silence", "a udp c6 53 silence", "c tcp a6 80 silence"),
    ),
    "stateless where nothing goes out": (
        vpc("udp:53,stateless", "egress:udp:53,stateless", egress="deny"),
        ("a udp b 53 answered", "a tcp b 80 silence"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_packets_do_what_the_rules_say(world: World, name: str) -> None:
    wanted, probes = CASES[name]
    world.has(wanted)
    for probe in probes:
        question, _, answer = probe.rpartition(" ")
        assert world.asks(question) == answer, probe


def test_types_of_icmp_and_dhcp_where_nothing_goes_out(world: World, central: LocalOvn) -> None:
    echoes = (("10.0.0.3", 0), ("fd00:1::3", 0))
    world.has(vpc("icmp:echo-request", "egress:icmp@group:web", egress="deny"))
    assert set(world.host.probe("acme/a", *echoes).values()) == {"echo"}
    assert world.asks("a tcp b 80") == "silence"
    client = ("busybox", "udhcpc", "-i", world.host.interface("acme/a"), "-n", "-q", "-f", "-t", "3", "-T", "1")
    world.host.run("acme/a", *client, "-s", "/bin/true")  # it ends with an error where nobody answers
    assert "fd00:1::2" in world.host.inside("acme/a", "lease", "{interface}")
    uuids = world.northbound.uuids(tenant_owner("acme"), "DHCP_Options")
    made = Southbound(NorthboundAddress(central.southbound)).flows(sorted(uuids[one] for one in dhcp_keys(FRONT)))
    stages = {
        flow.cookie: flow.stage
        for each in made.values()
        for flow in each
        if "_dhcp_" in flow.stage and f'"{PORTS[0].port.id}"' in flow.match
    }
    assert {one.partition("_dhcp_")[2] for one in stages.values()} == {"options", "response"}

    def counted(stage: str) -> int:
        counts = flows.count(world.host.agent(), sorted(stages)).counts
        return sum(one.packets for one in counts if stages[one.cookie].endswith(stage))

    # Two of DHCP, two of DHCPv6; the switch is some seconds late.
    wait_for(lambda: counted("options") == counted("response") == 4, "requests and answers are counted")
    world.has(vpc("icmp:timestamp-request"))
    assert set(world.host.probe("acme/a", *echoes).values()) == {None}


def test_a_logged_rule_is_named_and_its_lines_are_limited(world: World) -> None:
    world.has(vpc("deny:udp:53,log=2", "deny:tcp:81,log", "tcp:80,log=1000"))
    world.host.inside("acme/a", "flood", "10.0.0.3", "500")
    assert [world.asks(one) for one in ("a tcp b 81", "a tcp c6 80")] == ["silence", "answered"]
    pattern = r'acl_log\(\S+\)\|INFO\|name="([^"]+)", verdict=(\w+), severity=info, direction=(\S+):'
    lines = re.findall(pattern, world.host.log)
    assert ("acme/web deny:tcp:81", "drop", "to-lport") in lines
    assert ("acme/web tcp:80", "allow", "to-lport") in lines
    flooded = lines.count(("acme/web deny:udp:53", "drop", "to-lport"))
    assert 1 <= flooded < 50, f"{flooded} of 500 packets are logged"
    read = packet_log.read(world.host.agent(), LogMark(0, 0))
    wanted = Counter((name, word) for name, word, _side in lines)
    assert {(one.name, one.verdict): one.lines for one in read.rules} == wanted
    (refused,) = [one for one in read.rules if one.name == "acme/web deny:tcp:81"]
    assert re.fullmatch(r"tcp 10\.0\.0\.2:\d+ to 10\.0\.0\.3:81", describe_packet(refused.first))
    assert read.damaged == 0


def test_hits_of_rules_are_those_of_the_switch(world: World, central: LocalOvn) -> None:
    wanted = vpc("tcp:80", "deny:tcp:81", "udp:53")
    world.has(wanted)
    acls = {acl.key: describe_rule(acl.rule) for acl in security_acls(wanted) if acl.rule is not None}
    by_key = world.northbound.uuids(tenant_owner("acme"), "ACL")
    uuids = {uuid: acls[key] for key, uuid in by_key.items() if key in acls}
    made = Southbound(NorthboundAddress(central.southbound)).flows(sorted(uuids))
    stages = {one.stage for flows_of in made.values() for one in flows_of}
    assert stages and all(one.startswith(("ls_in_acl", "ls_out_acl")) for one in stages), stages

    def hits() -> dict[str, int]:
        cookies = sorted({one.cookie for flows_of in made.values() for one in flows_of})
        counted = {one.cookie: one.packets for one in flows.count(world.host.agent(), cookies).counts}
        own = {rule: {one.cookie for one in made[uuid]} for uuid, rule in uuids.items()}
        return {rule: sum(counted.get(one, 0) for one in own[rule]) for rule in ("tcp:80", "deny:tcp:81", "udp:53")}

    before = hits()
    assert before["udp:53"] == 0
    assert [world.asks(one) for one in ("a tcp b 81", "a tcp b 80")] == ["silence", "answered"]
    counted = ("tcp:80", "deny:tcp:81")
    wait_for(lambda: all(hits()[rule] > before[rule] for rule in counted), "the switch has counted the packets")
    assert hits()["udp:53"] == 0
    places = Southbound(NorthboundAddress(central.southbound)).networks([one.port.id for one in PORTS]).ports
    assert {(one.chassis, one.is_up) for one in places.values()} == {(HOST, True)}
    assert len(places) == len(PORTS)
