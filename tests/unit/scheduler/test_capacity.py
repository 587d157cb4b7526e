# SPDX-License-Identifier: Apache-2.0
"""How many more fit: as many as can be placed, and after moving VMs at least as many."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import GIB, a40_host, emulated_a40, emulated_t4, host, lease, t4_host, taking, vm
from vgpuctl.model.constraints import Constraints, Together
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.capacity import PlacedVm, count_more, defragment
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised


def test_every_host_counts_with_its_rules() -> None:
    fleet = [a40_host("a", cards=2), a40_host("b", vgpus=["A40-8Q"]), a40_host("c", vgpus=["A40-4Q"]), t4_host("d")]
    assert count_more(vm("A40-8Q"), fleet, []) == {"a": 12, "b": 5}
    assert count_more(vm("A40-8Q", memory_mib=100 * GIB), fleet, []) == {"a": 2, "b": 2}
    assert count_more(vm("2*A40-48Q"), fleet, []) == {"a": 1}
    assert count_more(vm("A40-8Q", on="b"), fleet, []) == {"b": 5}
    apart = Constraints(group="web", together=Together.APART)
    assert count_more(vm("A40-8Q", constraints=apart), fleet, []) == {"a": 1, "b": 1}


@given(st.lists(st.sampled_from(["A40-8Q", "A40-12Q", "A40-24Q", "A40-48Q"]), max_size=6))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_as_many_fit_as_the_cards_themselves_take(first: list[str]) -> None:
    gpus = [emulated_a40(), emulated_a40("0000:51:00.0")]
    for number, name in enumerate(first):
        gpu = gpus[number % 2]
        if gpu.can_create(name):
            gpu.create(name, gpu.functions[len(gpu.vgpus)])
    counted = count_more(vm("A40-8Q"), [host("a", *gpus)], []).total()
    assert counted == sum(map(_create_all, gpus))


def _create_all(gpu: EmulatedGpu) -> int:
    made = 0
    while gpu.can_create("A40-8Q"):
        gpu.create("A40-8Q", next(one for one in gpu.functions if one not in gpu.vgpus))
        made += 1
    return made


def settled(*places: tuple[str, str, str]) -> tuple[list[HostCapacity], list[Lease], list[PlacedVm]]:
    """Two hosts with one card each, and VMs (name, type, host) on them that the hosts were read with."""
    cards = {"a": emulated_a40(), "b": emulated_a40()}
    leases: list[Lease] = []
    vms: list[PlacedVm] = []
    for name, text, on in places:
        request: VmRequest = vm(text, name=name)
        placement = Fleet([host(on, cards[on])], [one for one in leases if one.host == on]).place(request)
        assert placement is not None
        cards[on].create(text, placement.shares[0].function)
        held = lease(on, placement.shares[0], vm_name=name)
        leases.append(held)
        vms.append(PlacedVm(held.vm_uuid, name, request, on, footprint_of(request, placement), (held,)))
    return [with_promised(host(name, card), more=[taking(4 * GIB)]) for name, card in cards.items()], leases, vms


def test_moving_a_vm_to_its_like_frees_a_card() -> None:
    fleet, leases, vms = settled(("one", "A40-8Q", "a"), ("two", "A40-8Q", "b"))
    assert count_more(vm("A40-48Q"), fleet, leases).total() == 0
    found = defragment(vm("A40-48Q"), fleet, leases, vms)
    assert found.counts == {"b": 1}
    assert [(move.name, move.host, move.placement.host) for move in found.moves] == [("two", "b", "a")]


def test_nothing_moves_when_it_would_not_help() -> None:
    fleet, leases, vms = settled(("one", "A40-8Q", "a"), ("two", "A40-24Q", "b"))
    found = defragment(vm("A40-48Q"), fleet, leases, vms)
    assert (found.counts.total(), found.moves) == (0, ())
    same = defragment(vm("A40-8Q"), fleet, leases, vms)
    assert (same.counts, same.moves) == ({"a": 5}, ())


def test_shares_of_different_types_that_one_request_named_are_counted_each_as_what_it_is() -> None:
    mixed = host("a", emulated_a40(), emulated_t4())
    asked = vm("2*memory>=16GiB", name="both")
    placement = Fleet([mixed]).place(asked)
    other = Fleet([mixed]).place(vm("A40-16Q"))
    assert placement is not None
    assert other is not None
    shares = (other.shares[0], next(one for one in placement.shares if one.profile == "T4-16Q"))
    leases = tuple(lease("a", one, vm_name="both", index=index) for index, one in enumerate(shares))
    held = PlacedVm(leases[0].vm_uuid, "both", asked, "a", footprint_of(asked, placement), leases)
    assert defragment(vm("A40-16Q"), [mixed], leases, [held]).counts == {"a": 2}


def test_a_vm_stays_on_the_host_that_it_asks_for() -> None:
    fleet, leases, vms = settled(("one", "A40-8Q", "a"), ("two", "A40-8Q", "b"))
    bound = [replace(one, request=replace(one.request, host=one.host)) for one in vms]
    assert defragment(vm("A40-48Q"), fleet, leases, bound).counts.total() == 0
