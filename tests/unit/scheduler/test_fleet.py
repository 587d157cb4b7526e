# SPDX-License-Identifier: Apache-2.0
"""The indexed fleet answers as a fresh look at every host does, whatever came and went before."""

from dataclasses import replace
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fleet_factory import (
    GIB,
    a40_host,
    emulated_a40,
    host,
    intel_vf_host,
    leases_of,
    numa_host,
    passthrough_host,
    t4_host,
    taking,
    vm,
)
from vgpuctl.agent.wire.facts import GpuTopology
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import Footprint
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.policy import PolicyName, parse_policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.fleet_index import HostIndex, HostMember
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.performance.fit import fit
from vgpuctl.scheduler.performance.measurement import Measurement
from vgpuctl.scheduler.request_class import IndexKey
from vgpuctl.scheduler.scorer import FleetView, Price
from vgpuctl.sharing.kinds import kind_of


def with_places(capacity: HostCapacity, *places: GpuTopology) -> HostCapacity:
    """The host with GPUs at these places, over and over."""
    gpus = tuple(replace(gpu, topology=place) for gpu, place in zip(capacity.facts.gpus, cycle(places), strict=False))
    return replace(capacity, facts=replace(capacity.facts, gpus=gpus))


LEFT, RIGHT = (GpuTopology("pci0000:40", (f"0000:40:0{number}.0",)) for number in (1, 2))

HOSTS = [
    a40_host("a", cards=2),
    a40_host("b", cards=2, vgpus=["A40-8Q"]),
    a40_host("c", cards=2),
    t4_host("d", cards=2),
    passthrough_host("e", cards=4),
    intel_vf_host("f", vfs=3),
    HostCapacity("g", replace(a40_host("g").facts, memory_available_mib=9 * GIB + 7)),
    host("h"),
    numa_host("i", 0, 1, cpus=4, memory_mib=20 * GIB),
    numa_host("j", 1, nodes=4, cpus=4, memory_mib=10 * GIB),
    with_places(passthrough_host("k", cards=4), LEFT, RIGHT),
    with_places(a40_host("l", cards=2), LEFT),
]

REQUESTS = [
    vm("A40-8Q"),
    replace(vm("A40-8Q"), workload="training"),
    vm("A40-24Q"),
    vm("3*A40-8Q"),
    vm("2*A40-48Q"),
    vm("A40-8Q", "A40-24Q"),
    vm("T4-4Q", memory_mib=100 * GIB),
    vm("memory>=6GiB"),
    vm("passthrough*2"),
    vm("passthrough:T4"),
    vm("vf"),
    vm("A40-48Q", memory_mib=9 * GIB + 7),
    vm("A40-4Q", on="c"),
    vm("A40-4Q", on="nowhere"),
    vm(),
    vm("A40-8Q", vcpus=33),
    vm("A40-8Q", vcpus=6, memory_mib=24 * GIB),
    vm("2*A40-48Q", vcpus=4, on="i"),
    vm(vcpus=3, memory_mib=9 * GIB, on="j"),
]

MODEL = fit(
    Measurement(f"vm-{number}", "best-effort", workload, profile, neighbours, 1 / (1 + len(neighbours) * cost))
    for number in range(4)
    for workload in ("training", "unlabelled")
    for profile, cost in (("A40-8Q", 0.5), ("A40-24Q", 0.2), ("T4-4Q", 0.9), ("A40-4Q", 0.1))
    for neighbours in ((), ("training",), ("unlabelled",), ("training", "unlabelled"), ("unlabelled",) * 4)
)
WORKLOADS = {f"uuid-of-vm-{number}": "training" for number in range(1, 31, 3)}

POLICIES = [*PolicyName, "spread:0.3+binpack:0.7", "round-robin:0.5+spread:0.5", "topology+fragmentation"]

DEEDS = st.lists(st.tuples(st.sampled_from(REQUESTS), st.integers(0, 7)), max_size=30)


class Books:
    """The records of a use case: leases and memory by VM."""

    def __init__(self) -> None:
        self.made = 0
        self.vms: list[tuple[str, list[Lease], Footprint]] = []

    def add(self, placement: Placement, request: VmRequest) -> tuple[str, list[Lease], Footprint]:
        self.made += 1
        shares = tuple(
            kind_of(one.sharing).named(one, f"00000000-0000-4000-9000-{self.made:08d}{index:04d}")
            for index, one in enumerate(placement.shares)
        )
        leases = leases_of(replace(placement, shares=shares), vm_name=f"vm-{self.made}")
        self.vms.append((placement.host, leases, footprint_of(request, placement)))
        return self.vms[-1]

    def capacities(self) -> list[HostCapacity]:
        return [with_promised(one, more=[taken for name, _, taken in self.vms if name == one.name]) for one in HOSTS]

    def leases(self) -> list[Lease]:
        return [lease for _, leases, _ in self.vms for lease in leases]


@pytest.mark.parametrize("policy", POLICIES)
@given(deeds=DEEDS)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_a_fleet_with_a_past_answers_as_a_fresh_one(policy: str, deeds: list[tuple[VmRequest, int]]) -> None:
    busy = {("a", "0000:41:00.0"): 95.0, ("c", "0000:51:00.0"): 40.0}
    view = FleetView(utilisation_percent=busy, model=MODEL, workloads=WORKLOADS)
    fleet, books = Fleet(HOSTS, (), parse_policy(policy), view), Books()
    for request, what in deeds:
        fresh = Fleet(
            books.capacities(), books.leases(), parse_policy(policy), replace(view, last_host=fleet.last_host)
        )
        placement = fleet.place(request)
        assert placement == fresh.place(request)
        if placement is not None:
            fleet.take(*books.add(placement, request))
        if what == 0 and books.vms:
            fleet.release(*books.vms.pop(len(books.vms) // 2))
        if what == 1:
            again = books.capacities()[len(books.vms) % len(HOSTS)]
            fleet.put(again, [lease for lease in books.leases() if lease.host == again.name])


@given(deeds=DEEDS, policy=st.sampled_from(POLICIES))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_what_is_refused_has_a_reason_on_every_host_and_what_is_placed_has_none_on_its_host(
    deeds: list[tuple[VmRequest, int]], policy: str
) -> None:
    books = Books()
    for request, _ in deeds:
        answer = explain(request, books.capacities(), books.leases(), parse_policy(policy))
        rejections = list(answer.rejections) if isinstance(answer, Placement) else answer
        whole = {one.host for one in rejections if one.gpu is None}
        cards = {(one.host, one.gpu) for one in rejections}
        if isinstance(answer, Placement):
            assert answer.host not in whole
            assert not {(answer.host, one.gpu) for one in answer.shares} & cards
            books.add(answer, request)
        else:
            for capacity in HOSTS:
                every = all((capacity.name, gpu.address) in cards for gpu in capacity.facts.gpus)
                assert capacity.name in whole or every


def test_hosts_that_differ_in_name_alone_are_asked_once() -> None:
    facts = a40_host(cards=2).facts
    fleet = Fleet(HostCapacity(f"gpu{number:03d}", facts) for number in range(100))
    assert fleet.place(vm("A40-8Q")) is not None
    assert fleet.number_of_classes == 1


@pytest.mark.parametrize(("with_places_asked", "different"), [(False, 1), (True, 2)])
def test_a_hosts_pcie_tree_counts_only_where_a_policy_compares_places(with_places_asked: bool, different: int) -> None:
    fleet = Fleet(
        with_places(passthrough_host(f"gpu{each:03d}", cards=4), *(LEFT, RIGHT)[: each % 2 + 1]) for each in range(100)
    )
    asked: list[HostMember] = []

    def cost(state: HostMember) -> Price:
        asked.append(state)
        return (0.0,)

    key = IndexKey(of_hosts=True, with_loads=False, with_places=with_places_asked)
    assert HostIndex(key, fleet.hosts).current().choose("cheapest", cost) is not None
    assert len(asked) == different
    assert fleet.place(vm("passthrough*2")) is not None
    assert fleet.number_of_classes == 1


def test_a_gpu_that_no_request_could_use_is_found_by_the_first_that_can() -> None:
    fleet = Fleet([a40_host("a"), t4_host("b", cards=1)])
    assert fleet.place(vm("A40-8Q")) is not None
    placement = fleet.place(vm("T4-8Q"))
    assert placement is not None
    assert placement.host == "b"
    held = leases_of(placement)
    fleet.take("b", held)
    assert fleet.place(vm("T4-16Q")) is None
    fleet.release("b", held)
    assert fleet.place(vm("T4-16Q")) is not None


def test_memory_that_is_promised_to_vms_is_not_given_twice() -> None:
    fleet = Fleet([with_promised(a40_host("a"), more=[taking(250 * GIB)])])
    assert fleet.place(vm("A40-8Q", memory_mib=8 * GIB)) is None
    assert fleet.place(vm("A40-8Q", memory_mib=4 * GIB)) is not None
    answer = explain(vm("A40-8Q", memory_mib=8 * GIB), [with_promised(a40_host("a"), more=[taking(250 * GIB)])], [])
    assert isinstance(answer, list)
    assert "250 GiB of the 254 GiB that the host can give are promised" in answer[0].reason


def test_a_fleet_forgets_a_host() -> None:
    fleet = Fleet([a40_host("a"), a40_host("b")])
    assert fleet.place(vm("A40-8Q")) is not None
    fleet.remove("a")
    placement = fleet.place(vm("A40-8Q"))
    assert placement is not None
    assert placement.host == "b"
    assert emulated_a40().functions[0] == placement.shares[0].function
