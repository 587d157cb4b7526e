# SPDX-License-Identifier: Apache-2.0
"""Network functions with packets: a VPN connection's tunnel, and what a provider's router learns by BGP."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ovn.chassis import wait_for
from tests.integration.ovn.functions import FunctionHost
from tests.integration.ovn.packets import HOST, OUTSIDE, PacketHost, Wanted, expect, missing_for_packets
from tests.integration.ovn.test_ipv6 import FRONT, INITECH, OPEN, PEERED, network, ports
from tests.ovn_fixture import LocalOvn
from vgpuctl.agent.wire.network_function import SetNetworkFunction
from vgpuctl.guests.frr import BgpSession, read_sessions
from vgpuctl.guests.wireguard import peer_text
from vgpuctl.model.bgp import Announcement, Bgp, BgpNeighbour, BgpSpeaker
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vpc import ExternalNetwork, Peering, SecurityGroup, Vpc
from vgpuctl.model.vpn import VpnConnection
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.topology import external_owner, external_rows, tenant_owner, vpc_rows
from vgpuctl.ovn.wireguard_keys import new_keys
from vgpuctl.store.store import open_store
from vgpuctl.usecases.network.bgp_speakers import speaker_function, speaker_places
from vgpuctl.usecases.network.vpn_functions import vpn_function, vpn_places
from vgpuctl.usecases.network.vpn_keys import PRIVATE_KEY
from vgpuctl.usecases.observed.bgp_sessions import SUMMARY

SITE, SITE6, STRANGER, SERVER = "192.168.10.1", "fd00:10::1", "192.168.99.1", "198.51.100.7"
EXTERNAL = ExternalNetwork(
    *("internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.99", "provider"),
    chassis=(HOST,),
    cidr6="2001:db8:ff::/64",
    gateway6="2001:db8:ff::1",
    first6="2001:db8:ff::10",
    last6="2001:db8:ff::99",
    bgp=Bgp(65010, (BgpNeighbour("203.0.113.1", 65000),), (BgpSpeaker(HOST, "203.0.113.2"),)),
)
PROVIDER = f"""
frr defaults traditional
router bgp 65000
 bgp router-id 203.0.113.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 203.0.113.2 remote-as 65010
 neighbor 203.0.113.2 disable-connected-check
 neighbor 203.0.113.2 timers connect 1
 address-family ipv4 unicast
  network 0.0.0.0/0
  network {SERVER}/32
 exit-address-family
 address-family ipv6 unicast
  neighbor 203.0.113.2 activate
 exit-address-family
"""
BACK = network("acme", "back", "10.0.1.0/24", None)
OWN, THEIRS = new_keys(), new_keys()
VPN = VpnConnection(
    *("office", "front", ("192.168.10.0/24", "fd00:10::/64"), 51820, None, f"{SERVER}:51820"),
    address="10.0.0.253",
    address6="fd00:1::fffe",
    external_address="203.0.113.10",
    public_key=OWN.public,
    made_peer_key=THEIRS.public,
)
CLOSED = SecurityGroup("closed")
ACME = Vpc(
    "acme",
    (FRONT, BACK),
    (*ports(FRONT, a=("open",), c=("closed",)), *ports(BACK, b=("open",))),
    (OPEN, CLOSED),
    EXTERNAL,
    "203.0.113.10",
    peerings=(Peering("initech", 3, (PEERED,)),),
    vpns=(VPN,),
)
ACME = replace(ACME, functions=tuple(vpn_places(ACME)))
PEER = replace(INITECH, peerings=(Peering("acme", 3, ACME.networks),))
_LARGE = """
import socket, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
udp.settimeout(2)
udp.connect((sys.argv[1], 53))
udp.send(bytes(1362 - 28))
udp.recv(200)
udp.send(bytes(1363 - 28))
try:
    udp.recv(200)
except (OSError, TimeoutError):
    print(udp.getsockopt(socket.IPPROTO_IP, 14))  # IP_MTU
"""


@pytest.fixture(scope="module")
def host(central: LocalOvn) -> Iterator[PacketHost]:
    missing = missing_for_packets()
    for program in ("wg", "wireguard-go", "/usr/lib/frr/bgpd", "/usr/lib/frr/frr-reload.py"):
        missing = missing or (None if shutil.which(program) else f"{program} is not installed")
    if missing is not None:
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(missing)
        pytest.skip(missing)
    wanted = {external_owner("internet"): external_rows(EXTERNAL)}
    wanted |= {tenant_owner(vpc.tenant): vpc_rows(vpc) for vpc in (ACME, PEER)}
    with Northbound(NorthboundAddress(central.northbound)) as northbound:
        northbound.apply(wanted)
        assert northbound.apply(wanted) == []
    outside = ("203.0.113.1/24", f"{SERVER}/32", f"{SITE}/32", f"{SITE6}/128", f"{STRANGER}/32")
    with PacketHost(central, "provider", outside) as made:
        made.plug(ACME, PEER)
        yield made


@pytest.fixture(scope="module")
def machine(host: PacketHost, central: LocalOvn) -> Iterator[FunctionHost]:
    with FunctionHost(host.namespace, central.folder / "host") as made:
        yield made


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> SetNetworkFunction:
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
    with open_store(url) as store, store.transaction() as session:
        session.add_tenant("acme")
        text = json.dumps({PRIVATE_KEY: OWN.private})
        session.set_object_secret("acme", VPN.kind, VPN.name, SecretText.of(text))
        (place,) = ACME.functions
        return SetNetworkFunction(place.name, vpn_function(session, ACME, place))


@pytest.fixture(scope="module")
def site(host: PacketHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The other site, by the configuration that is printed for it."""
    text = peer_text("acme", VPN, THEIRS.private, None, ("10.0.0.0/24", "10.0.1.0/24", "fd00:1::/64"), 1442)
    assert "MTU = 1362\n" in text
    file = tmp_path_factory.mktemp("site") / "site.conf"
    # The lines of wg-quick(8); and more than the tenant's networks, as a site that means harm would have it.
    lines = [one for one in text.splitlines() if not one.startswith("MTU")]
    file.write_text("\n".join(lines).replace("AllowedIPs = ", "AllowedIPs = 10.5.0.0/24, "))
    tunnel = f"vgs{os.getpid():x}"
    host.run(OUTSIDE, "wireguard-go", tunnel)
    host.run(OUTSIDE, "wg", "setconf", tunnel, str(file))
    host.run(OUTSIDE, "ip", "link", "set", tunnel, "mtu", "1362", "up")
    for one in ("10.0.0.0/24", "10.0.1.0/24", "10.5.0.0/24"):
        host.run(OUTSIDE, "ip", "route", "add", one, "dev", tunnel, "src", SITE)
    host.run(OUTSIDE, "ip", "-6", "route", "add", "fd00:1::/64", "dev", tunnel, "src", SITE6)
    yield
    host.run(OUTSIDE, "ip", "link", "delete", tunnel)


def test_a_tunnel_joins_the_two_sites_and_nothing_else(
    host: PacketHost, machine: FunctionHost, step: SetNetworkFunction, site: None
) -> None:
    assert machine.bring(step.name, step.function, dry_run=True).changed
    assert machine.bring(step.name, step.function).changed
    assert not machine.bring(step.name, step.function).changed
    host.settle()
    a, a6 = (ACME.ports_by_vm["a"].port.address, ACME.ports_by_vm["a"].port.address6)
    b, c = (ACME.ports_by_vm[vm].port.address for vm in "bc")
    assert host.probe("acme/a", (SITE, 80))[SITE, 80] == f"outside {a}", "no NAT between the sites"
    expect(host.probe("acme/a", (SITE6, 80), (SITE, 0)), {(SITE6, 80): "outside", (SITE, 0): "echo"})
    expect(host.probe("acme/b", (SITE, 80)), {(SITE, 80): "outside"})
    wanted: Wanted = {
        (a, 80): "acme/a",
        (a, 81): None,  # its security group says so
        (str(a6), 80, SITE6): "acme/a",
        (b, 80): "acme/b",
        (c, 80): None,
        (a, 0, STRANGER): None,  # not of the prefixes
        (PEER.ports_by_vm["i"].port.address, 80): None,  # a peered tenant
    }
    expect(host.probe(OUTSIDE, *wanted), wanted)
    expect(host.probe("initech/i", (SITE, 80)), {(SITE, 80): None})
    assert host.run("acme/a", "python3", "-I", "-c", _LARGE, SITE).strip() == "1362", "the sender learns the MTU"
    there = machine.read(step.name)[step.name]
    said = {one.name: one.text.split() for one in there.answers}
    assert said["endpoints"] == [THEIRS.public, f"{SERVER}:51820"]
    assert int(said["latest-handshakes"][1]) > 0
    assert OWN.private not in str(there)


def test_a_tunnel_that_ended_comes_back_and_a_deleted_one_leaves_nothing(
    host: PacketHost, machine: FunctionHost, step: SetNetworkFunction, site: None
) -> None:
    assert step.function is not None
    machine.bring(step.name, step.function)
    (tunnel,) = step.function.links
    namespace = f"vgpuctl-{step.name}"
    machine.run("ip", "-n", namespace, "link", "delete", tunnel)
    assert machine.read()[step.name].problems == (f"{tunnel} is not there",)
    assert machine.bring(step.name, step.function).changed
    expect(host.probe("acme/a", (SITE, 80)), {(SITE, 80): "outside"})
    assert machine.bring(step.name, None).changed
    assert not machine.bring(step.name, None).changed
    assert machine.read() == {}
    assert namespace not in machine.run("ip", "netns", "list")
    assert machine.run("find", "/var/lib", "/run", "-name", "*vgn*") == ""
    expect(host.probe("acme/a", (SITE, 80)), {(SITE, 80): None})


@pytest.fixture(scope="module")
def provider(host: PacketHost) -> Iterator[Path]:
    """FRR of the provider's router. Gives the folder of its socket."""
    with tempfile.TemporaryDirectory(prefix="vgp") as name:
        folder = Path(name)
        (folder / "bgpd.conf").write_text(PROVIDER)
        for one in (folder, folder / "bgpd.conf"):
            shutil.chown(one, "frr")
        files = ("-f", f"{folder}/bgpd.conf", "-i", f"{folder}/bgpd.pid", "--vty_socket", name)
        host.run(OUTSIDE, "/usr/lib/frr/bgpd", "-d", "-Z", "-n", "-P", "0", *files)
        yield folder
        os.kill(int((folder / "bgpd.pid").read_text()), 9)


def _learned(host: PacketHost, provider: Path, family: str) -> dict[str, str]:
    """The routes that the provider's router has of others, with their next hop."""
    said = host.run(OUTSIDE, "vtysh", "--vty_socket", str(provider), "-c", f"show bgp {family} unicast json")
    return {
        prefix: paths[0]["nexthops"][0]["ip"]
        for prefix, paths in json.loads(said).get("routes", {}).items()
        if paths[0]["path"]  # its own have none
    }


def test_the_provider_s_router_learns_exactly_what_is_announced(
    host: PacketHost, machine: FunctionHost, provider: Path
) -> None:
    routes = (
        Announcement("203.0.113.20/32", "203.0.113.10"),
        Announcement("203.0.113.30/32", "203.0.113.11"),
        Announcement("2001:db8:100::/64", "2001:db8:ff::10"),
    )
    first = _speaker(*routes[:1], *routes[2:])
    assert machine.bring(first.name, first.function).changed
    assert not machine.bring(first.name, first.function).changed
    host.settle()
    four, six = {"203.0.113.20/32": "203.0.113.10"}, {"2001:db8:100::/64": "2001:db8:ff::10"}
    wait_for(lambda: _learned(host, provider, "ipv4") == four, "the first floating IP is announced")
    wait_for(lambda: _learned(host, provider, "ipv6") == six, "the routed prefix is announced")
    (before,) = _sessions(machine, first.name)
    assert (before.is_up, before.neighbour, before.sent) == (True, "203.0.113.1", 2)
    own = _asked(machine, first.name, "show bgp ipv4 unicast json")
    assert set(own["routes"]) == set(four), "no route of the provider is taken"
    assert machine.bring(first.name, _speaker(*routes[1:2]).function).changed
    changed = {"203.0.113.30/32": "203.0.113.11"}
    wait_for(lambda: _learned(host, provider, "ipv4") == changed, "another floating IP takes its place")
    wait_for(lambda: _learned(host, provider, "ipv6") == {}, "the prefix is withdrawn")
    seen = _asked(machine, first.name, "show bgp neighbors json")["203.0.113.1"]
    assert (seen["bgpState"], seen["connectionsDropped"]) == ("Established", 0), "the session did not end"
    assert machine.bring(first.name, None).changed
    wait_for(lambda: _learned(host, provider, "ipv4") == {}, "a speaker that is gone announces nothing")
    assert machine.read() == {}


def _speaker(*routes: Announcement) -> SetNetworkFunction:
    vpc = Vpc("external/internet", external_network=EXTERNAL, announcements=routes)
    (place,) = speaker_places(vpc)
    return SetNetworkFunction(place.name, speaker_function(None, vpc, place))  # type: ignore[arg-type]  # no password


def _sessions(machine: FunctionHost, name: str) -> list[BgpSession]:
    there = machine.read(name)[name]
    (answer,) = (one for one in there.answers if one.name == SUMMARY)
    return read_sessions(answer.text)


def _asked(machine: FunctionHost, name: str, question: str) -> dict[str, Any]:
    folder = f"/run/vgpuctl-functions/{name}"
    found: dict[str, Any] = json.loads(machine.run("vtysh", "--vty_socket", folder, "-c", question))
    return found
