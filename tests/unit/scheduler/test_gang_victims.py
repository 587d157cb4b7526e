# SPDX-License-Identifier: Apache-2.0
"""The VMs preempted for several others together, against trying every set of VMs."""

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fleet_factory import emulated_a40, host, leases_of, t4_host, vm
from vgpuctl.model.constraints import Constraints, Together
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.candidates import Candidate, relieved
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.victims import Eviction, choose_victims
from vgpuctl.sharing.kinds import kind_of

There = tuple[list[HostCapacity], list[Lease], list[Candidate]]


def busy(*held: tuple[str, int]) -> There:
    """An A40 and two T4s of two hosts, with what of these VMs fits: type and priority."""
    capacities = [host("a", emulated_a40()), t4_host("b", cards=2)]
    fleet, leases, vms = Fleet(capacities), list[Lease](), list[Candidate]()
    for number, (text, priority) in enumerate(held):
        placement = fleet.place(vm(text))
        if placement is None:
            continue
        identity = f"00000000-0000-4000-9000-{number:012d}"
        shares = tuple(kind_of(one.sharing).named(one, identity) for one in placement.shares)
        own = leases_of(replace(placement, shares=shares), vm_name=f"vm-{number}")
        taken = footprint_of(vm(text), placement)
        fleet.take(placement.host, own, taken)
        vms.append(
            Candidate(own[0].vm_uuid, f"vm-{number}", placement.host, priority, float(number), taken, tuple(own))
        )
        leases.extend(own)
    return capacities, leases, vms


def fits_without(there: There, requests: list[VmRequest], gone: tuple[Candidate, ...]) -> bool:
    capacities, leases, _ = there
    uuids = {one.vm_uuid for one in gone}
    left = [relieved(one, [vm for vm in gone if vm.host == one.name]) for one in capacities]
    return place_together(Fleet(left, [one for one in leases if one.vm_uuid not in uuids]), requests) is not None


def choose(there: There, requests: list[VmRequest]) -> Eviction | None:
    capacities, leases, vms = there
    return choose_victims(requests, capacities, leases, vms)


HELD = st.tuples(st.sampled_from(["A40-24Q", "A40-48Q", "T4-8Q", "T4-16Q"]), st.integers(0, 2))
WANTED = st.sampled_from(["A40-8Q", "A40-24Q", "A40-48Q", "T4-8Q", "T4-16Q", "2*T4-16Q"])


@given(st.lists(HELD, max_size=5), st.lists(WANTED, min_size=1, max_size=3))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_somebody_gives_way_exactly_when_that_helps_and_none_of_them_could_stay(
    held: list[tuple[str, int]], texts: list[str]
) -> None:
    there = busy(*held)
    requests = [vm(text, name=f"new-{number}") for number, text in enumerate(texts)]
    found = choose(there, requests)
    sets = [some for size in range(len(there[2]) + 1) for some in combinations(there[2], size)]
    assert (found is not None) == any(fits_without(there, requests, some) for some in sets)
    if found is not None:
        assert fits_without(there, requests, found.victims)
        for size in range(len(found.victims)):
            assert not any(fits_without(there, requests, some) for some in combinations(found.victims, size))


def test_the_least_important_of_each_host_give_way() -> None:
    there = busy(("A40-24Q", 2), ("A40-24Q", 1), ("T4-16Q", 1), ("T4-16Q", 2))
    found = choose(there, [vm("A40-24Q"), vm("T4-8Q", name="web-2")])
    assert found is not None
    assert [one.name for one in found.victims] == ["vm-1", "vm-2"]
    assert [one.host for one in found.placements] == ["a", "b"]


def test_vms_that_must_be_apart_do_not_have_others_give_way_in_vain() -> None:
    there = busy(("A40-48Q", 0), ("T4-16Q", 0), ("T4-16Q", 0))
    apart = Constraints(group="web", together=Together.APART)
    wanted = [vm("A40-8Q", name=f"web-{number}", constraints=apart) for number in range(2)]
    assert choose(there, wanted) is None
    wanted[1] = vm("T4-8Q", name="web-1", constraints=apart)
    found = choose(there, wanted)
    assert found is not None
    assert len(found.victims) == 2


def test_a_vm_that_must_join_its_group_has_nobody_preempted_elsewhere() -> None:
    (a, b), leases, vms = busy(("A40-48Q", 0))
    together = Constraints(group="web", together=Together.TOGETHER)
    wanted = vm("A40-8Q", constraints=together)
    group = frozenset({(wanted.tenant, "web")})
    assert choose(([a, replace(b, groups=group)], leases, vms), [wanted]) is None
    found = choose(([replace(a, groups=group), b], leases, vms), [wanted])
    assert found is not None
    assert [one.name for one in found.victims] == ["vm-0"]


def test_a_gang_is_preempted_whole_also_on_hosts_that_nobody_asked_for() -> None:
    capacities, leases, vms = busy(("A40-48Q", 0), ("T4-16Q", 0), ("T4-16Q", 1))
    gang = [replace(one, gang="web") if one.name in ("vm-0", "vm-1") else one for one in vms]
    found = choose((capacities, leases, gang), [vm("A40-48Q"), vm("A40-8Q", name="web-2", on="b")])
    assert found is None
    found = choose((capacities, leases, gang), [vm("A40-48Q")])
    assert found is not None
    assert [one.name for one in found.victims] == ["vm-0", "vm-1"]
    both = choose((capacities, leases, gang), [vm("A40-48Q"), vm("T4-16Q", name="web-2")])
    assert both is not None
    assert [one.name for one in both.victims] == ["vm-0", "vm-1"], "what its gang frees elsewhere is used"
    only_a = choose((capacities[:1], [one for one in leases if one.host == "a"], gang), [vm("A40-48Q")])
    assert only_a is not None
    assert [one.name for one in only_a.victims] == ["vm-0", "vm-1"]
