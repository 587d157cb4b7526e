# SPDX-License-Identifier: Apache-2.0
"""The choice of place() under each policy."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host, emulated_a40, host, leases_of, vm, whole_card
from tests.unit.scheduler.performance.true_model import TrueModel
from vgpuctl.agent.wire.facts import GpuTopology, NvLinks
from vgpuctl.model.constraints import Constraints
from vgpuctl.model.host_constraints import GpuConstraints, HostConstraints
from vgpuctl.model.layout import GpuMatch
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.policy import parse_policy
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.scheduler.performance.fit import fit
from vgpuctl.scheduler.place import place
from vgpuctl.scheduler.rolling import RollingLoad
from vgpuctl.scheduler.scorer import FleetView, view_of
from vgpuctl.scheduler.unmeasured import UnmeasuredLoad

FIRST, SECOND = "0000:41:00.0", "0000:51:00.0"


@pytest.fixture
def fleet() -> list[HostCapacity]:
    """gpu1 is empty, gpu2 carries two vGPUs on its first card."""
    return [a40_host("gpu1", cards=2), a40_host("gpu2", cards=2, vgpus=["A40-8Q", "A40-8Q"])]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fragmentation", ("gpu2", FIRST)),
        ("binpack", ("gpu2", FIRST)),
        ("spread", ("gpu1", FIRST)),
        ("round-robin", ("gpu1", FIRST)),
        ("spread:0.3+binpack:0.7", ("gpu2", FIRST)),
        ("spread:0.7+binpack:0.3", ("gpu1", FIRST)),
    ],
)
def test_each_policy_has_its_choice(fleet: list[HostCapacity], policy: str, expected: tuple[str, str]) -> None:
    placement = place(vm("A40-8Q"), fleet, [], parse_policy(policy))
    assert (placement.host, placement.shares[0].gpu) == expected


def test_spread_takes_the_emptier_card_of_a_host() -> None:
    placement = place(vm("A40-8Q"), [a40_host(cards=2, vgpus=["A40-8Q"])], [], parse_policy("spread"))
    assert placement.shares[0].gpu == SECOND


def test_round_robin_goes_on_after_the_last_host_and_starts_again() -> None:
    fleet = [a40_host(f"gpu{number}") for number in (1, 2, 3)]
    chosen: list[str] = []
    leases: list[Lease] = []
    last = None
    for number in range(7):
        placement = place(vm("A40-8Q"), fleet, leases, parse_policy("round-robin"), FleetView(last_host=last))
        last = placement.host
        chosen.append(last)
        leases.extend(leases_of(placement, vm_name=f"vm-{number}"))
    assert chosen == ["gpu1", "gpu2", "gpu3", "gpu1", "gpu2", "gpu3", "gpu1"]


def test_least_utilised_takes_the_idle_card_and_avoids_what_is_above_the_threshold() -> None:
    fleet = [a40_host("gpu1", cards=2), a40_host("gpu2")]
    busy = FleetView(utilisation_percent={("gpu1", FIRST): 95.0, ("gpu1", SECOND): 40.0, ("gpu2", FIRST): 70.0})
    one = place(vm("A40-8Q"), fleet, [], parse_policy("least-utilised"), busy)
    assert (one.host, one.shares[0].gpu) == ("gpu1", SECOND)
    both = place(vm("2*A40-48Q"), fleet, [], parse_policy("least-utilised"), busy)
    assert both.host == "gpu1"


def test_utilisation_is_looked_at_only_where_a_policy_asks_for_it() -> None:
    fleet = [a40_host("gpu1", cards=2)]
    facts = fleet[0].facts
    fleet = [
        replace(fleet[0], facts=replace(facts, gpus=(replace(facts.gpus[0], utilisation_percent=60), facts.gpus[1])))
    ]
    constrained = replace(vm("A40-8Q"), constraints=Constraints(policy="least-utilised@50"))
    assert view_of(constrained, fleet, None).utilisation_percent == {("gpu1", FIRST): 60.0}
    assert place(constrained, fleet, [], view=view_of(constrained, fleet, None)).shares[0].gpu == SECOND
    assert view_of(vm("A40-8Q"), fleet, "gpu1") == FleetView(last_host="gpu1")
    by_host = [replace(fleet[0], constraints=HostConstraints(policy="least-utilised"))]
    assert view_of(vm("A40-8Q"), by_host, None).utilisation_percent == {("gpu1", FIRST): 60.0}


def test_the_load_of_the_last_hour_counts_before_the_last_reading() -> None:
    fleet = [a40_host("gpu1", cards=2)]
    gpus = tuple(replace(gpu, utilisation_percent=50) for gpu in fleet[0].facts.gpus)
    fleet = [replace(fleet[0], facts=replace(fleet[0].facts, gpus=gpus))]
    constrained = replace(vm("A40-8Q"), constraints=Constraints(policy="least-utilised"))
    loads = {("gpu1", FIRST): RollingLoad(0.9, 1.0, 60, 30.0)}
    view = view_of(constrained, fleet, None, loads=loads)
    assert view.utilisation_percent == {("gpu1", FIRST): 92.0, ("gpu1", SECOND): 50.0}
    assert place(constrained, fleet, [], view=view).shares[0].gpu == SECOND
    slower = GpuConstraints(match=GpuMatch(address=SECOND), speed=0.1)
    unequal = [replace(fleet[0], constraints=HostConstraints(gpus=(slower,)))]
    calm = view_of(constrained, unequal, None, loads={("gpu1", FIRST): RollingLoad(0.6, 0.6, 60, 30.0)})
    assert place(constrained, unequal, [], view=calm).shares[0].gpu == FIRST


def test_what_came_after_the_reading_counts_with_the_load_of_its_kind() -> None:
    """Eight VMs between two readings go to both cards; one that the reading has seen does not count twice."""
    fleet = [a40_host("gpu1", cards=2)]
    constrained = replace(vm("A40-4Q"), constraints=Constraints(policy="least-utilised"))
    at_once = {("gpu1", FIRST): 10.0, ("gpu1", SECOND): 20.0}

    def places(view: FleetView, leases: list[Lease]) -> list[str]:
        found: list[str] = []
        for number in range(8):
            placement = place(constrained, fleet, leases, view=view)
            found.append(placement.shares[0].gpu)
            leases = [*leases, *leases_of(placement, vm_name=f"vm-{number}")]
        return found

    for kinds, first in (({}, 5), ({"A40-4Q": 30.0}, 4)):  # a never measured A40-4Q promises a twelfth of the card
        view = FleetView(utilisation_percent=at_once, unmeasured=UnmeasuredLoad({}, kinds))
        assert sorted(places(view, [])) == [FIRST] * first + [SECOND] * (8 - first), kinds
    idle = FleetView(utilisation_percent=at_once, unmeasured=UnmeasuredLoad({}, {"A40-4Q": 0.5}))
    assert places(idle, []) == [FIRST] * 8
    assert places(FleetView(utilisation_percent=at_once), []) == [FIRST] * 8
    there = leases_of(place(constrained, fleet, [], view=idle), vm_name="old")
    seen = UnmeasuredLoad({one.id: 1.0 for one in there}, {"A40-4Q": 30.0})
    assert place(constrained, fleet, there, view=replace(idle, unmeasured=seen)).shares[0].gpu == FIRST
    half = replace(seen, seen={one.id: 0.5 for one in there})
    assert place(constrained, fleet, there, view=replace(idle, unmeasured=half)).shares[0].gpu == SECOND


def test_vms_of_one_gang_count_too() -> None:
    fleet = [a40_host("gpu1", cards=2)]
    constrained = replace(vm("A40-4Q"), constraints=Constraints(policy="least-utilised"))
    view = FleetView(utilisation_percent={("gpu1", SECOND): 10.0}, unmeasured=UnmeasuredLoad({}, {"A40-4Q": 30.0}))
    found = place_together(Fleet(fleet, (), view=view), [constrained] * 6)
    assert found is not None
    assert sorted(one.shares[0].gpu for one in found) == [FIRST] * 3 + [SECOND] * 3


def test_predicted_takes_the_company_that_costs_least_and_an_empty_card_before_that() -> None:
    model = fit(TrueModel(profiles=("A40-24Q",)).measure(150, 4, seed=1))
    fleet = [a40_host("gpu1"), a40_host("gpu2"), a40_host("gpu3")]
    constrained = replace(vm("A40-24Q"), workload="training", constraints=Constraints(policy="predicted"))
    there = [*_lease_on("gpu1", "trains"), *_lease_on("gpu2", "shows")]
    workloads = {"uuid-of-trains": "training", "uuid-of-shows": "vdi"}
    view = view_of(constrained, fleet, None, model=model, workloads=workloads)
    assert place(constrained, fleet, there, view=view).host == "gpu3"
    full = fleet[:2]
    assert place(constrained, full, there, view=view).host == "gpu2"
    unknown = view_of(constrained, full, None, workloads=workloads)
    assert place(constrained, full, there, view=unknown).host == "gpu1"
    assert view_of(vm("A40-24Q"), full, None, model=model, workloads=workloads).model is None


def test_what_no_lease_explains_is_a_neighbour_whose_class_nobody_knows() -> None:
    model = fit(TrueModel(profiles=("A40-24Q",)).measure(150, 4, seed=1))
    fleet = [a40_host("gpu1", vgpus=["A40-24Q"]), a40_host("gpu2")]
    constrained = replace(vm("A40-24Q"), workload="training", constraints=Constraints(policy="predicted"))
    view = view_of(constrained, fleet, None, model=model, workloads={"uuid-of-trains": "training"})
    assert place(constrained, fleet, _lease_on("gpu2", "trains"), view=view).host == "gpu2"
    states = Fleet(fleet, (), view=view).hosts["gpu1"].states
    assert states[0].neighbours == (("unlabelled", "A40-24Q"),)


def test_a_gang_knows_the_classes_of_its_own_vms() -> None:
    model = fit(TrueModel(profiles=("A40-24Q",)).measure(150, 4, seed=1))
    fleet = [a40_host("gpu1"), a40_host("gpu2")]
    policy = Constraints(policy="predicted")
    gang = [
        replace(vm("A40-24Q", name=name), workload=workload, constraints=policy)
        for name, workload in (("t1", "training"), ("v1", "vdi"), ("t2", "training"), ("v2", "vdi"))
    ]
    view = view_of(gang[0], fleet, None, model=model, workloads={})
    placed = place_together(Fleet(fleet, (), view=view), gang)
    assert placed is not None
    hosts = dict(zip(("t1", "v1", "t2", "v2"), (one.host for one in placed), strict=True))
    assert hosts["t1"] != hosts["t2"]
    assert hosts["v1"] != hosts["v2"]


def _lease_on(name: str, vm_name: str) -> list[Lease]:
    return leases_of(place(vm("A40-24Q"), [a40_host(name)], []), vm_name=vm_name)


def test_topology_takes_cards_of_one_numa_node() -> None:
    cards = [whole_card(f"0000:{bus:02x}:00.0") for bus in (0x21, 0x41, 0x81, 0xA1)]
    nodes = (0, 1, 1, 0)
    placed_on = host("gpu1", *(replace(card, numa_node=node) for card, node in zip(cards, nodes, strict=True)))
    placement = place(vm("passthrough*2"), [placed_on], [], parse_policy("topology"))
    assert [one.gpu for one in placement.shares] == ["0000:41:00.0", "0000:81:00.0"]
    assert {one.numa_node for one in placement.shares} == {1}


def test_topology_takes_cards_that_a_bridge_joins_before_those_of_one_numa_node() -> None:
    cards = [whole_card(f"0000:{bus:02x}:00.0") for bus in (0x21, 0x41, 0x81, 0xA1)]
    capacity = host("gpu1", *(replace(card, numa_node=node) for card, node in zip(cards, (0, 0, 1, 1), strict=True)))
    bridges = {"0000:21:00.0": "b", "0000:41:00.0": "a", "0000:a1:00.0": "a"}
    gpus = tuple(
        GpuConstraints(GpuMatch(address=address), frozenset({("nvlink", name)})) for address, name in bridges.items()
    )
    bridged = replace(capacity, constraints=HostConstraints(gpus=gpus))
    placement = place(vm("passthrough*2"), [bridged], [], parse_policy("topology"))
    assert [one.gpu for one in placement.shares] == ["0000:41:00.0", "0000:a1:00.0"]


def _switch(number: int) -> GpuTopology:
    return GpuTopology("pci0000:40", ("0000:40:01.0", f"0000:4{number}:00.0", "0000:50:00.0"))


def test_topology_takes_the_nearest_cards_that_were_read_whatever_their_addresses() -> None:
    cards = [whole_card(f"0000:{bus:02x}:00.0") for bus in (0x21, 0x41, 0x81, 0xA1)]
    by_switch = [
        replace(one, topology=_switch(number), numa_node=0) for number, one in zip((1, 2, 1, 2), cards, strict=True)
    ]
    to_last = (NvLinks((0, 1), is_active=True, peer=cards[3].address, peer_kind="gpu"),)
    bridged = [replace(by_switch[0], topology=replace(_switch(1), nvlinks=to_last)), *by_switch[1:]]
    for there, chosen in ((by_switch, (0, 2)), (bridged, (0, 3))):
        placement = place(vm("passthrough*2"), [host("gpu1", *there)], [], parse_policy("topology"))
        assert [one.gpu for one in placement.shares] == [cards[number].address for number in chosen]
    default = place(vm("passthrough*2"), [host("gpu1", *bridged)], [])
    assert [one.gpu for one in default.shares] == [cards[0].address, cards[1].address]


def test_topology_takes_the_host_whose_cards_are_joined() -> None:
    cards = [whole_card(f"0000:{bus:02x}:00.0") for bus in (0x21, 0x41)]
    joined = (NvLinks((0, 1), is_active=True, peer=cards[1].address, peer_kind="gpu"),)
    bridged = [replace(cards[0], topology=GpuTopology(nvlinks=joined)), cards[1]]
    fleet = [host("gpu1", *cards), host("gpu2", *bridged), host("gpu3", *bridged)]
    assert place(vm("passthrough*2"), fleet, [], parse_policy("topology")).host == "gpu2"
    assert place(vm("passthrough*2"), fleet, []).host == "gpu1"


def test_vms_of_a_gang_get_joined_cards_each() -> None:
    cards = [whole_card(f"0000:{bus:02x}:00.0") for bus in (0x21, 0x41, 0x81, 0xA1)]
    links = {0: 2, 1: 3}
    paired = [
        replace(
            card,
            topology=GpuTopology(nvlinks=(NvLinks((0, 1), is_active=True, peer=cards[links[number]].address),))
            if number in links
            else None,
        )
        for number, card in enumerate(cards)
    ]
    fleet = Fleet([host("gpu1", *paired)], (), parse_policy("topology"))
    placements = place_together(fleet, [vm("passthrough*2", name=name) for name in ("a", "b")])
    assert placements is not None
    chosen = [[one.gpu for one in placement.shares] for placement in placements]
    assert chosen == [[cards[0].address, cards[2].address], [cards[1].address, cards[3].address]]


def test_a_policy_does_not_make_conditions_waste_memory() -> None:
    fleet = [host("gpu1", emulated_a40(), emulated_a40(SECOND))]
    for policy in ("binpack", "spread", "topology", "least-utilised", "round-robin"):
        placement = place(vm("memory>=5GiB"), fleet, [], parse_policy(policy))
        assert placement.shares[0].framebuffer_mib == place(vm("memory>=5GiB"), fleet, []).shares[0].framebuffer_mib
