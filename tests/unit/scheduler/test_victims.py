# SPDX-License-Identifier: Apache-2.0
"""The preempted VMs: checked against every other choice, on cards with the resource manager's rules."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import emulated_a40, emulated_t4, host, lease, passthrough_host, taking, vm
from vgpuctl.agent.wire.facts import Holder
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.planner.plan import check_share
from vgpuctl.scheduler.candidates import Candidate, parties_of
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.place import place
from vgpuctl.scheduler.relieve import relieve
from vgpuctl.scheduler.victims import choose_victims

A40_TYPES = {"A40-8Q": 8192, "A40-12Q": 12288, "A40-24Q": 24576, "A40-48Q": 49152}
T4_TYPES = {"T4-4Q": 4096, "T4-8Q": 8192, "T4-16Q": 16384}


class Fleet:
    """Two hosts; what is on them is known to the cards and to the store."""

    def __init__(self) -> None:
        self.cards: dict[str, list[EmulatedGpu]] = {
            "gpu1": [emulated_a40("0000:41:00.0"), emulated_a40("0000:51:00.0", "mdev-vf")],
            "gpu2": [emulated_a40("0000:41:00.0"), emulated_t4("0000:3b:00.0")],
        }
        self.leases: list[Lease] = []
        self.keys: dict[str, tuple[EmulatedGpu, str]] = {}

    def create(self, on: str, card: int, type_name: str) -> str | None:
        """Create a VM with this type if the card takes it; its name."""
        gpu = self.cards[on][card]
        name = f"vm-{len(self.leases)}"
        if not gpu.can_create(type_name):
            return None
        sizes = A40_TYPES | T4_TYPES
        if gpu.on_vfs:
            key = next(one for one in gpu.functions if one not in gpu.vgpus)
            gpu.create(type_name, key)
            uuid = gpu.uuids.get(key)
            sharing = Sharing(gpu.sharing)
            held = Share(gpu.address, sharing, type_name, key, mdev_uuid=uuid, framebuffer_mib=sizes[type_name])
        else:
            key = f"uuid-{name}"
            gpu.create(type_name, key)
            held = Share(gpu.address, Sharing.MDEV, type_name, gpu.address, mdev_uuid=key,
                         framebuffer_mib=sizes[type_name])  # fmt: skip
        self.leases.append(lease(on, held, vm_name=name))
        self.keys[name] = (gpu, key)
        return name

    def capacities(self) -> list[HostCapacity]:
        return [host(name, *cards) for name, cards in self.cards.items()]

    def candidate(self, number: int, priority: int, work_s: float) -> Candidate:
        one = self.leases[number]
        return Candidate(one.vm_uuid, one.vm_name, one.host, priority, work_s, NO_FOOTPRINT, (one,))

    def fits_without(self, request_gpu: str, gone: tuple[Candidate, ...]) -> bool:
        """True if the cards themselves, with these VMs deleted, would take the request; then all is as before."""
        taken = [(self.keys[one.name], self.keys[one.name][0].vgpus[self.keys[one.name][1]]) for one in gone]
        uuids = {key: gpu.uuids[key] for (gpu, key), _ in taken if key in gpu.uuids}
        for (gpu, key), _ in taken:
            gpu.delete(key)
        names = {one.name for one in gone}
        left = [one for one in self.leases if one.vm_name not in names]
        answer = explain(vm(request_gpu), self.capacities(), left)
        for (gpu, key), type_name in taken:
            gpu.create(type_name, key, uuids.get(key))
        return isinstance(answer, Placement)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Fleet, list[Candidate]]:
    fleet = Fleet()
    for _ in range(draw(st.integers(2, 8))):
        on, card = draw(st.sampled_from(["gpu1", "gpu2"])), draw(st.integers(0, 1))
        types = T4_TYPES if (on, card) == ("gpu2", 1) else A40_TYPES
        fleet.create(on, card, draw(st.sampled_from(sorted(types))))
    gangs = st.sampled_from([None, None, "web"])
    candidates = [
        replace(fleet.candidate(number, draw(st.integers(0, 3)), draw(st.integers(0, 3))), gang=draw(gangs))
        for number in range(len(fleet.leases))
        if draw(st.booleans())
    ]
    return fleet, candidates


@settings(max_examples=60, deadline=None)
@given(fleets(), st.sampled_from(["A40-8Q", "A40-24Q", "A40-48Q", "2*A40-24Q", "2*A40-48Q", "T4-16Q", "T4-4Q"]))
def test_victims_are_the_least_waste_of_all_choices(made: tuple[Fleet, list[Candidate]], wanted: str) -> None:
    fleet, candidates = made
    if fleet.fits_without(wanted, ()):
        return
    found = choose_victims([vm(wanted)], fleet.capacities(), fleet.leases, candidates)

    def waste(gone: tuple[Candidate, ...]) -> tuple[object, ...]:
        return (len(gone), sorted((one.priority for one in gone), reverse=True), sum(one.work_s for one in gone))

    possible = [
        gone
        for size in range(1, len(candidates) + 1)
        for gone in combinations(candidates, size)
        if are_whole_gangs(gone, candidates) and fleet.fits_without(wanted, gone)
    ]
    if found is None:
        assert possible == []
        return
    assert set(found.victims) <= set(candidates)
    assert are_whole_gangs(found.victims, candidates)
    assert {one.host for one in found.victims if one.gang is None} <= {found.placements[0].host}
    assert fleet.fits_without(wanted, found.victims)
    assert waste(found.victims) == min(map(waste, possible))
    for party in parties_of(found.victims):
        assert not fleet.fits_without(wanted, tuple(one for one in found.victims if one not in party))


def are_whole_gangs(gone: tuple[Candidate, ...], candidates: list[Candidate]) -> bool:
    gangs = {one.gang for one in gone if one.gang is not None}
    return all(one in gone for one in candidates if one.gang in gangs)


def test_of_equal_vms_the_least_important_and_then_the_youngest_gives_way() -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.create("gpu1", 0, "A40-24Q")
        fleet.create("gpu1", 1, "A40-24Q")
        fleet.create("gpu2", 0, "A40-24Q")
    works = [50.0, 40.0, 30.0, 20.0, 10.0, 5.0]
    candidates = [fleet.candidate(number, 1 if number == 5 else 0, work) for number, work in enumerate(works)]
    found = choose_victims([vm("A40-24Q")], fleet.capacities(), fleet.leases, candidates)
    assert found is not None
    assert [one.name for one in found.victims] == ["vm-4"]
    pinned = choose_victims([vm("A40-24Q", on="gpu2")], fleet.capacities(), fleet.leases, candidates)
    assert pinned is not None
    assert [one.name for one in pinned.victims] == ["vm-2"]
    assert choose_victims([vm("passthrough:A40")], fleet.capacities(), fleet.leases, candidates) is None
    assert choose_victims([vm("A40-24Q")], fleet.capacities(), fleet.leases, []) is None


def test_many_candidates_still_give_a_set_of_which_none_could_stay() -> None:
    cards = [emulated_a40(f"0000:{0x41 + 8 * number:02x}:00.0") for number in range(8)]
    fleet = Fleet()
    fleet.cards = {"gpu1": cards}
    for number in range(8):
        for _ in range(6):
            fleet.create("gpu1", number, "A40-8Q")
    candidates = [replace(fleet.candidate(n, n % 3, n), footprint=taking(n)) for n in range(len(fleet.leases))]
    found = choose_victims([vm("2*A40-48Q")], fleet.capacities(), fleet.leases, candidates)
    assert found is not None
    assert len(found.victims) == 12
    assert len({one.leases[0].share.gpu for one in found.victims}) == 2


def test_a_whole_card_that_was_given_back_can_be_given_again() -> None:
    """While a VM has it, the agent reads a card that offers nothing (libvirt has bound it to vfio-pci)."""
    fleet = passthrough_host()
    placement = place(vm("passthrough:nvidia-geforce-rtx-3090"), [fleet], [])
    (card,) = fleet.facts.gpus
    held = replace(card, sharing=(), driver="vfio-pci", holders=(Holder(1, "qemu", "uuid-of-web"),))
    facts = replace(fleet.facts, gpus=(held,))
    after = relieve(facts, placement.shares, {"uuid-of-web"}, ())
    assert check_share(placement.shares[0], facts) is not None
    assert check_share(placement.shares[0], after) is None
    still = relieve(facts, placement.shares, {"uuid-of-another"}, ())
    assert check_share(placement.shares[0], still) is not None


@pytest.mark.parametrize("gone", [(), (0,), (1, 2), (0, 1, 2, 3)])
def test_a_relieved_host_reads_as_the_cards_without_these_vgpus(gone: tuple[int, ...]) -> None:
    fleet = Fleet()
    for on, card, name in (("gpu1", 0, "A40-12Q"), ("gpu1", 0, "A40-12Q"), ("gpu1", 1, "A40-24Q"),
                           ("gpu1", 1, "A40-24Q")):  # fmt: skip
        assert fleet.create(on, card, name)
    before = fleet.capacities()[0].facts
    relieved = relieve(before, [fleet.leases[number].share for number in gone], (), ())
    for number in gone:
        gpu, key = fleet.keys[f"vm-{number}"]
        gpu.delete(key)
    real = fleet.capacities()[0].facts
    assert relieved.gpus == real.gpus
