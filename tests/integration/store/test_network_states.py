# SPDX-License-Identifier: Apache-2.0
"""States of ports and of members of balancers: those of running VMs in networks of OVN, as its database has them."""

from dataclasses import replace

import pytest

from tests.integration.store.samples import host_facts, network, vm
from tests.unit.chassis_cases import WORKING
from vgpuctl.model.http_balancing import BalancerProtocol
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.network import Backend, Port
from vgpuctl.model.network_seen import Checked, NetworksSeen, PortPlace
from vgpuctl.model.vm import VmState
from vgpuctl.store.store import Store
from vgpuctl.usecases.observed.network_states import AskedNetworks, network_rows

CHASSIS = "gpu1"
SHOP = LoadBalancer("shop", "10.0.0.254", 80, BalancerProtocol.TCP, ("web", "later"), 8080, network="front")


@pytest.fixture
def port(store: Store) -> Port:
    """The port of the running VM web; other VMs are off, or in a network of libvirt."""
    made = network()
    carried = replace(made, request=replace(made.request, backend=Backend.OVN, host=None))
    other = replace(network(cidr="10.9.0.0/24"), request=replace(made.request, name="nat", cidr="10.9.0.0/24"))
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_network(carried)
        session.add_network(other)
        session.save_facts("gpu1", replace(host_facts(), ovn=WORKING), 1.0)
        found = []
        for name, state in (("web", VmState.RUNNING), ("off", VmState.STOPPED), ("local", VmState.RUNNING)):
            one = replace(vm(name), state=state)
            session.add_vm(one)
            found.append(session.add_port(other if name == "local" else carried, one.uuid))
        session.set_vpc_object("acme", SHOP)
    return found[0]


def _states(store: Store, asked: AskedNetworks | None) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    with store.reading() as session:
        return [(name, row.labels, row.states) for name, row in network_rows(session, session.vms(), asked)]


@pytest.mark.parametrize(
    ("place", "state"),
    [
        (PortPlace(CHASSIS, is_up=True), "up"),
        (PortPlace(CHASSIS, is_up=False), "down"),
        (PortPlace(None, is_up=True), "down"),
        (PortPlace("gpu9", is_up=True), "elsewhere"),
        (None, "absent"),
    ],
)
def test_a_port_has_the_state_that_the_database_tells(
    store: Store, port: Port, place: PortPlace | None, state: str
) -> None:
    seen = NetworksSeen({} if place is None else {port.id: place}, {})
    found = _states(store, AskedNetworks(seen))
    assert found[0] == ("port_state", ("acme", "web", "front"), (state,))
    assert {labels for _name, labels, _states in found} == {("acme", "web", "front"), ("acme", "shop", "web")}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("online", "online"),
        ("offline", "offline"),
        ("error", "error"),
        ("", "unchecked"),
        (None, "unchecked"),
        ("so", "unknown"),
    ],
)
def test_a_member_has_the_state_of_its_health_check(store: Store, port: Port, status: str | None, state: str) -> None:
    checks = {} if status is None else {Checked(port.id, port.address, 8080, "tcp"): status}
    found = _states(store, AskedNetworks(NetworksSeen({}, checks)))
    assert found[1] == ("load_balancer_member_state", ("acme", "shop", "web"), (state,))


def test_a_database_that_was_not_named_or_does_not_answer_keeps_nothing(store: Store, port: Port) -> None:
    assert _states(store, None) == []
    assert {states for _name, _labels, states in _states(store, AskedNetworks(None, "no answer"))} == {("unknown",)}
