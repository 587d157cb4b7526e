# SPDX-License-Identifier: Apache-2.0
"""IPv6 in tenants' networks with packets: dual stack and alone, allowed and refused, from inside and outside."""

import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.integration.ovn.packets import HOST, OUTSIDE, PacketHost, Wanted, expect, missing_for_packets
from tests.ovn_fixture import LocalOvn
from vgpuctl.model.http_balancing import BalancerProtocol
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import (
    Backend,
    Network,
    NetworkRequest,
    NetworkState,
    Port,
    first_free_address,
    link_local,
    mac_address,
)
from vgpuctl.model.security_rule import Protocol, Rule
from vgpuctl.model.vpc import (
    ExternalNetwork,
    FloatingIp,
    Peering,
    PortForward,
    PortProtocol,
    SecurityGroup,
    Vpc,
    VpcPort,
    ovn_name,
)
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.topology import external_owner, external_rows, tenant_owner, vpc_rows

ROUTER6, SERVER6, SERVER = "2001:db8:ff::1", "2001:db8:beef::7", "198.51.100.7"
EXTERNAL = ExternalNetwork(
    "internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.99", "provider", None, (HOST,),
    ("2001:db8:beef::99/128",), "2001:db8:ff::/64", ROUTER6, "2001:db8:ff::10", "2001:db8:ff::99",
    ("2001:db8:100::/56",),
)  # fmt: skip
OPEN = SecurityGroup("open", (Rule(Protocol.TCP, (80, 80)), Rule(Protocol.ICMP)))
NARROW = SecurityGroup(
    "narrow", (Rule(Protocol.TCP, (80, 80), "fd00:1::/64"), Rule(Protocol.TCP, (81, 81), "group:open"))
)
ONLY4 = SecurityGroup("only4", (Rule(source="10.0.0.0/24"),))


def network(tenant: str, name: str, cidr: str | None, cidr6: str | None, dns: tuple[str, ...] = ()) -> Network:
    """A network whose id follows from its names."""
    request = NetworkRequest(name, tenant, cidr, dns, backend=Backend.OVN, cidr6=cidr6)
    return Network(str(uuid.uuid5(uuid.NAMESPACE_URL, f"{tenant}/{name}")), request, NetworkState.CREATED)


def ports(of: Network, **groups: tuple[str, ...]) -> list[VpcPort]:
    """A port of each VM with the lowest free addresses, as the store gives them."""
    taken = list(of.gateways)
    made = []
    for vm, own in groups.items():
        given = [one for subnet in of.subnets if (one := first_free_address(subnet, taken)) is not None]
        taken += given
        port_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{of.printed_name}/{vm}"))
        six = next((one for one in given if ":" in one), None)
        made.append(VpcPort(Port(port_id, of.id, str(uuid.uuid4()), 0, mac_address(port_id), given[0], six), vm, own))
    return made


FRONT = network("acme", "front", "10.0.0.0/24", "fd00:1::/64", ("192.0.2.53", "fd00:53::1", "fd00:53::2"))
BACK = network("acme", "back", None, "fd00:2::/64")
ROUTED = network("acme", "routed", None, "2001:db8:100::/64")
THEIRS = network("globex", "front", "10.0.0.0/24", "fd00:1::/64")
PEERED = network("initech", "lan", "10.5.0.0/24", "fd00:5::/64")
ACME = Vpc(
    "acme",
    (FRONT, BACK, ROUTED),
    (
        *ports(FRONT, a=("open",), b=("open",), c=("narrow",), bare=("open",)),
        *ports(BACK, d=("open",), e=("only4",)),
        *ports(ROUTED, p=("open",)),
    ),
    (OPEN, NARROW, ONLY4),
    EXTERNAL,
    "203.0.113.10",
    (FloatingIp("d", "203.0.113.20", "2001:db8:ff::20"), FloatingIp("a", "203.0.113.21", "2001:db8:ff::21")),
    (PortForward(PortProtocol.TCP, "203.0.113.10", 8080, "b", 80, "2001:db8:ff::10"),),
    (LoadBalancer("shop", "10.0.0.253", 8000, BalancerProtocol.TCP, ("a", "b"), 80, 1, 3, 2, "front", "fd00:1::fffe"),),
    peerings=(Peering("initech", 3, (PEERED,)),),
    router_address6="2001:db8:ff::10",
    routed6=frozenset({"2001:db8:100::/64"}),
)
GLOBEX = Vpc("globex", (THEIRS,), tuple(ports(THEIRS, a=("open",), b=("open",), bare=())), (OPEN,))
INITECH = Vpc(
    "initech", (PEERED,), tuple(ports(PEERED, i=("open",))), (OPEN,), peerings=(Peering("acme", 3, ACME.networks),)
)


def six(vpc: Vpc, vm: str) -> str:
    """The IPv6 address of a VM."""
    address = vpc.ports_by_vm[vm].port.address6
    assert address is not None
    return address


@pytest.fixture(scope="module")
def host(central: LocalOvn) -> Iterator[PacketHost]:
    """Three tenants, two with the same addresses, on one host with the world outside."""
    missing = missing_for_packets()
    if missing is not None:
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(missing)
        pytest.skip(missing)
    vpcs = (ACME, GLOBEX, INITECH)
    wanted = {external_owner("internet"): external_rows(EXTERNAL)}
    wanted |= {tenant_owner(vpc.tenant): vpc_rows(vpc) for vpc in vpcs}
    with Northbound(NorthboundAddress(central.northbound)) as northbound:
        northbound.apply(wanted)
        assert northbound.apply(wanted) == []
    outside = ("203.0.113.1/24", f"{ROUTER6}/64", f"{SERVER}/32", f"{SERVER6}/128", "2001:db8:beef::99/128")
    with PacketHost(central, "provider", outside) as made:
        made.plug(*vpcs, bare=["acme/bare", "globex/bare"])
        # The provider's router sends the routed prefix to the tenant's gateway.
        made.run(OUTSIDE, "ip", "-6", "route", "add", "2001:db8:100::/56", "via", "2001:db8:ff::10")
        yield made


def test_dual_stack_and_ipv6_alone_inside_a_tenant_as_its_groups_allow(host: PacketHost) -> None:
    b, c, d, e = (six(ACME, vm) for vm in "bcde")
    wanted: Wanted = {
        ("10.0.0.3", 80): "acme/b",
        ("10.0.0.3", 0): "echo",
        (b, 80): "acme/b",
        (b, 81): None,
        (b, 0): "echo",
        (c, 80): "acme/c",  # from fd00:1::/64
        (c, 81): "acme/c",  # from a member of `open`
        (c, 0): None,
        ("10.0.0.4", 80): None,  # its rule is for IPv6 alone
        ("10.0.0.4", 81): "acme/c",  # a group's members have both
        (d, 80): "acme/d",  # through the router
        (d, 0): "echo",
        (d, 81): None,
        (e, 80): None,  # its rule is for IPv4 alone
        ("fd00:1::1", 0): "echo",  # the router
    }
    expect(host.probe("acme/a", *wanted), wanted)
    assert host.probe("acme/d", (six(ACME, "a"), 80)) == {(six(ACME, "a"), 80): f"acme/a {d}"}


def test_two_tenants_with_the_same_prefix_reach_each_their_own(host: PacketHost) -> None:
    assert six(ACME, "b") == six(GLOBEX, "b") == "fd00:1::3"
    for tenant in ("acme", "globex"):
        expect(host.probe(f"{tenant}/a", ("fd00:1::3", 80)), {("fd00:1::3", 80): f"{tenant}/b"})
    stranger = six(ACME, "d")
    expect(host.probe("globex/a", (stranger, 80), (stranger, 0)), {(stranger, 80): None, (stranger, 0): None})


def test_peered_tenants_reach_one_another_over_ipv6(host: PacketHost) -> None:
    ours, theirs = six(ACME, "a"), six(INITECH, "i")
    wanted: Wanted = {(theirs, 80): "initech/i", (theirs, 81): None, ("10.5.0.2", 80): "initech/i"}
    expect(host.probe("acme/a", *wanted), wanted)
    expect(host.probe("initech/i", (ours, 0)), {(ours, 0): "echo"})


def test_a_guest_learns_its_router_and_its_fixed_address_from_the_network(host: PacketHost) -> None:
    own = six(ACME, "bare")
    assert json.loads(host.inside("acme/bare", "lease", "{interface}")) == [own, "fd00:53::1", "fd00:53::2"]
    deadline = time.monotonic() + 30
    router = link_local(mac_address(f"{FRONT.id}/gateway"))
    while f"default via {router}" not in (routes := host.run("acme/bare", "ip", "-6", "route")):
        assert time.monotonic() < deadline, routes
        time.sleep(0.2)
    assert "fd00:1::/64" in routes
    mtu = f"/proc/sys/net/ipv6/conf/{host.interface('acme/bare')}/mtu"
    assert host.run("acme/bare", "cat", mtu) == "1442\n", "its interface has another one"
    # The advertisement says: no addresses but those of DHCPv6.
    assert "fd00:1:" not in host.run("acme/bare", "ip", "-6", "address")
    host.run("acme/bare", "ip", "address", "add", f"{own}/128", "dev", host.interface("acme/bare"))
    wanted: Wanted = {(six(ACME, "b"), 80): "acme/b", (six(ACME, "d"), 80): "acme/d"}
    expect(host.probe("acme/bare", *wanted), wanted)


def test_a_hostile_guest_has_no_other_address_than_its_own(host: PacketHost) -> None:
    b = six(ACME, "b")
    for address, source in ((six(ACME, "a"), "fd00:1::99"), (six(ACME, "a"), "fd00:1::1"), ("10.0.0.2", "10.0.0.99")):
        host.run("acme/b", "ip", "address", "add", f"{source}/128" if ":" in source else f"{source}/32", "dev", "lo")
        expect(host.probe("acme/b", (address, 80, source)), {(address, 80, source): None})
    expect(host.probe("acme/b", (six(ACME, "a"), 80, b)), {(six(ACME, "a"), 80, b): "acme/a"})


def test_an_advertisement_of_a_guest_stays_in_its_own_network(host: PacketHost) -> None:
    """OVN lets neighbour discovery pass every ACL, so within the network it is not dropped (docs/networks.md)."""
    host.inside("acme/b", "advertise", "{interface}", "fd00:bad::")
    assert "fd00:bad::/64" in host.run("acme/bare", "ip", "-6", "route")
    for name in ("globex/bare", "acme/a", "acme/d"):
        assert "fd00:bad" not in host.run(name, "ip", "-6", "route"), (
            "another network, or a guest with the seed's config"
        )


def test_the_way_out_has_nat_for_local_addresses_and_none_for_a_routed_prefix(host: PacketHost) -> None:
    p = six(ACME, "p")
    for vm, seen in (("b", "2001:db8:ff::10"), ("a", "2001:db8:ff::21"), ("d", "2001:db8:ff::20"), ("p", p)):
        assert host.probe(f"acme/{vm}", (SERVER6, 80)) == {(SERVER6, 80): f"outside {seen}"}, vm
    assert host.probe("acme/b", (SERVER, 80)) == {(SERVER, 80): "outside 203.0.113.10"}
    management = ("2001:db8:beef::99", 80)
    expect(host.probe("acme/b", management), {management: None})
    expect(host.probe("globex/a", (SERVER6, 80)), {(SERVER6, 80): None})  # it has no gateway


def test_from_outside_the_groups_apply_to_floating_addresses_forwards_and_routed_prefixes(host: PacketHost) -> None:
    wanted: Wanted = {
        (six(ACME, "p"), 80): "acme/p",
        (six(ACME, "p"), 81): None,
        (six(ACME, "p"), 0): "echo",
        ("2001:db8:ff::20", 80): "acme/d",
        ("2001:db8:ff::20", 81): None,
        ("2001:db8:ff::21", 0): "echo",
        ("203.0.113.21", 80): "acme/a",
        ("2001:db8:ff::10", 8080): "acme/b",
        ("203.0.113.10", 8080): "acme/b",
        ("2001:db8:ff::10", 8081): None,
    }
    expect(host.probe(OUTSIDE, *wanted), wanted)


def test_a_balancer_has_an_address_of_each_version_and_leaves_out_a_dead_backend(
    host: PacketHost, central: LocalOvn
) -> None:
    virtual = [("10.0.0.253", 8000), ("fd00:1::fffe", 8000)]
    client = "acme/c"
    heard = [host.probe(client, *virtual) for _ in range(6)]
    for one in virtual:
        assert {str(found[one]).split()[0] for found in heard} <= {"acme/a", "acme/b"}, one
    host.stop_serving("acme/a")
    deadline = time.monotonic() + 40
    states = ("--format=csv", "--no-headings", "--columns=ip,status", "find", "Service_Monitor", "status=offline")
    while len((said := central.sbctl(*states)).splitlines()) < 2:
        assert time.monotonic() < deadline, said
        time.sleep(0.5)
    host.settle()
    for _ in range(6):
        expect(host.probe(client, *virtual), dict.fromkeys(virtual, "acme/b"))


def test_a_false_neighbour_and_a_false_dhcp_server_are_dropped_by_northd_s_flows(
    host: PacketHost, central: LocalOvn
) -> None:
    sender, switch = ACME.ports_by_vm["b"].port, ovn_name("s", FRONT.id)
    target = ACME.ports_by_vm["a"].port
    base = f'inport == "{sender.id}" && eth.src == {sender.mac_address} && '
    answer = base + (
        f"eth.dst == {target.mac_address} && ip6.dst == {target.address6} && ip.ttl == 255 && icmp6.type == 136 && "
        f"icmp6.code == 0 && nd.tll == {sender.mac_address} && "
    )
    own, false = (f"ip6.src == {one} && nd.target == {one}" for one in (sender.address6, "fd00:1::1"))
    assert f'output("{target.id}")' in central.trace(switch, answer + own)
    assert "output" not in central.trace(switch, answer + false)
    server = base + (
        f"eth.dst == {target.mac_address} && ip6.src == {link_local(sender.mac_address)} && "
        f"ip6.dst == {link_local(target.mac_address)} && ip.ttl == 64 && udp.src == 547 && udp.dst == 546"
    )
    assert "output" not in central.trace(switch, server)


def test_a_router_knows_no_balancer_with_an_address_of_the_external_network() -> None:
    """It would answer for that address in the external network, where it is another's."""
    shop = ACME.balancers[0]
    stray4, stray6 = (
        replace(shop, name="4", address="203.0.113.50"),
        replace(shop, name="6", address6="2001:db8:ff::5"),
    )
    rows = vpc_rows(replace(ACME, balancers=(shop, stray4, stray6)))
    (router,) = (row for row in rows if row.table == "Logical_Router")
    known = {reference.key for reference in router.references["load_balancer"]}
    assert {one for one in known if one.startswith("balancer/")} == {"balancer/shop"}


def test_a_network_of_ipv4_alone_has_no_rows_of_ipv6() -> None:
    four = network("acme", "old", "10.9.0.0/24", None)
    rows = vpc_rows(replace(GLOBEX, tenant="acme", networks=(four,), ports=tuple(ports(four, a=()))))
    assert not [row for row in rows if row.columns.get("ipv6_ra_configs") or "dhcpv6_options" in row.references]
    assert not [row for row in rows if "546" in str(row.columns.get("match")) or "fd00" in str(row.columns)]
