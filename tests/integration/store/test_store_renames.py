# SPDX-License-Identifier: Apache-2.0
"""A VM's new name in the store: in its rows, in the queue, and in the objects of its network that name it."""

import pytest

from tests.integration.store.samples import vm
from vgpuctl.errors import StateError
from vgpuctl.model.http_balancing import BalancerProtocol
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.queue import QueueKind
from vgpuctl.model.vm import VmRequest
from vgpuctl.model.vpc import ExternalNetwork, FloatingIp, PortForward, PortProtocol, Route
from vgpuctl.store.store import Store

INTERNET = ExternalNetwork("internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.99", "provider")


@pytest.fixture
def tenants(store: Store) -> Store:
    with store.transaction() as session:
        session.add_tenant("acme")
        session.set_external_network(INTERNET)
    return store


def test_the_objects_of_its_network_and_its_place_in_the_queue_follow(tenants: Store) -> None:
    one, other = vm(), vm("web-2")
    with tenants.transaction() as session:
        for each in (one, other):
            session.add_vm(each)
        session.join_queue(QueueKind.START_GANG, one.request, others=[other.request])
        address = session.hold_external_address(INTERNET, "acme", "floating-ip/web-1")
        session.set_vpc_object("acme", FloatingIp("web-1", address))
        session.set_vpc_object("acme", FloatingIp("web-2", "203.0.113.50"))
        session.set_vpc_object("acme", PortForward(PortProtocol.TCP, "203.0.113.9", 80, "web-1", 8080))
        balancer = LoadBalancer(
            "shop",
            "10.0.0.9",
            80,
            BalancerProtocol.TCP,
            ("web-1", "web-2"),
            8080,
            draining=("web-1",),
            weights=("web-2=2", "web-1=3"),
        )
        session.set_vpc_object("acme", balancer)
        session.set_vpc_object("acme", Route("10.66.0.0/16", ("web-1", "web-2", "web-1@back", "10.0.0.7")))
    with tenants.transaction() as session:
        session.rename_vm(one, "shop-1", domain="acme.shop-1")
    with tenants.reading() as session:
        found = session.vm("acme", "shop-1")
        assert found is not None
        assert (found.uuid, found.request.name, found.domain_name) == (one.uuid, "shop-1", "acme.shop-1")
        assert session.vm("acme", "web-1") is None
        assert [ip.vm for ip in session.vpc_objects("acme", FloatingIp)] == ["shop-1", "web-2"]
        assert [forward.vm for forward in session.vpc_objects("acme", PortForward)] == ["shop-1"]
        (shop,) = session.vpc_objects("acme", LoadBalancer)
        assert (shop.vms, shop.draining, shop.weights) == (("shop-1", "web-2"), ("shop-1",), ("web-2=2", "shop-1=3"))
        (route,) = session.vpc_objects("acme", Route)
        assert route.next_hops == ("shop-1", "web-2", "shop-1@back", "10.0.0.7")
        assert session.external_addresses("internet") == {address: "acme/floating-ip/shop-1"}
        entry = session.queued("acme", "shop-1")
        assert entry is not None
        assert [request.name for request in entry.requests] == ["shop-1", "web-2"]


def test_a_name_of_another_vm_or_of_one_that_waits_is_refused(tenants: Store) -> None:
    one = vm()
    with tenants.transaction() as session:
        session.add_vm(one)
        session.add_vm(vm("web-2"))
        session.join_queue(QueueKind.CREATE, VmRequest("web-3", "acme"))
    for name, state in (("web-2", "is there"), ("web-3", "waits in the queue")):
        with pytest.raises(StateError, match=f"the name {name} is taken.*{state}"), tenants.transaction() as session:
            session.rename_vm(one, name, domain=f"acme.{name}")
    with tenants.reading() as session:
        assert session.vm("acme", "web-1") == one
