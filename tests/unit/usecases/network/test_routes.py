# SPDX-License-Identifier: Apache-2.0
"""Static routes: what is refused, what a VM that routes may send from, and what is told without next hops."""

import ipaddress
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.http_balancing import BalancerProtocol
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import AddressKind, Backend, Network, NetworkRequest, NetworkState
from vgpuctl.model.routes import foreign_sources, next_hops_of, parse_next_hop, parse_prefix, route_for
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.model.vpc import DirectConnect, ExternalNetwork, Gateway, PeeringSpec, Route, Vpc
from vgpuctl.ovn.topology import vpc_rows
from vgpuctl.store.session import Session
from vgpuctl.store.store import open_store
from vgpuctl.usecases.network.routes import is_through, refuse_unfit_route, refuse_unfit_routes
from vgpuctl.usecases.network.rule_remarks import remarks_of_rules
from vgpuctl.usecases.network.vpc import read_vpc
from vgpuctl.usecases.network.vpc_addresses import set_object

INTERNET = ExternalNetwork(
    "internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.99", "provider", None, ("gpu1",),
    ("172.20.0.0/16", "2001:db8:beef::/48"), "2001:db8:ff::/64", "2001:db8:ff::1", "2001:db8:ff::10",
    "2001:db8:ff::99", ("2001:db8:100::/56",),
)  # fmt: skip
VM = "fw-1"


def network(name: str, cidr: str, cidr6: str | None = None, *, tenant: str = "acme", isolated: bool = False) -> Network:
    request = NetworkRequest(name, tenant, cidr, isolated=isolated, backend=Backend.OVN, cidr6=cidr6)
    return Network(str(uuid4()), request, NetworkState.CREATED)


FRONT = network("front", "10.0.0.0/24", "fd00:1::/64")
SITE, INNER = network("site", "10.0.8.0/24", "fd00:8::/64"), network("inner", "10.0.9.0/24", isolated=True)
PEERED = network("lan", "10.5.0.0/24", tenant="globex")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A tenant with a gateway, a direct connect, a peer, a VM (10.0.0.2) and a balancer (10.0.0.253)."""
    router = Vm(str(uuid4()), VmRequest(VM, "acme"), "gpu1", VmState.CREATING)
    with open_store(f"sqlite:///{tmp_path}/store.db") as store, store.transaction() as opened:
        for tenant in ("acme", "globex"):
            opened.add_tenant(tenant)
        opened.set_external_network(INTERNET)
        for one in (FRONT, SITE, INNER, PEERED):
            opened.add_network(one)
        opened.add_vm(router)
        opened.add_port(FRONT, router.uuid)
        for spec in (
            Gateway("internet"),
            DirectConnect("site", "provider", 42),
            PeeringSpec("globex", -1),
            LoadBalancer("shop", "", 80, BalancerProtocol.TCP, (VM,), 80, network="front"),
        ):
            set_object(opened, "acme", spec)
        yield opened


@pytest.mark.parametrize(
    ("prefix", "hop", "said"),
    [
        ("10.0.0.0/24", VM, "is within its own network front"),
        ("10.0.0.128/25", VM, "is within its own network front"),
        ("10.0.9.0/25", VM, "is within its own network inner"),
        ("fd00:1::/80", VM, "is within its own network front"),
        ("0.0.0.0/0", VM, "would replace the default route of the tenant's gateway to internet"),
        ("::/0", VM, "would replace the default route of the tenant's gateway to internet"),
        ("64.0.0.0/2", "discard", None),
        ("128.0.0.0/1", VM, "overlaps with 203.0.113.0/24, the external network internet"),
        ("203.0.113.64/26", VM, "overlaps with 203.0.113.0/24, the external network internet"),
        ("2001:db8:ff::20/128", VM, "overlaps with 2001:db8:ff::/64, the external network internet"),
        ("172.20.7.0/24", VM, "overlaps with 172.20.0.0/16, a management network of internet"),
        ("2001:db8:100:7::/64", VM, "overlaps with 2001:db8:100::/56, a prefix that is routed to tenants by internet"),
        ("10.5.0.0/16", VM, "overlaps with globex/lan (10.5.0.0/24) of a peered tenant"),
        ("10.5.0.7/32", VM, "overlaps with globex/lan (10.5.0.0/24) of a peered tenant"),
        ("10.66.0.0/16", "192.0.2.7", "cannot lead to 192.0.2.7: the address is in no network of the tenant"),
        ("10.66.0.0/16", "10.5.0.7", "the address is in no network of the tenant"),
        ("10.66.0.0/16", "10.0.8.1", "which is the tenant's router itself"),
        ("10.66.0.0/16", "10.0.8.254", "which is the address that OVN's health checks ask from"),
        ("10.66.0.0/16", "10.0.0.253", "which is a load balancer's"),
        ("10.66.0.0/16", "10.0.0.2", f"leads to 10.0.0.2, which is VM {VM}'s"),
        ("10.66.0.0/16", "10.0.0.77", "network front has no direct connect"),
        ("10.66.0.0/16", "10.0.8.255", "no host can have this address"),
        ("10.66.0.0/16", "10.0.9.7", "network inner is isolated"),
        ("10.66.0.0/16", f"{VM}@inner", "network inner is isolated"),
        ("10.66.0.0/16", f"{VM}@nowhere", "tenant acme has no network 'nowhere'"),
        ("10.66.0.0/16", "10.0.8.77", None),
        ("10.0.0.0/8", "10.0.8.77", "overlaps with globex/lan"),
        ("10.0.0.0/16", VM, None),
        ("fd00:66::/48", "fd00:8::77", None),
        ("10.66.0.0/16", "later", None),
    ],
)
def test_a_route_that_would_take_addresses_of_others_or_leads_nowhere_is_refused(
    session: Session, prefix: str, hop: str, said: str | None
) -> None:
    route = Route(parse_prefix(prefix), (parse_next_hop(hop),))
    if said is None:
        assert set_object(session, "acme", route) == "created"
        assert set_object(session, "acme", route) == "unchanged"
        return
    with pytest.raises(VgpuctlError) as caught:
        set_object(session, "acme", route)
    assert said in caught.value.message
    assert caught.value.hint
    assert session.vpc_objects("acme", Route) == []


def test_what_makes_a_route_unfit_later_is_refused(session: Session) -> None:
    for prefix, hop in (("10.66.0.0/16", VM), ("10.67.0.0/16", "10.0.8.77")):
        set_object(session, "acme", Route(prefix, (hop,)))
    refuse_unfit_routes(session, "acme")
    with pytest.raises(VgpuctlError, match=r"overlaps with 10\.67\.7\.0/24, a management network of internet"):
        refuse_unfit_routes(session, "acme", external=replace(INTERNET, management=("10.67.7.0/24",)))
    session.add_network(network("wide", "10.66.0.0/16", tenant="globex"))
    with pytest.raises(VgpuctlError, match="overlaps with globex/wide"):
        refuse_unfit_routes(session, "acme")
    assert is_through(SITE, ("10.0.8.77",))
    assert is_through(SITE, ("fw-1@site",))
    assert not is_through(SITE, ("fw-1", "10.0.0.7", "discard"))


def test_no_vm_gets_the_address_of_a_next_hop(session: Session) -> None:
    set_object(session, "acme", Route("10.66.0.0/16", ("10.0.8.2",)))
    set_object(session, "acme", Route("10.67.0.0/16", ("10.0.8.2", "10.0.8.253")))
    assert session.free_port(SITE, str(uuid4())).address == "10.0.8.3"
    assert session.hold_network_addresses(SITE, "load-balancer/other") == ["10.0.8.252", "fd00:8::fffe"]
    session.delete_vpc_object("acme", Route.kind, "10.67.0.0/16")
    held = session.addresses(SITE.id)
    assert [one for one, kind in held.items() if kind is AddressKind.NEXT_HOP] == ["10.0.8.2"]
    session.delete_vpc_object("acme", Route.kind, "10.66.0.0/16")
    assert session.free_port(SITE, str(uuid4())).address == "10.0.8.2"


def test_a_next_hop_that_is_not_there_is_told_and_the_route_drops_its_packets(session: Session) -> None:
    for route in (
        Route("10.66.0.0/16", ("later",)),
        Route("10.67.0.0/16", (f"{VM}@site", VM)),
        Route("10.68.0.0/16", ("discard",)),
    ):
        set_object(session, "acme", route)
    told = remarks_of_rules(session, "acme")
    assert {name: said for (kind, name), said in told.items() if kind is Route.kind and said} == {
        "10.66.0.0/16": [
            "tenant acme has no VM later, so nothing is sent to it",
            "no next hop is left, so packets to it are dropped",
        ],
        "10.67.0.0/16": [f"VM {VM} has no IPv4 address in network site, so nothing is sent to it"],
    }
    vpc = read_vpc(session, "acme")
    found = {
        (row.columns["ip_prefix"], row.columns["nexthop"])
        for row in vpc_rows(vpc)
        if row.key.startswith("route/") and row.table == "Logical_Router_Static_Route"
    }
    assert found == {("10.66.0.0/16", "discard"), ("10.67.0.0/16", "10.0.0.2"), ("10.68.0.0/16", "discard")}
    assert vpc_rows(read_vpc(session, "acme", without_vm=vpc.ports[0].port.vm_uuid)) != vpc_rows(vpc)


def _vpc(session: Session, *routes: Route, has_gateway: bool = True) -> Vpc:
    found = replace(read_vpc(session, "acme"), routes=routes)
    return found if has_gateway else replace(found, external_network=None, router_address=None)


def test_a_vm_that_routes_may_send_from_the_prefix_and_from_no_address_of_others(session: Session) -> None:
    vpc = _vpc(session, Route("10.66.0.0/16", (VM,)), Route("fd00:66::/48", (VM,)), Route("10.67.0.0/16", ("discard",)))
    (port,) = vpc.ports
    assert foreign_sources(vpc) == {port.port.id: ["10.66.0.0/16", "fd00:66::/48"]}
    rows = vpc_rows(vpc)
    (secured,) = (row.columns["port_security"] for row in rows if row.key == f"port/{port.port.id}")
    assert secured == [f"{port.port.mac_address} 10.0.0.2 fd00:1::2 10.66.0.0/16 fd00:66::/48"]
    (four, _six) = (row for row in rows if row.table == "Logical_Router_Policy")
    assert str(four.columns["match"]).startswith("ip4.src == {10.66.0.0/16} && !(ip4.src == {10.0.0.0/24, ")
    assert [row for row in vpc_rows(_vpc(session)) if row.table == "Logical_Router_Policy"] == []
    everything = _vpc(session, Route("0.0.0.0/0", (VM,)), Route("::/0", (VM,)), has_gateway=False)
    allowed = [ipaddress.ip_network(one) for one in foreign_sources(everything)[port.port.id]]
    for address, is_allowed in (
        *(("10.0.0.3", False), ("10.0.9.1", False), ("10.0.1.1", True), ("127.0.0.1", False), ("8.8.8.8", True)),
        *(("fd00:1::3", False), ("fd00:2::3", True), ("2001:db8::1", True), ("fe80::1", False), ("239.1.1.1", False)),
    ):
        found = ipaddress.ip_address(address)
        assert any(one.version == found.version and found in one for one in allowed) is is_allowed, address


def test_the_longest_prefix_decides_and_networks_come_first(session: Session) -> None:
    wide, narrow = Route("10.0.0.0/8", (VM,)), Route("10.66.0.0/16", (VM, f"{VM}@front"))
    vpc = _vpc(session, wide, narrow, Route("fd00::/16", (VM,)))
    for address, wanted in (("10.66.1.1", narrow), ("10.67.1.1", wide), ("10.0.8.9", None), ("198.51.100.1", None)):
        assert route_for(vpc, address) == wanted, address
    assert [one.address for one in next_hops_of(vpc, narrow)] == ["10.0.0.2"], "one VM twice is one next hop"
    assert [one.address for one in next_hops_of(vpc, vpc.routes[2])] == ["fd00:1::2"]


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "10.0.0.0/33", "300.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16",
    "ff02::/16", "fe80::%eth0/64", "::ffff:10.0.0.0/104", "10.0.0.0/8, 11.0.0.0/8", "2002::/16", "x" * 99])  # fmt: skip
def test_what_is_no_prefix_is_refused(text: str) -> None:
    with pytest.raises(VgpuctlError, match="prefix") as caught:
        parse_prefix(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["", "@", "fw-1@", "@back", "fw-1@back@front", "fe80::1", "ff02::1", "::", "fd00::1%eth0", "10.0.0.1/32", "a b"],
)
def test_what_is_no_next_hop_is_refused(text: str) -> None:
    with pytest.raises(VgpuctlError, match="next hop"):
        parse_next_hop(text)


def test_a_route_of_the_store_is_checked_as_one_of_a_command(session: Session) -> None:
    with pytest.raises(VgpuctlError, match="leads to fw-1"):
        Route("10.66.0.0/16", ("discard", "fw-1"))
    with pytest.raises(VgpuctlError, match="of two IP versions"):
        refuse_unfit_route(session, "acme", Route("10.66.0.0/16", ("fd00:8::77",)))
