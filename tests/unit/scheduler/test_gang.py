# SPDX-License-Identifier: Apache-2.0
"""Several VMs together or not at all, against trying every order by hand."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fleet_factory import a40_host, leases_of, passthrough_host, t4_host, vm
from vgpuctl.model.constraints import Constraints, Together
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.scheduler.guest_place import footprint_of


def hosts() -> list[HostCapacity]:
    return [a40_host("a"), a40_host("b", cards=2), t4_host("c", cards=2)]


WANTED = ["A40-8Q", "A40-24Q", "A40-48Q", "2*A40-48Q", "T4-8Q", "T4-16Q", "2*T4-16Q"]


@given(st.lists(st.sampled_from(WANTED), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_gang_goes_in_when_some_order_lets_each_of_it_in(texts: list[str]) -> None:
    requests = [vm(text, name=f"vm-{number}") for number, text in enumerate(texts)]
    fleet = Fleet(hosts())
    before = [fleet.place(request) for request in requests]
    found = place_together(fleet, requests)
    assert [fleet.place(request) for request in requests] == before
    assert (found is not None) >= any(goes_in(order) for order in permutations(requests))
    if found is not None:
        check = Fleet(hosts())
        for number, (request, placement) in enumerate(zip(requests, found, strict=True)):
            assert check.place(VmRequest(request.name, "acme", request.gpus, host=placement.host)) is not None
            check.take(placement.host, leases_of(placement, vm_name=f"vm-{number}"), footprint_of(request, placement))


def goes_in(order: tuple[VmRequest, ...]) -> bool:
    fleet = Fleet(hosts())
    for number, request in enumerate(order):
        placement = fleet.place(request)
        if placement is None:
            return False
        fleet.take(placement.host, leases_of(placement, vm_name=f"vm-{number}"), footprint_of(request, placement))
    return True


def test_a_choice_that_keeps_another_out_is_taken_back() -> None:
    fleet = Fleet([t4_host("a"), passthrough_host("b")])
    first, second = vm("passthrough", name="any"), vm("passthrough:3090", name="this")
    found = place_together(fleet, [first, second])
    assert found is not None
    assert [one.host for one in found] == ["a", "b"]
    assert place_together(fleet, [first, second, vm("passthrough")]) is None


def test_members_of_a_gang_keep_their_group_s_rule() -> None:
    apart = Constraints(group="web", together=Together.APART)
    gang = [vm("A40-8Q", name=name, constraints=apart) for name in ("one", "two")]
    found = place_together(Fleet([a40_host("a"), a40_host("b")]), gang)
    assert found is not None
    assert sorted(one.host for one in found) == ["a", "b"]
    assert place_together(Fleet([a40_host("a")]), gang) is None
