# SPDX-License-Identifier: Apache-2.0
"""Networks, ports and addresses: never the same address or MAC twice, also when many runs take them at once."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.integration.store import racers
from tests.integration.store.samples import network, some_uuid, vm
from tests.integration.store.test_store_concurrency import RACERS, Race
from vgpuctl.errors import AddressesExhausted, ConcurrentChange, NotFound, StateError
from vgpuctl.model.network import AddressKind, Backend, Network, NetworkRequest, NetworkState
from vgpuctl.model.vpc import ExternalNetwork
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.quota.limits import Quota
from vgpuctl.store.store import Store


@pytest.fixture
def tenants(store: Store) -> Store:
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_tenant("globex")
    return store


def test_a_network_is_kept_as_asked_for_and_holds_its_gateway(tenants: Store) -> None:
    made = network(dns=("192.0.2.53",), isolated=True)
    with tenants.transaction() as session:
        session.add_network(made)
    with tenants.reading() as session:
        assert session.network("acme", "front") == made
        assert session.networks() == session.networks(tenant="acme") == session.networks(host="gpu1") == [made]
        assert session.networks(tenant="globex") == []
        assert session.addresses(made.id) == {"10.0.0.1": AddressKind.GATEWAY}
        with pytest.raises(NotFound, match="no network 'fornt'") as caught:
            session.network("acme", "fornt")
    assert caught.value.hint == "did you mean front?"


def test_tenants_may_use_the_same_name_and_the_same_addresses(tenants: Store) -> None:
    ours, theirs = network(), network("globex")
    with tenants.transaction() as session:
        session.add_network(ours)
        session.add_network(theirs)
        ports = [session.add_port(one, some_uuid()) for one in (ours, theirs)]
    assert [port.address for port in ports] == ["10.0.0.2", "10.0.0.2"]
    assert ports[0].mac_address != ports[1].mac_address
    with pytest.raises(ConcurrentChange, match="just created network front"), tenants.transaction() as session:
        session.add_network(network())


def test_addresses_are_given_from_below_and_come_back_with_the_vm(tenants: Store) -> None:
    made, first, second = network(cidr="10.0.0.0/29"), vm(), vm("web-2")
    with tenants.transaction() as session:
        session.add_network(made)
        for one in (first, second):
            session.add_vm(one)
        assert [session.add_port(made, one.uuid).address for one in (first, second)] == ["10.0.0.2", "10.0.0.3"]
        assert [session.add_port(made, some_uuid()).address for _ in range(3)] == ["10.0.0.4", "10.0.0.5", "10.0.0.6"]
    with pytest.raises(AddressesExhausted), tenants.transaction() as session:
        session.add_port(made, some_uuid())
    with tenants.transaction() as session:
        assert session.delete_vm(first.uuid)
        assert session.attachments(first.uuid) == []
        assert session.free_port(made, some_uuid()).address == "10.0.0.2"
        (attachment,) = session.attachments(second.uuid)
        assert (attachment.network, attachment.port.address) == (made, "10.0.0.3")


def test_a_network_with_ports_or_in_deletion_keeps_its_row(tenants: Store) -> None:
    made, owner = network(), vm()
    with tenants.transaction() as session:
        session.add_network(made)
        session.add_vm(owner)
        session.add_port(made, owner.uuid)
    with pytest.raises(StateError, match="still has 1 ports"), tenants.transaction() as session:
        session.delete_network(made.id)
    with tenants.transaction() as session:
        session.set_network_state(made.id, NetworkState.DELETING)
    with pytest.raises(ConcurrentChange, match="is deleting"), tenants.transaction() as session:
        session.add_port(made, some_uuid())
    with tenants.transaction() as session:
        session.delete_vm(owner.uuid)
        assert session.delete_network(made.id)
        assert not session.delete_network(made.id)
        assert (session.networks(), session.ports()) == ([], [])
        with pytest.raises(NotFound):
            session.set_network_state(made.id, NetworkState.CREATED)


@pytest.mark.parametrize(("taken", "column"), [("mac_address", "address"), ("address", "mac_address")])
def test_the_database_itself_refuses_a_second_of_each(tenants: Store, taken: str, column: str) -> None:
    made = network()
    with tenants.transaction() as session:
        session.add_network(made)
        port = session.add_port(made, some_uuid())
    row = {**vars(port), "id": some_uuid(), "vm_uuid": some_uuid(), column: "10.0.0.99"}
    assert row[taken] == getattr(port, taken)
    with pytest.raises(ConcurrentChange), tenants.transaction() as session:
        session._insert("ports", **row)


def test_many_runs_take_addresses_at_once_and_none_is_given_twice(tenants: Store, url: str) -> None:
    made = network()
    with tenants.transaction() as session:
        session.add_network(made)
    race = Race(racers.take_addresses, url)
    ports = [port for _ in range(RACERS) for port in race.answer()]
    assert race.end() == [0] * RACERS
    assert len(ports) == RACERS * racers.ADDRESSES_EACH
    for taken in zip(*ports, strict=True):
        assert max(Counter(taken).values()) == 1
    with tenants.reading() as session:
        assert len(session.addresses(made.id)) == len(ports) + 1


def test_what_holds_an_address_holds_one_and_gives_back_the_one_of_its_former_network(tenants: Store) -> None:
    front = network()
    request = replace(front.request, name="back", cidr="10.0.1.0/24")
    back = replace(front, id=some_uuid(), request=request)
    with tenants.transaction() as session:
        session.add_network(front)
        session.add_network(back)
        before = session.addresses(front.id)
        first = session.hold_network_addresses(front, "load-balancer/shop")
        assert session.hold_network_addresses(front, "load-balancer/shop") == first == ["10.0.0.254"]
        assert session.hold_network_addresses(back, "load-balancer/shop") == ["10.0.1.254"]
        assert session.addresses(front.id) == before


def _six(name: str, cidr: str | None, cidr6: str, tenant: str = "acme") -> Network:
    request = NetworkRequest(name, tenant, cidr, backend=Backend.OVN, cidr6=cidr6)
    return Network(some_uuid(), request, NetworkState.CREATED)


def test_a_port_has_a_fixed_address_of_each_version_of_its_network(tenants: Store) -> None:
    both, alone, owner = _six("front", "10.0.0.0/29", "fd00:1::/64"), _six("back", None, "fd00:2::/64"), vm()
    with tenants.transaction() as session:
        session.add_network(both)
        session.add_network(alone)
        session.add_vm(owner)
        first = session.add_port(both, owner.uuid)
        second = session.add_port(alone, owner.uuid, 1)
        assert first.addresses == ("10.0.0.2", "fd00:1::2")
        assert (second.address, second.address6, second.addresses) == ("fd00:2::2", "fd00:2::2", ("fd00:2::2",))
        assert session.hold_network_addresses(both, "load-balancer/shop") == ["10.0.0.5", "fd00:1::fffe"]
        assert session.hold_network_addresses(alone, "load-balancer/six") == ["fd00:2::fffe"]
        assert session.held_addresses() == {both.id: {4: 4, 6: 4}, alone.id: {4: 0, 6: 4}}
        assert session.held_addresses(alone.id) == {alone.id: {4: 0, 6: 4}}
    with tenants.reading() as session:
        assert [one.port for one in session.attachments(owner.uuid)] == [first, second]
        assert session.addresses(alone.id)["fd00:2::ffff"] is AddressKind.MONITOR
        assert [one.address6 for one in session.ports()] == [
            one.address6 for one in sorted((first, second), key=lambda one: one.network_id)
        ]
    with tenants.transaction() as session:
        for _ in range(2):
            session.add_port(both, some_uuid())
        with pytest.raises(AddressesExhausted, match=r"10\.0\.0\.0/29"):
            session.add_port(both, some_uuid())
        session.delete_port(first)
        assert session.add_port(both, some_uuid()).addresses == first.addresses


def test_the_database_refuses_an_ipv6_address_of_another_port(tenants: Store) -> None:
    made = _six("front", "10.0.0.0/24", "fd00:1::/64")
    with tenants.transaction() as session:
        session.add_network(made)
        port = session.add_port(made, some_uuid())
    changed = {"id": some_uuid(), "vm_uuid": some_uuid(), "mac_address": "52:00:00:00:00:99", "address": "10.0.0.99"}
    with pytest.raises(ConcurrentChange), tenants.transaction() as session:
        session._insert("ports", **{**vars(port), **changed})


def test_a_routed_prefix_is_one_network_s_and_free_with_it(tenants: Store) -> None:
    external = ExternalNetwork(
        "internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.20", "provider",
        cidr6="2001:db8::/64", gateway6="2001:db8::1", first6="2001:db8::10", last6="2001:db8::11",
        routed6=("2001:db8:100::/56",),
    )  # fmt: skip
    ours, theirs = (_six("pub", None, "2001:db8:100::/64", tenant) for tenant in ("acme", "globex"))
    with tenants.transaction() as session:
        session.set_external_network(external)
        session.set_quotas("acme", [Quota("public-addresses", 1)])
        session.add_network(ours)
        session.hold_routed_prefix(external, ours)
        assert session.hold_external_address(external, "acme", "gateway/gateway") == "203.0.113.10"
        assert session.hold_external_address6(external, "acme", "gateway/gateway") == "2001:db8::10"
        assert session.hold_external_address6(external, "acme", "gateway/gateway") == "2001:db8::10"
        assert session.external_address6(external, "acme", "gateway/gateway") == "2001:db8::10"
        assert session.hold_external_address6(external, "globex", "gateway/gateway") == "2001:db8::11"
        assert session.routed_prefixes(external, "acme") == {"2001:db8:100::/64"}
        assert session.routed_prefixes(external, "globex") == frozenset()
    with pytest.raises(ConcurrentChange, match="just taken 2001:db8:100::/64"), tenants.transaction() as session:
        session.add_network(theirs)
        session.hold_routed_prefix(external, theirs)
    for smaller in ({"routed6": ("2001:db8:200::/56",)}, {"last6": "2001:db8::10"}):
        with pytest.raises(StateError, match="not in its new pool"), tenants.transaction() as session:
            session.set_external_network(replace(external, **smaller))
    with pytest.raises(AddressesExhausted), tenants.transaction() as session:
        session.hold_external_address6(external, "globex", "floating-ip/web-1")
    with tenants.transaction() as session:
        session.delete_network(ours.id)
        session.delete_vpc_object("acme", VpcKind.GATEWAY, "gateway")
        assert session.external_addresses("internet") == {"2001:db8::11": "globex/gateway/gateway/ipv6"}
        session.add_network(theirs)
        session.hold_routed_prefix(external, theirs)
