# SPDX-License-Identifier: Apache-2.0
"""VMs on NVSwitch fabrics: one whole partition each, large ones kept, and why a GPU cannot take a request."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.agent.simulated import Machine
from tests.unit.fleet_factory import a40_host, vm
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.wire.fabric import FabricPartition
from vgpuctl.agent.wire.facts import HostFacts, UnreadPart
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import NO_FOOTPRINT
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.reservation import Window
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.calendar import Booking, first_start, first_windows
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.scheduler.capacity import count_more
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together, promised_leases_of
from vgpuctl.scheduler.relieve import relieve
from vgpuctl.scheduler.victims import choose_victims
from vgpuctl.sharing.partition_rules import check_partition, used_partition

CARDS, VGPUS, MIXED = "passthrough:H100", "H100XM-80C", "h100-sxm5~fabric-vgpu*8+a40"
MIXES = {
    "shared": "h100-sxm5/passthrough~fabric-shared*8",
    "vgpu": "h100-sxm5~fabric-vgpu*8",
    "bare": "h100-sxm5/passthrough*8",
    "bare-vgpu": "h100-sxm5*8",
    "b200": "b200/passthrough~fabric-shared*8",
    "a100-16": "a100-sxm4-40gb/passthrough~fabric-shared*16",
    "mixed": MIXED,
}

Facts = Callable[[str], HostFacts]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facts]:
    @cache
    def read(mix: str) -> HostFacts:
        folder: Path = tmp_path_factory.mktemp("hgx")
        return read_facts(Machine(folder, MIXES[mix], with_vfs="/passthrough" not in MIXES[mix]).host)

    yield read


def modules(facts: HostFacts, placement: Placement | None) -> list[int]:
    """The GPUs of a placement by their numbers, none where there is none."""
    known = {gpu.address: gpu.topology.module for gpu in facts.gpus if gpu.topology is not None}
    return [] if placement is None else sorted(known[one.gpu] or 0 for one in placement.shares)


def partitions(facts: HostFacts) -> Mapping[frozenset[int], FabricPartition]:
    assert facts.fabric_manager is not None and facts.fabric_manager.partitions is not None
    return {one.modules: one for one in facts.fabric_manager.partitions}


def active(facts: HostFacts, *numbers: int) -> HostFacts:
    """The host with these partitions active."""
    manager = facts.fabric_manager
    assert manager is not None
    told = tuple(replace(one, is_active=one.number in numbers) for one in manager.partitions or ())
    return replace(facts, fabric_manager=replace(manager, partitions=told))


def leases(placement: Placement, name: str) -> list[Lease]:
    return [replace(one, id=f"{name}-{one.index}", vm_uuid=name) for one in promised_leases_of(placement, 0)]


@pytest.mark.parametrize(
    ("mix", "gpu", "wanted"),
    [
        ("shared", CARDS, [[1], [3], [2, 4], [5, 6, 7, 8], []]),
        ("vgpu", VGPUS, [[1], [3], [2, 4], [5, 6, 7, 8], []]),
        ("b200", "passthrough:B200", [[1], [2], [3, 4], [5, 6, 7, 8], []]),
        ("a100-16", "passthrough:A100", [[1], [2], [3, 4], [5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16]]),
    ],
)
def test_each_vm_gets_a_partition_and_the_large_ones_stay(
    facts: Facts, mix: str, gpu: str, wanted: list[list[int]]
) -> None:
    board = facts(mix)
    fleet = Fleet([HostCapacity("h", board)])
    for count, expected in zip((1, 1, 2, 4, 8), wanted, strict=True):
        placement = fleet.place(vm(f"{gpu}*{count}"))
        assert modules(board, placement) == expected
        if placement is not None:
            fleet.take("h", leases(placement, f"vm-{count}-{expected[0]}"))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("mix", "gpu"), [("shared", CARDS), ("vgpu", VGPUS), ("a100-16", "passthrough:A100")])
def test_random_lives_never_overlap_and_are_always_partitions(facts: Facts, mix: str, gpu: str, seed: int) -> None:
    dice, board = random.Random(seed), facts(mix)
    known = partitions(board)
    fleet, alive = Fleet([HostCapacity("h", board)]), dict[str, tuple[frozenset[int], list[Lease]]]()
    for number in range(60):
        if alive and dice.random() < 0.45:
            _, gone = alive.pop(dice.choice(sorted(alive)))
            fleet.release("h", gone)
            continue
        count = dice.choice([1, 1, 2, 3, 4, 5, 8])
        placement = fleet.place(vm(f"{gpu}*{count}"))
        taken = frozenset().union(*(one for one, _ in alive.values())) if alive else frozenset()
        fits = any(len(one) == count and not one & taken for one in known)
        assert (placement is not None) == fits, (count, sorted(taken))
        if placement is not None:
            own = frozenset(modules(board, placement))
            assert own in known and not own & taken
            alive[f"vm-{number}"] = (own, leases(placement, f"vm-{number}"))
            fleet.take("h", alive[f"vm-{number}"][1])
    untouched = Fleet([HostCapacity("h", board)])
    untouched.take("h", [one for _, held in alive.values() for one in held])
    for count in (1, 2, 4):
        request = vm(f"{gpu}*{count}")
        assert fleet.place(request) == untouched.place(request), "what happened before leaves no trace"


@pytest.mark.parametrize(
    ("mix", "gpu", "code", "said"),
    [
        ("shared", f"{CARDS}*3", "no-partition", "no partition of its NVSwitch fabric has 3 GPUs"),
        ("bare", CARDS, "fabric-mode", "FABRIC_MODE 0"),
        ("bare-vgpu", VGPUS, "fabric-mode", "FABRIC_MODE 0"),
        ("vgpu", "H100XM-40C", "no-partition", "leaves room for other vGPUs"),
    ],
)
def test_why_a_host_takes_none(facts: Facts, mix: str, gpu: str, code: str, said: str) -> None:
    answer = explain(vm(gpu), [HostCapacity("h", facts(mix))], [])
    assert not isinstance(answer, Placement)
    assert {one.code for one in answer} == {code}
    assert all(said in one.reason and one.remedy for one in answer)


def test_a_silent_fabric_manager_unknown_modules_lost_links_and_strays_are_told(facts: Facts) -> None:
    board = facts("shared")
    manager = board.fabric_manager
    assert manager is not None and manager.partitions is not None
    silent = replace(board, fabric_manager=replace(manager, partitions=None, problem="nobody answers there"))
    unknown = replace(
        board,
        gpus=tuple(replace(one, topology=replace(one.topology, module=None)) for one in board.gpus if one.topology),
    )
    told = tuple(
        replace(one, gpus=tuple(replace(gpu, links=gpu.links - (gpu.module == 3 and 2)) for gpu in one.gpus))
        if len(one.gpus) > 1
        else one
        for one in manager.partitions
    )
    broken = replace(board, fabric_manager=replace(manager, partitions=told))
    for changed, gpu, code in (
        (silent, CARDS, "fabric-manager"),
        (unknown, CARDS, "fabric-manager"),
        (broken, f"{CARDS}*8", "fabric-links"),
        (active(board, 0), CARDS, "partition-active"),
    ):
        answer = explain(vm(gpu), [HostCapacity("h", changed)], [])
        assert not isinstance(answer, Placement)
        assert {one.code for one in answer} == {code}
        assert code != "fabric-links" or "module 3" in answer[0].reason
    assert modules(board, Fleet([HostCapacity("h", broken)]).place(vm(f"{CARDS}*4"))) == [5, 6, 7, 8]
    assert modules(board, Fleet([HostCapacity("h", broken)]).place(vm(CARDS))) == [1]
    assert modules(board, Fleet([HostCapacity("h", active(board, 3))]).place(vm(f"{CARDS}*2"))) == [2, 4]


def test_an_active_partition_is_its_vms_and_free_once_that_is_gone(facts: Facts) -> None:
    board = facts("shared")
    first = Fleet([HostCapacity("h", board)]).place(vm(f"{CARDS}*8"))
    assert first is not None
    running = HostCapacity("h", active(board, 0))
    fleet = Fleet([running], leases(first, "web"))
    assert fleet.place(vm(CARDS)) is None
    later = replace(running, facts=relieve(running.facts, first.shares, {"web"}, ()))
    assert modules(board, Fleet([later]).place(vm(f"{CARDS}*8"))) == list(range(1, 9))


def test_gangs_counts_calendars_and_preemption_know_partitions(facts: Facts) -> None:
    board = facts("shared")
    capacity = HostCapacity("h", board)
    together = place_together(Fleet([capacity]), [vm(f"{CARDS}*{count}", name=f"g{count}") for count in (1, 1, 2, 4)])
    assert together is not None
    assert sorted(map(len, (modules(board, one) for one in together))) == [1, 1, 2, 4]
    assert place_together(Fleet([capacity]), [vm(f"{CARDS}*{count}", name=f"g{count}") for count in (1, 8)]) is None
    counts = {count: count_more(vm(f"{CARDS}*{count}"), [capacity], []).total() for count in (1, 2, 3, 4, 8)}
    assert counts == {1: 8, 2: 4, 3: 0, 4: 2, 8: 1}
    single = Fleet([capacity]).place(vm(CARDS))
    assert single is not None
    booking = Booking("acme/one", "h", single.shares, 0.0, 100.0)
    start = first_start([vm(f"{CARDS}*8")], [capacity], [booking], 10.0)
    assert start is not None and start.at == 100.0
    windows: Sequence[Window] = [(20.0, 30.0)]
    assert first_windows(vm(f"{CARDS}*4"), [capacity], [booking], windows) == 20.0
    held = leases(single, "one")
    running = replace(capacity, facts=active(board, 7))
    candidate = Candidate("one", "acme/one", "h", 0, 1.0, NO_FOOTPRINT, tuple(held))
    eviction = choose_victims([vm(f"{CARDS}*8")], [running], held, [candidate])
    assert eviction is not None
    assert modules(board, eviction.placements[0]) == list(range(1, 9))
    assert choose_victims([vm(f"{CARDS}*3")], [running], held, [candidate]) is None


def test_a_fleet_prefers_a_board_whose_large_partitions_are_gone_already(facts: Facts) -> None:
    board = facts("shared")
    fresh, used = HostCapacity("a", board), HostCapacity("b", board)
    fleet = Fleet([fresh, used])
    first = fleet.place(replace(vm(CARDS), host="b"))
    assert first is not None
    fleet.take("b", leases(first, "one"))
    second = fleet.place(vm(CARDS))
    assert second is not None and (second.host, modules(board, second)) == ("b", [3])
    pair = fleet.place(vm(f"{CARDS}*2"))
    assert pair is not None and (pair.host, modules(board, pair)) == ("b", [2, 4])


def test_other_cards_of_such_a_host_and_mig_backed_vgpus_need_no_partition(facts: Facts) -> None:
    board = facts("mixed")
    fleet = Fleet([HostCapacity("h", board), a40_host("z")])
    assert fleet.place(replace(vm("A40-8Q"), host="h")) is not None
    both = fleet.place(replace(vm(VGPUS), host="h", gpus=(*vm(f"{VGPUS}*2").gpus, *vm("A40-8Q").gpus)))
    assert both is not None and modules(board, both)[-2:] in ([1, 3], [2, 4], [5, 7], [6, 8])
    for policy in ("binpack", "spread", "topology", "fragmentation", "fragmentation:2+topology:1"):
        request = vm(f"{VGPUS}*4")
        request = replace(request, constraints=replace(request.constraints, policy=policy))
        assert modules(board, fleet.place(request)) in ([1, 2, 3, 4], [5, 6, 7, 8])


def by_hand(number: int, gpu: str = CARDS, count: int = 2) -> VmRequest:
    request = vm(f"{gpu}*{count}")
    return replace(request, constraints=replace(request.constraints, partition=number))


def test_a_partition_is_named_by_hand(facts: Facts) -> None:
    board = facts("shared")
    capacity = HostCapacity("h", board)
    fleet = Fleet([a40_host("a"), capacity])
    assert modules(board, fleet.place(by_hand(5))) == [5, 7]
    assert modules(board, fleet.place(by_hand(11, count=1))) == [5]
    single = fleet.place(by_hand(7, count=1))
    assert single is not None
    held = leases(single, "one")
    for request, reason in (
        (by_hand(0), "partition 0 has 8 GPUs, and 2 are asked for"),
        (by_hand(99), "its NVSwitch fabric has no partition 99"),
        (by_hand(3), "no partition of its NVSwitch fabric with 2 GPUs is free: 3 without module 1"),
        (by_hand(0, count=8), "0 without module 1"),
    ):
        answer = explain(request, [capacity], held)
        assert not isinstance(answer, Placement)
        assert any(reason in one.reason for one in answer if "partition" in one.code), answer
    alone = explain(by_hand(3, "A40-8Q", 1), [a40_host("a")], [])
    assert not isinstance(alone, Placement) and {one.code for one in alone} == {"no-partition"}
    taken = explain(vm(f"{CARDS}*4"), [capacity], [*held, *leases(place_on(board, "5"), "two")])
    assert not isinstance(taken, Placement)
    assert "1 without module 1; 2 without module 5" in taken[-1].reason


def place_on(board: HostFacts, module: str) -> Placement:
    placement = Fleet([HostCapacity("h", board)]).place(by_hand(6 + int(module), count=1))
    assert placement is not None
    return placement


def test_a_fabric_that_nobody_read_gives_no_gpu_and_keeps_no_promise(facts: Facts) -> None:
    board = facts("shared")
    placement = Fleet([HostCapacity("h", board)]).place(vm(f"{CARDS}*2"))
    assert placement is not None
    unread = replace(board, fabric_manager=None, unread=(UnreadPart("fabric_manager", "it is a folder"),))
    for changed, why in (
        (unread, "it was not read: it is a folder"),
        (replace(board, fabric_manager=None), "it has no configuration"),
    ):
        answer = explain(vm(f"{CARDS}*2"), [HostCapacity("h", changed)], [])
        assert not isinstance(answer, Placement)
        assert all(one.code == "fabric-manager" and why in one.reason for one in answer), answer
        told = check_partition(placement.shares, changed)
        assert told is not None and why in told
    assert used_partition(placement.shares, unread, "vm") is not None, "the agent asks for itself"
