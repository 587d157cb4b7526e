# SPDX-License-Identifier: Apache-2.0
"""Static routes and balancers with packets: next hops that share, drop and may not pose; members, hashes and drains."""

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.integration.ovn.packets import HOST, OUTSIDE, PacketHost, Wanted, expect, missing_for_packets
from tests.integration.ovn.test_ipv6 import FRONT, SERVER, network, ports
from tests.ovn_fixture import LocalOvn
from vgpuctl.model.http_balancing import BalancerProtocol
from vgpuctl.model.load_balancer import BalancerHash, LoadBalancer
from vgpuctl.model.network import mac_address
from vgpuctl.model.network_seen import Checked
from vgpuctl.model.security_rule import Protocol, Rule
from vgpuctl.model.vpc import DirectConnect, ExternalNetwork, Route, SecurityGroup, Vpc, ovn_name
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.southbound import Southbound
from vgpuctl.ovn.topology import external_owner, external_rows, tenant_owner, vpc_rows
from vgpuctl.ovn.tracing import PacketTracer

EXTERNAL = ExternalNetwork(
    "internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.99", "provider", None, (HOST,)
)
SITE = network("acme", "site", "10.0.8.0/24", None)
BEHIND, BEHIND6, ON_SITE, DROPPED = "10.66.0.5", "fd00:66::5", "172.16.9.9", "198.18.0.5"
OPEN = SecurityGroup("open", (*(Rule(Protocol.TCP, (one, one)) for one in (80, 90)), Rule(Protocol.UDP, (53, 53))))
GROUP = ("open",)
ROUTES = (
    Route("10.66.0.0/24", ("fw1", "fw2")),
    Route("fd00:66::/48", ("fw1",)),
    Route("172.16.9.0/24", ("10.0.8.77",)),
    Route("198.18.0.0/24", ("discard",)),
)
ACME = Vpc(
    "acme",
    (FRONT, SITE),
    tuple(ports(FRONT, a=GROUP, b=GROUP, c=GROUP, fw1=GROUP, fw2=GROUP)),
    (OPEN,),
    EXTERNAL,
    "203.0.113.10",
    direct_connects=(DirectConnect("site", "provider"),),
    routes=ROUTES,
)


SHOP = LoadBalancer("shop", "10.0.0.253", 8000, BalancerProtocol.TCP, ("b", "c"), 80, 1, 3, 2, "front")


@dataclass(frozen=True)
class World:
    """The endpoints, and the database that the tenant's rows are in."""

    host: PacketHost
    northbound: Northbound
    central: LocalOvn

    def has(self, wanted: Vpc) -> None:
        """Give the tenant other objects, and wait until the host has them."""
        self.northbound.apply({tenant_owner("acme"): vpc_rows(wanted)})
        self.host.settle()

    def answers(self, balancer: LoadBalancer, times: int = 24) -> Counter[str]:
        """Who answers so many connections of VM a to a balancer."""
        self.has(replace(ACME, balancers=(balancer,)))
        asked = json.dumps([(balancer.address, balancer.port, None)] * times)
        return Counter(str(one).split()[0] for one in json.loads(self.host.inside("acme/a", "probe", asked)))

    def prefixes(self, address: str) -> tuple[str, ...]:
        """The prefixes that routers choose for what VM a sends to an address."""
        sender, router = ACME.ports_by_vm["a"].port, mac_address(f"{FRONT.id}/gateway")
        packet = f'inport == "{sender.id}" && eth.src == {sender.mac_address} && eth.dst == {router} && ip.ttl == 64'
        packet += f" && ip4.src == {sender.address} && tcp.dst == 80 && ip4.dst == {address}"
        tracer = PacketTracer(NorthboundAddress(self.central.southbound))
        return tracer.trace(ovn_name("s", FRONT.id), packet, [ACME]).prefixes

    def held(self, balancer: LoadBalancer) -> "tuple[subprocess.Popen[str], str]":
        """A connection of VM a to a balancer that stays open, and who answers it."""
        held = self.host.begin("acme/a", "hold", balancer.address, str(balancer.port))
        return held, says(held)


def says(held: "subprocess.Popen[str]") -> str:
    """The answer to a line that is sent by an open connection."""
    assert held.stdin is not None
    assert held.stdout is not None
    held.stdin.write("x\n")
    return held.stdout.readline().strip()


@pytest.fixture(scope="module")
def world(central: LocalOvn) -> Iterator[World]:
    """VMs a and b, two that route, and the world outside, which is also the site behind the direct connect."""
    missing = missing_for_packets()
    if missing is not None:
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(missing)
        pytest.skip(missing)
    outside = ("203.0.113.1/24", "10.0.8.77/24", f"{SERVER}/32", f"{ON_SITE}/32", f"{DROPPED}/32")
    with Northbound(NorthboundAddress(central.northbound)) as northbound:
        northbound.apply({external_owner("internet"): external_rows(EXTERNAL), tenant_owner("acme"): vpc_rows(ACME)})
        with PacketHost(central, "provider", outside) as host:
            host.plug(ACME)
            for name in ("acme/fw1", "acme/fw2"):
                host.run(name, "ip", "route", "add", "local", "10.66.0.0/24", "dev", "lo")
                host.run(name, "ip", "address", "add", f"{BEHIND6}/128", "dev", "lo")
            host.run(OUTSIDE, "ip", "route", "add", "10.0.0.0/24", "via", "10.0.8.1")
            host.run(OUTSIDE, "ip", "route", "add", "10.66.0.0/24", "via", "203.0.113.10")
            yield World(host, northbound, central)


def test_next_hops_share_connections_and_each_route_leads_where_it_says(world: World) -> None:
    world.has(ACME)
    shared = [(f"10.66.0.{number}", 80) for number in range(1, 33)]
    heard = world.host.probe("acme/a", *shared)
    assert {str(one).split()[0] for one in heard.values()} == {"acme/fw1", "acme/fw2"}, heard
    wanted: Wanted = {
        (BEHIND6, 80): "acme/fw1",
        (BEHIND6, 81): None,  # the security groups of the next hop decide
        (ON_SITE, 80): "outside",
        (SERVER, 80): "outside",
        (DROPPED, 80): None,
    }
    expect(world.host.probe("acme/a", *wanted), wanted)
    assert world.host.probe("acme/a", (ON_SITE, 80))[ON_SITE, 80] == "outside 10.0.0.2", "without NAT"
    world.has(replace(ACME, routes=tuple(one for one in ROUTES if not one.is_discard)))
    expect(world.host.probe("acme/a", (DROPPED, 80)), {(DROPPED, 80): "outside"})
    for gone in ("fw2", "fw1"):
        world.has(replace(ACME, ports=tuple(one for one in ACME.ports if one.vm not in ("fw1", gone))))
        expect(
            world.host.probe("acme/a", *shared[:8]), dict.fromkeys(shared[:8], None if gone == "fw2" else "acme/fw2")
        )


def test_a_vm_that_routes_sends_from_the_prefix_within_the_tenant_and_poses_as_nobody(world: World) -> None:
    world.has(ACME)
    inside, neighbour = ("10.0.0.2", 80, BEHIND), ("10.0.0.2", 80, "10.0.0.3")
    for source in ("10.0.0.3", "10.67.0.5", "203.0.113.1"):
        world.host.run("acme/fw1", "ip", "address", "add", f"{source}/32", "dev", "lo")
    wanted: Wanted = {
        inside: "acme/a",
        ("fd00:1::2", 80, BEHIND6): "acme/a",
        neighbour: None,
        ("10.0.0.2", 80, "10.67.0.5"): None,
        ("10.0.0.2", 80, "203.0.113.1"): None,
        (SERVER, 80): "outside",
        (SERVER, 80, BEHIND): None,  # it would leave without NAT
    }
    only = replace(ACME, routes=(Route("10.66.0.0/24", ("fw1",)), Route("fd00:66::/48", ("fw1",))))
    world.has(only)
    expect(world.host.probe("acme/fw1", *wanted), wanted)
    assert world.host.probe("acme/fw1", inside)[inside] == f"acme/a {BEHIND}"
    unbounded = []
    for row in vpc_rows(only):
        references = {name: () if name == "policies" else one for name, one in row.references.items()}
        unbounded += [replace(row, references=references)] * (row.table != "Logical_Router_Policy")
    world.northbound.apply({tenant_owner("acme"): unbounded})
    world.host.settle()
    expect(world.host.probe("acme/fw1", (SERVER, 80, BEHIND)), {(SERVER, 80, BEHIND): "outside"})
    world.has(replace(ACME, routes=()))
    expect(world.host.probe("acme/fw1", inside), {inside: None})


def test_ovn_names_the_prefix_that_decided(world: World) -> None:
    world.has(ACME)
    for address, prefix in ((BEHIND, "10.66.0.0/24"), (DROPPED, "198.18.0.0/24"), (SERVER, "0.0.0.0/0")):
        assert world.prefixes(address) == (prefix,), address


def test_hashes_weights_and_affinity_choose_the_vm(world: World) -> None:
    both, times = {"acme/b", "acme/c"}, 60
    for selection in (BalancerHash.CONNECTION, BalancerHash.FIVE_TUPLE):
        assert set(world.answers(replace(SHOP, selection=selection))) == both, selection
    assert len(world.answers(replace(SHOP, selection=BalancerHash.SOURCE))) == 1
    weighed = world.answers(replace(SHOP, weights=("b=4",)), times)
    assert weighed["acme/b"] + weighed["acme/c"] == times
    assert weighed["acme/b"] >= times * 0.6, f"{weighed}: 4 of 5 are expected, and half without weights"
    assert len(world.answers(replace(SHOP, affinity_s=60))) == 1


def test_a_vm_that_drains_keeps_its_connections_and_gets_no_new_ones(world: World) -> None:
    kept = replace(SHOP, vm_port=90)
    for name in ("acme/b", "acme/c"):
        server = world.host.begin(name, "answer", name, "90")
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
    world.has(replace(ACME, balancers=(kept,)))
    held, who = world.held(kept)
    leaving = who.removeprefix("acme/")
    staying = next(one for one in ("b", "c") if one != leaving)
    for changed in (replace(kept, draining=(leaving,)), replace(kept, vms=(staying,))):
        world.has(replace(ACME, balancers=(changed,)))
        assert says(held) == f"acme/{leaving}", changed
        assert {world.held(kept)[1] for _ in range(6)} == {f"acme/{staying}"}, changed


def test_a_check_of_udp_takes_silence_for_health(world: World) -> None:
    dns = LoadBalancer("dns", "10.0.0.252", 53, BalancerProtocol.UDP, ("b", "c"), 53, 1, 1, 1, "front")
    world.has(replace(ACME, balancers=(dns,)))
    closed, silent = (ACME.ports_by_vm[vm].port for vm in ("b", "c"))
    world.host.run("acme/c", "ip", "address", "del", f"{silent.address}/24", "dev", world.host.interface("acme/c"))
    world.host.stop_serving("acme/b")
    southbound, deadline = Southbound(NorthboundAddress(world.central.southbound)), time.monotonic() + 30
    wanted = {
        Checked(closed.id, closed.address, 53, "udp"): "offline",
        Checked(silent.id, silent.address, 53, "udp"): "online",
    }
    while (found := southbound.networks([closed.id, silent.id]).checks) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.3)
    time.sleep(2.5)
    assert southbound.networks([closed.id, silent.id]).checks == wanted, "after two more checks"


def test_a_bfd_session_of_a_tenant_s_router_stays_down_and_ovn_leaves_its_route_out(world: World) -> None:
    """So vgpuctl offers none. If this fails, OVN runs BFD on routers that are on every host: offer it then."""
    world.has(ACME)
    nbctl = world.central.nbctl
    port = ovn_name("g", SITE.id)
    session = nbctl("create", "BFD", f"logical_port={port}", 'dst_ip="10.0.8.77"').strip()
    columns = ("--bare", "--columns=_uuid", "find", "Logical_Router_Static_Route", 'nexthop="10.0.8.77"')
    nbctl("set", "Logical_Router_Static_Route", nbctl(*columns).strip(), f"bfd={session}")
    world.host.settle()
    time.sleep(2)
    assert nbctl("get", "BFD", session, "status").strip() == "down"
    assert world.prefixes(ON_SITE) == ("0.0.0.0/0",)
    nbctl("destroy", "BFD", session)
    world.host.settle()
    assert world.prefixes(ON_SITE) == ("172.16.9.0/24",)
