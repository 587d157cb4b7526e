# SPDX-License-Identifier: Apache-2.0
"""Plans of moves on hosts: under the scheduler's rules, and step by step as `place` would have it."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import GIB, a40_host, emulated_a40, host, lease, vm
from vgpuctl.model.constraints import Constraints, Together
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.capacity import PlacedVm, without_vms
from vgpuctl.scheduler.defrag.plan import DefragPlan, Goal, MovableVm, VmWay, WayKind, plan_defrag
from vgpuctl.scheduler.defrag.search import NO_LIMITS, Limits
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised

COLD = VmWay(WayKind.COLD, 60.0)
NAMES = frozenset({"a", "b", "c"})


def settled(
    *places: tuple[str, VmRequest], mixed: bool = False, memory_mib: int = 256 * GIB
) -> tuple[list[HostCapacity], list[Lease], list[PlacedVm]]:
    """Three hosts with one A40 each, and VMs on them (host, request) that the hosts were read with."""
    cards = {name: replace(emulated_a40(), is_mixed=mixed) for name in sorted(NAMES)}
    hosts = {name: host(name, card, memory_mib=memory_mib) for name, card in cards.items()}
    leases: list[Lease] = []
    vms: list[PlacedVm] = []
    for on, request in places:
        seen = replace(hosts[on], facts=replace(hosts[on].facts, gpus=(cards[on].facts(),)))
        placement = Fleet([seen], [one for one in leases if one.host == on]).place(request)
        assert placement is not None
        cards[on].create(placement.shares[0].profile, placement.shares[0].function)
        held = lease(on, placement.shares[0], vm_name=request.name)
        leases.append(held)
        vms.append(PlacedVm(held.vm_uuid, request.name, request, on, footprint_of(request, placement), (held,)))
    read = []
    for name, one in hosts.items():
        here = [placed for placed in vms if placed.host == name]
        groups = {("acme", placed.request.constraints.group or "") for placed in here} - {("acme", "")}
        capacity = replace(one, facts=replace(one.facts, gpus=(cards[name].facts(),)), groups=frozenset(groups))
        read.append(with_promised(capacity, more=[placed.footprint for placed in here]))
    return read, leases, vms


def planned(
    fleet: tuple[list[HostCapacity], list[Lease], list[PlacedVm]],
    wanted: str | None,
    count: int | None,
    limits: Limits = NO_LIMITS,
    way: VmWay = COLD,
) -> DefragPlan:
    """The plan, whose steps are all places that the scheduler gives."""
    capacities, leases, vms = fleet
    request = None if wanted is None else vm(wanted, name="new")
    return plan_defrag(Goal(request, count, NAMES), capacities, leases, [MovableVm(one, way) for one in vms], limits)


def moves(plan: DefragPlan) -> list[tuple[str, str, str]]:
    return [(one.name, one.host, one.placement.host) for one in plan.steps]


def test_a_card_is_emptied_and_the_step_says_where_the_vm_goes() -> None:
    fleet = settled(
        ("a", vm("A40-8Q", name="one")), ("b", vm("A40-8Q", name="two")), ("b", vm("A40-8Q", name="three")),
        ("c", vm("A40-24Q", name="big")),
    )  # fmt: skip
    plan = planned(fleet, "A40-48Q", 1)
    assert (plan.before, plan.after, plan.is_optimal) == (0, 1, True)
    assert moves(plan) in ([("one", "a", "b")], [("big", "c", "a")])
    (step,) = plan.steps
    assert (step.way, step.downtime_s, step.placement.shares[0].profile) == (WayKind.COLD, 60.0, "A40-8Q")
    assert step.gpus == ("0000:41:00.0",)


def test_a_vm_that_is_pinned_or_may_not_go_there_stays() -> None:
    fleet = settled(("a", vm("A40-8Q", name="one")), ("b", vm("A40-8Q", name="two")), ("c", vm("A40-48Q", name="all")))
    assert planned(fleet, "A40-48Q", 1).after == 1
    assert planned(fleet, "A40-48Q", 1, way=VmWay(WayKind.PINNED)).steps == ()
    capacities, leases, vms = fleet
    kept = [MovableVm(one, COLD, frozenset({"a", "b"})) for one in vms]
    assert plan_defrag(Goal(vm("A40-48Q"), 1, NAMES), capacities, leases, kept).after == 0


def test_memory_of_the_hosts_counts_for_the_vms_that_move_and_for_the_new_one() -> None:
    large = settled(
        ("a", vm("A40-8Q", name="one", memory_mib=20 * GIB)),
        ("b", vm("A40-8Q", name="two", memory_mib=20 * GIB)),
        ("c", vm("A40-48Q", name="all", memory_mib=20 * GIB)),
        memory_mib=32 * GIB,
    )
    assert planned(large, "A40-48Q", 1).steps == ()


def test_members_of_a_group_that_are_to_be_apart_stay_apart() -> None:
    apart = Constraints(group="web", together=Together.APART)
    places = [(name, vm("A40-8Q", name=f"on-{name}", constraints=apart)) for name in "ab"]
    fleet = settled(*places, ("c", vm("A40-48Q", name="all")))
    assert planned(fleet, "A40-48Q", 1).steps == ()


def test_unused_cards_are_the_goal_where_nothing_is_named() -> None:
    fleet = settled(*[(name, vm("A40-8Q", name=f"on-{name}")) for name in "abc"])
    plan = planned(fleet, None, None)
    assert (plan.before, plan.after, plan.most, len(plan.steps), plan.is_optimal) == (0, 2, 2, 2, True)
    assert planned(fleet, None, None, Limits(moves=1)).after == 1
    assert planned(fleet, None, None, Limits(downtime_s=59.0)).steps == ()


def test_each_step_is_a_place_of_the_scheduler_after_those_before_it() -> None:
    fleet = settled(
        *[(name, vm("A40-12Q", name=f"{name}{index}")) for name in "abc" for index in range(1 + (name != "a"))]
    )
    plan = planned(fleet, "A40-48Q", 1)
    assert plan.after == 1
    capacities, leases, vms = {one.name: one for one in fleet[0]}, list(fleet[1]), {one.name: one for one in fleet[2]}
    for step in plan.steps:
        moved, name = vms[step.name], step.placement.host
        there = Fleet([capacities[name]], [one for one in leases if one.host == name])
        assert there.place_on(moved.request, name, [one.gpu for one in step.placement.shares]) is not None
        capacities[moved.host] = without_vms(capacities[moved.host], [moved])
        leases = [one for one in leases if one.vm_uuid != moved.vm_uuid]
        leases.append(replace(moved.leases[0], host=name, share=step.placement.shares[0]))


def test_a_card_with_vgpus_of_several_sizes_is_emptied() -> None:
    fleet = settled(
        *[("a", vm(f"A40-{size}Q", name=f"a{size}")) for size in (4, 8)],
        *[(name, vm(f"A40-{size}Q", name=f"{name}{size}")) for name in "bc" for size in (16, 8, 4)],
        mixed=True,
    )
    plan = planned(fleet, "A40-48Q", 1)
    assert (plan.before, plan.after) == (0, 1)
    assert sorted(one.name for one in plan.steps) == ["a4", "a8"]


def test_a_wanted_vm_of_two_kinds_is_refused() -> None:
    with pytest.raises(ValueError, match="of one kind"):
        plan_defrag(Goal(vm("A40-8Q", "A40-12Q"), 1, NAMES), [a40_host("a")], [], [])


def test_a_place_on_one_gpu_of_a_host_is_that_gpu_or_none() -> None:
    fleet = Fleet([a40_host("a", cards=2, vgpus=["A40-8Q"])])
    for address in ("0000:41:00.0", "0000:51:00.0"):
        found = fleet.place_on(vm("A40-8Q"), "a", [address])
        assert found is not None
        assert [one.gpu for one in found.shares] == [address]
    assert fleet.place_on(vm("A40-48Q"), "a", ["0000:41:00.0"]) is None
    assert fleet.place_on(vm("2*A40-8Q"), "a", ["0000:51:00.0"]) is not None
    assert len(fleet.hosts["a"].cards) == 2
