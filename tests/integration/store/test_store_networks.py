# SPDX-License-Identifier: Apache-2.0
"""Networks, ports and addresses: never the same address or MAC twice, also when many runs take them at once."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.integration.store import racers
from tests.integration.store.samples import network, some_uuid, vm
from tests.integration.store.test_store_concurrency import RACERS, Race
from vgpuctl.errors import AddressesExhausted, ConcurrentChange, NotFound, StateError
from vgpuctl.model.network import AddressKind, NetworkState
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
        first = session.hold_network_address(front, "load-balancer/shop")
        assert session.hold_network_address(front, "load-balancer/shop") == first == "10.0.0.254"
        assert session.hold_network_address(back, "load-balancer/shop") == "10.0.1.254"
        assert session.addresses(front.id) == before
