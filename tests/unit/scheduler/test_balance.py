# SPDX-License-Identifier: Apache-2.0
"""Moves that bring GPUs below a load."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proof.week import DAY, HOUR, Week, arrivals
from tests.unit.fleet_factory import a40_host, leases_of, vm
from tests.unit.scheduler.advice.measured_factory import NOW, FleetBuilder
from vgpuctl.model.constraints import Constraints
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.scheduler.advice.loaded import loaded_fleet
from vgpuctl.scheduler.advice.measured import MeasuredFleet
from vgpuctl.scheduler.balance import BalancingMove, LoadedFleet, ShareLoad, find_balancing, share_load
from vgpuctl.scheduler.capacity import PlacedVm
from vgpuctl.scheduler.fleet import Fleet

CARD, OTHER = "0000:41:00.0", "0000:51:00.0"


def fleet_of(*there: tuple[str, str, str, float], hosts: int = 3, cards: int = 1) -> LoadedFleet:
    """VMs on hosts gpu1, gpu2, …: name, profile, host, percent."""
    capacities = tuple(a40_host(f"gpu{number + 1}", cards=cards) for number in range(hosts))
    leases: list[Lease] = []
    vms, shares = {}, {}
    for name, profile, host, percent in there:
        request = vm(profile, name=name, on=host, vcpus=1, memory_mib=64)
        placement = Fleet(capacities, leases).place(request)
        assert placement is not None
        (lease,) = leases_of(placement, vm_name=name)
        leases.append(lease)
        shares[lease.id] = ShareLoad(percent)
        placed = replace(request, host=None)
        vms[lease.vm_uuid] = PlacedVm(lease.vm_uuid, name, placed, placement.host, NO_FOOTPRINT, (lease,))
    return LoadedFleet(capacities, tuple(leases), vms, shares)


def told(moves: list[BalancingMove]) -> list[tuple[str, str]]:
    """Who goes where."""
    return [(one.vm.name, one.placement.host) for one in moves]


PAIR = (("a", "A40-24Q", "gpu1", 55.0), ("b", "A40-24Q", "gpu1", 45.0))


def test_of_two_vms_that_are_too_much_together_one_goes_to_the_calmest_gpu() -> None:
    (move,) = find_balancing(fleet_of(*PAIR, ("c", "A40-24Q", "gpu2", 20.0)), 70)
    assert (move.vm.name, move.from_place, move.to_place) == ("a", ("gpu1", CARD), ("gpu3", CARD))
    assert [round(load.percent) for load in (*move.source, *move.target)] == [100, 45, 0, 55]


@pytest.mark.parametrize(
    "fleet",
    [
        fleet_of(("a", "A40-24Q", "gpu1", 35.0), ("b", "A40-24Q", "gpu1", 35.0)),
        fleet_of(("a", "A40-48Q", "gpu1", 95.0)),
        fleet_of(*PAIR, ("c", "A40-24Q", "gpu2", 30.0), ("d", "A40-24Q", "gpu3", 30.0)),
        fleet_of(*PAIR, ("c", "A40-8Q", "gpu2", 1.0), ("d", "A40-8Q", "gpu3", 1.0)),
        fleet_of(*PAIR, hosts=1),
        fleet_of(*PAIR, hosts=1, cards=2),
    ],
    ids=["not above", "alone", "too hot elsewhere", "another size elsewhere", "one host", "another card of its host"],
)
def test_nothing_moves_where_that_helps_nobody(fleet: LoadedFleet) -> None:
    assert told(list(find_balancing(fleet, 70))) == []


def _on_its_host(fleet: LoadedFleet) -> LoadedFleet:
    return replace(
        fleet, vms={key: replace(one, request=replace(one.request, host=one.host)) for key, one in fleet.vms.items()}
    )


def _unmeasured(fleet: LoadedFleet) -> LoadedFleet:
    return replace(fleet, unmoved={one.id for one in fleet.leases})


def _with_labels(fleet: LoadedFleet) -> LoadedFleet:
    asking = Constraints(required=(("tier", "gold"),))
    vms = {key: replace(one, request=replace(one.request, constraints=asking)) for key, one in fleet.vms.items()}
    return replace(fleet, vms=vms)


def _two_shares(fleet: LoadedFleet) -> LoadedFleet:
    return replace(fleet, leases=tuple(replace(one, vm_uuid="same") for one in fleet.leases))


@pytest.mark.parametrize("change", [_on_its_host, _unmeasured, _with_labels, _two_shares])
def test_a_vm_that_may_not_move_stays(change: Callable[[LoadedFleet], LoadedFleet]) -> None:
    assert told(list(find_balancing(change(fleet_of(*PAIR)), 70))) == []


def test_a_host_that_refuses_a_vm_is_left_out_and_the_next_best_move_is_taken() -> None:
    fleet = fleet_of(*PAIR)
    assert told(list(find_balancing(fleet, 70))) == [("a", "gpu2")]
    assert told(list(find_balancing(fleet, 70, barred={"uuid-of-a": {"gpu2"}}))) == [("a", "gpu3")]
    both = {"uuid-of-a": {"gpu2", "gpu3"}}
    assert told(list(find_balancing(fleet, 70, barred=both))) == [("b", "gpu2")]
    assert told(list(find_balancing(fleet, 70, barred=both, staying={"uuid-of-b"}))) == []


def test_a_load_that_varies_counts_with_its_deviation() -> None:
    fleet = fleet_of(("a", "A40-24Q", "gpu1", 30.0), ("b", "A40-24Q", "gpu1", 30.0))
    varies = {lease: replace(load, deviation=10.0) for lease, load in fleet.shares.items()}
    assert told(list(find_balancing(replace(fleet, shares=varies), 70))) == [("a", "gpu2")]


def test_a_plan_fills_no_gpu_beyond_what_it_can_take() -> None:
    office = [(f"vm{number}", "A40-8Q", "gpu1" if number < 6 else "gpu2", 24.0) for number in range(11)]
    fleet = fleet_of(*office, hosts=3)
    moves = list(find_balancing(fleet, 70))
    after = {place: load.percent for place, load in fleet.gpus.items()}
    for one in moves:
        after[one.from_place] -= one.load.percent
        after[one.to_place] = after.get(one.to_place, 0.0) + one.load.percent
    assert {place[0]: round(load) for place, load in after.items() if load <= 70} == {"gpu3": 48}
    assert len({one.vm.name for one in moves}) == len(moves)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 60), st.floats(0, 20)), max_size=14), st.integers(20, 90))
def test_no_move_brings_a_gpu_above_the_limit_or_makes_the_hottest_hotter(
    loads: list[tuple[int, float, float]], above: int
) -> None:
    there = [(f"vm{number}", "A40-8Q", f"gpu{host + 1}", load) for number, (host, load, _) in enumerate(loads)]
    count = [sum(one[2] == f"gpu{host}" for one in there) for host in range(1, 5)]
    if max(count, default=0) > 6:
        return
    fleet = fleet_of(*there, hosts=4)
    shares = {
        lease: replace(load, deviation=deviation)
        for (lease, load), (_, _, deviation) in zip(fleet.shares.items(), loads, strict=True)
    }
    fleet = replace(fleet, shares=shares)
    highest = max((load.high_percent for load in fleet.gpus.values()), default=0.0)
    for one in find_balancing(fleet, above):
        assert one.target[1].percent <= above + 1e-9
        assert one.target[1].high_percent <= max(above, highest) + 1e-6
        assert one.from_place[0] != one.to_place[0]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([(NOW - 60 * age, 0.4) for age in range(1, 60)], (40.0, 4.0)),
        ([(NOW - 60 * age, 0.8 if age <= 15 else 0.2) for age in range(1, 61)], (80.0, 26.0)),
        ([(NOW - 60, 1.7), (NOW - 120, 1.0)], (100.0, 10.0)),
        ([(NOW - 60, 0.4)], None),
        ([(NOW - 60 * age, 0.4) for age in range(20, 60)], None),
        ([(NOW + 3600, 0.4), (NOW + 3660, 0.4)], None),
        ([], None),
    ],
)
def test_the_load_of_a_share_is_that_of_a_quarter_of_an_hour(
    samples: list[tuple[float, float]], expected: tuple[float, float] | None
) -> None:
    found = share_load(samples, NOW)
    assert (found and (found.percent, found.deviation)) == (expected and pytest.approx(expected, abs=0.1))


def _measured(*, seen: bool) -> MeasuredFleet:
    builder = FleetBuilder(a40_host("gpu1"), a40_host("gpu2"))
    builder.vm("a", "A40-24Q", "gpu1", use=lambda _: 0.5)
    builder.vm("b", "A40-24Q", "gpu1", **({"use": lambda _: 0.3} if seen else {}))
    return builder.build()


def test_what_no_share_explains_is_something_else_and_a_vm_that_left_is_not() -> None:
    place = ("gpu1", CARD)
    steady = [(NOW - 60 * age, 0.95) for age in range(1, 60)]
    assert loaded_fleet(_measured(seen=True), {place: steady}, {}).gpus[place].percent == pytest.approx(95)
    left = [(NOW - 60, 0.8), *steady[1:]]
    assert loaded_fleet(_measured(seen=True), {place: left}, {}).gpus[place].percent == pytest.approx(80)
    assert loaded_fleet(_measured(seen=True), {}, {}).gpus[place].percent == pytest.approx(80)
    elsewhere = {("gone", CARD): steady, ("gpu2", "0000:99:00.0"): steady}
    assert loaded_fleet(_measured(seen=True), elsewhere, {}).others == {}


def test_a_share_without_readings_counts_by_its_kind_and_stays() -> None:
    fleet = loaded_fleet(_measured(seen=False), {}, {"A40-24Q": 40.0})
    assert fleet.gpus["gpu1", CARD].percent == pytest.approx(90)
    assert [one.vm.name for one in find_balancing(fleet, 70)] == ["a"]
    never = loaded_fleet(_measured(seen=False), {}, {})
    assert never.gpus["gpu1", CARD].percent == pytest.approx(100), "all that it was promised"


def test_moves_halve_the_time_in_which_a_card_is_above_what_another_could_take() -> None:
    stream = arrivals(8, 1, 0.6, 3)
    without, within = (Week(8, budget, 3).play(stream, DAY // 2 + HOUR) for budget in (0, 6))
    assert without.overloaded > 20
    assert within.overloaded <= without.overloaded / 2
    assert 0 < within.moves <= 6 * 13
