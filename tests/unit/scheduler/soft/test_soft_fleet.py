# SPDX-License-Identifier: Apache-2.0
"""Soft sharing against a plain model of its rules: never placed what does not fit, never refused what does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.model.policy import PolicyName, parse_policy
from vgpuctl.scheduler.soft.host_state import WHOLE, Demand
from vgpuctl.scheduler.soft.soft_fleet import SMALLEST_SAMPLE, SoftFleet, SoftPlacement

POLICIES = [*PolicyName, "spread:0.3+binpack:0.7", "fragmentation:0.9+binpack:0.1"]

DEMANDS = st.builds(
    Demand,
    cpu=st.sampled_from([0, 1000, 4000, 15000]),
    memory_mib=st.sampled_from([0, 1024, 30000]),
    gpus=st.sampled_from([0, 1, 1, 1, 2, 4]),
    share=st.sampled_from([100, 300, 500, 810, WHOLE]),
    gpu_memory_mib=st.sampled_from([0, 0, 4000, 20000]),
    boards=st.sampled_from([frozenset[str](), frozenset({"A40"}), frozenset({"T4", "A40"})]),
)

Host = tuple[str, int, int, list[tuple[int, int]]]
HOSTS: dict[str, Host] = {
    "c": ("A40", 32000, 65536, [(WHOLE, 48000)] * 4),
    "a": ("T4", 16000, 32768, [(WHOLE, 16000)] * 2),
    "b": ("A40", 32000, 65536, [(WHOLE, 48000)] * 4),
    "d": ("none", 64000, 65536, []),
}


class Books:
    """The free amounts, kept apart from the scheduler."""

    def __init__(self) -> None:
        self.free: dict[str, Host] = {name: (*host[:3], list(host[3])) for name, host in HOSTS.items()}

    def fits(self, name: str, demand: Demand) -> bool:
        board, cpu, memory, gpus = self.free[name]
        able = [one for one in gpus if one[0] >= demand.share and one[1] >= demand.gpu_memory_mib]
        allowed = not demand.gpus or (len(able) >= demand.gpus and (not demand.boards or board in demand.boards))
        return allowed and cpu >= demand.cpu and memory >= demand.memory_mib

    def change(self, placement: SoftPlacement, demand: Demand, sign: int) -> None:
        board, cpu, memory, gpus = self.free[placement.host]
        assert len(set(placement.gpus)) == demand.gpus
        for number in placement.gpus:
            gpus[number] = (gpus[number][0] + sign * demand.share, gpus[number][1] + sign * demand.gpu_memory_mib)
        host = (board, cpu + sign * demand.cpu, memory + sign * demand.memory_mib, gpus)
        assert min([host[1], host[2], *(amount for gpu in gpus for amount in gpu)]) >= 0
        assert not demand.gpus or not demand.boards or board in demand.boards
        self.free[placement.host] = host


def fleet_of(policy: str) -> SoftFleet:
    fleet = SoftFleet(parse_policy(policy))
    for name, (board, cpu, memory, gpus) in HOSTS.items():
        fleet.add_host(name, board=board, cpu=cpu, memory_mib=memory, gpus=list(gpus))
    return fleet


@pytest.mark.parametrize("policy", POLICIES)
@given(deeds=st.lists(st.tuples(DEMANDS, st.integers(0, 3)), max_size=40))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_demand_is_placed_exactly_when_it_fits(policy: str, deeds: list[tuple[Demand, int]]) -> None:
    fleet, again, books = fleet_of(policy), fleet_of(policy), Books()
    placed: list[tuple[SoftPlacement, Demand]] = []
    for demand, release in deeds:
        placement = fleet.place(demand)
        assert again.place(demand) == placement
        assert (placement is not None) == any(books.fits(name, demand) for name in HOSTS)
        if placement is not None:
            books.change(placement, demand, -1)
            placed.append((placement, demand))
        if release == 0 and placed:
            gone = placed.pop(len(placed) // 2)
            fleet.release(*gone)
            again.release(*gone)
            books.change(*gone, 1)
    for name, (_, cpu, memory, gpus) in books.free.items():
        state = fleet.state_of(name)
        assert (state.cpu, state.memory_mib, state.gpus) == (cpu, memory, tuple(sorted(gpus, reverse=True)))


def test_equal_hosts_are_taken_by_name_whatever_order_they_came_in() -> None:
    assert fleet_of("binpack").place(Demand(1000, 1024, 4, WHOLE)) == SoftPlacement("b", (0, 1, 2, 3))


def test_fragmentation_completes_a_gpu_rather_than_open_another() -> None:
    half = Demand(1000, 1024, 1, 500, 0, frozenset({"A40"}))
    fleet = SoftFleet(expected={half: 1, Demand(1000, 1024, 1, WHOLE): 1})
    for name in ("a", "b"):
        fleet.add_host(name, board="A40", cpu=32000, memory_mib=65536, gpus=[(WHOLE, 0)] * 2)
    assert [fleet.place(half) for _ in range(2)] == [SoftPlacement("a", (0,)), SoftPlacement("a", (0,))]


def test_fragmentation_leaves_the_cpus_where_gpus_need_them() -> None:
    whole = Demand(8000, 8192, 1, WHOLE)
    fleet = SoftFleet(expected={whole: 1})
    fleet.add_host("a", board="A40", cpu=16000, memory_mib=65536, gpus=[(WHOLE, 0)] * 2)
    fleet.add_host("b", board="A40", cpu=64000, memory_mib=65536, gpus=[(WHOLE, 0)] * 2)
    placement = fleet.place(Demand(12000, 8192))
    assert placement is not None
    assert placement.host == "b"


def test_fragmentation_keeps_empty_hosts_for_requests_of_all_their_gpus() -> None:
    one, four = Demand(4000, 4096, 1, WHOLE), Demand(16000, 16384, 4, WHOLE)
    fleet = SoftFleet(expected={one: 20, four: 1})
    for name in "abcdef":
        fleet.add_host(name, board="A40", cpu=64000, memory_mib=65536, gpus=[(WHOLE, 0)] * 4)
    chosen = [fleet.place(one) for _ in range(20)]
    assert len({placement.host for placement in chosen if placement}) == 5
    assert fleet.place(four) is not None


def test_fragmentation_fills_a_host_short_of_cpus_with_requests_that_want_few() -> None:
    few, many = Demand(2000, 4096, 1, WHOLE), Demand(12000, 4096, 1, WHOLE)
    fleet = SoftFleet(expected={few: 1, many: 1})
    fleet.add_host("a", board="A40", cpu=8000, memory_mib=65536, gpus=[(WHOLE, 0)] * 4)
    fleet.add_host("b", board="A40", cpu=64000, memory_mib=65536, gpus=[(WHOLE, 0)] * 4)
    chosen = [fleet.place(demand) for demand in (few, many, few, many, few, many, few, many)]
    assert [placement.host if placement else None for placement in chosen] == ["a", "b"] * 4


SMALL = Demand(12000, 8192, 1, WHOLE)


def one_large_host(large: int, capacity: tuple[int, int] | None = None) -> SoftFleet:
    """Only small requests came, and host a of seven has more CPUs than the others. large: its free CPUs."""
    fleet = SoftFleet()
    fleet.add_host("a", board="A40", cpu=large, memory_mib=262144, gpus=[(WHOLE, 0)] * 4, capacity=capacity)
    for name in "bcdefg":
        fleet.add_host(name, board="A40", cpu=64000, memory_mib=262144, gpus=[(WHOLE, 0)] * 4)
    for _ in range(SMALLEST_SAMPLE):
        fleet.arrive(SMALL)
    return fleet


def hosts_of(fleet: SoftFleet, placements: int) -> set[str]:
    return {one.host for one in (fleet.place(SMALL) for _ in range(placements)) if one}


def test_fragmentation_keeps_the_largest_host_for_a_request_that_never_came_before() -> None:
    fleet = one_large_host(128000)
    assert hosts_of(fleet, 24) == set("bcdefg")
    assert fleet.place(Demand(110000, 65536, 4, WHOLE)) == SoftPlacement("a", (0, 1, 2, 3))


def test_a_host_for_requests_that_never_came_is_used_before_a_request_is_refused() -> None:
    fleet = one_large_host(128000)
    assert hosts_of(fleet, 28) == set("abcdefg")


def test_a_host_that_is_added_in_use_counts_with_its_whole_capacity() -> None:
    in_use = one_large_host(1000, capacity=(128000, 262144))
    unknown = one_large_host(1000)
    for fleet in (in_use, unknown):
        fleet.add_host("a", board="A40", cpu=120000, memory_mib=262144, gpus=[(WHOLE, 0)] * 4)
    assert hosts_of(in_use, 24) == set("bcdefg")
    assert "a" in hosts_of(unknown, 24)


def test_a_busy_host_comes_last_under_least_utilised() -> None:
    fleet = SoftFleet(parse_policy("least-utilised@50"))
    for name, busy in (("a", 90), ("b", 20), ("c", 40)):
        fleet.add_host(name, board="A40", cpu=2000, memory_mib=4096, gpus=[(WHOLE, 0)], utilisation_percent=busy)
    chosen = [fleet.place(Demand(2000, 1024, 1, 500)) for _ in range(4)]
    assert [one.host if one else None for one in chosen] == ["b", "c", "a", None]


def test_a_removed_host_is_not_chosen() -> None:
    fleet = fleet_of("round-robin")
    for name in ("a", "b", "c"):
        fleet.remove_host(name)
    assert fleet.place(Demand(0, 0, 1, 100)) is None
    assert fleet.place(Demand(1000, 1024)) == SoftPlacement("d", ())
