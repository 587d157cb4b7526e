# SPDX-License-Identifier: Apache-2.0
"""CPUs, memory and huge pages are promised by NUMA node: none is promised twice, and GPUs and guests stay together."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fleet_factory import GIB, a40_host, host, leases_of, numa_host, taking, vm
from vgpuctl.agent.wire.memory import NumaNode
from vgpuctl.errors import NoCapacity
from vgpuctl.model.host_constraints import CpuRatio, HostConstraints
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import FLAT, Footprint, GuestNuma, NumaCell
from vgpuctl.model.placement import HostCapacity, Placement, Rejection
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.calendar import Booking, place_over
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.scheduler.capacity import count_more
from vgpuctl.scheduler.cell_choice import CellReach, Need, choose_cells, has_cells
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.scheduler.guest_place import floating_cpus, footprint_of
from vgpuctl.scheduler.host_cells import books_of, cores_of, cpu_numbers, guest_cells
from vgpuctl.scheduler.host_memory import cells_on, with_memory_back, with_more_pages, with_promised
from vgpuctl.scheduler.place import place_again
from vgpuctl.scheduler.victims import choose_victims
from vgpuctl.scheduler.what_if import changes_that_admit

PAGE = 1 << 20


def placed(fleet: Fleet, request: VmRequest, name: str = "web-0") -> Placement:
    """Place a VM and count it as taken."""
    placement = fleet.place(request)
    assert placement is not None
    fleet.take(placement.host, leases_of(placement, vm_name=name), footprint_of(request, placement))
    return placement


def cells(placement: Placement) -> list[tuple[int, int, int]]:
    assert placement.numa is not None
    return [(cell.numa_node, cell.vcpus, cell.memory_mib // GIB) for cell in placement.numa.cells]


def cpus_of(placement: Placement) -> tuple[int, ...]:
    assert placement.numa is not None
    return tuple(cpu for cell in placement.numa.cells for cpu in cell.cpus)


def only_rejection(request: VmRequest, capacity: HostCapacity) -> Rejection:
    answer = explain(request, [capacity], [])
    assert isinstance(answer, list), answer
    (one,) = answer
    return one


def on_nodes(*pins: tuple[int, tuple[int, ...]]) -> Footprint:
    """A VM whose vCPUs are pinned to these CPUs of these nodes."""
    there = tuple(NumaCell(node, len(cpus), 0, cpus) for node, cpus in pins)
    return Footprint(vcpus=sum(cell.vcpus for cell in there), numa=GuestNuma(there))


def test_two_vms_that_fill_a_node_are_not_both_put_there() -> None:
    fleet = Fleet([numa_host("a", 0, 0, cpus=64, memory_mib=256 * GIB)])
    request = vm("A40-8Q", vcpus=4, memory_mib=200 * GIB)
    assert cells(placed(fleet, request)) == [(0, 4, 200)]
    assert cells(placed(fleet, request, "web-1")) == [(1, 4, 200)]
    assert fleet.place(request) is None


def test_pinned_vcpus_are_not_promised_twice() -> None:
    fleet = Fleet([numa_host("a", 0, 1, cpus=32)])
    request = vm("A40-8Q", vcpus=64, memory_mib=8 * GIB)
    first = placed(fleet, request)
    assert cells(first) == [(0, 32, 4), (1, 32, 4)]
    assert first.numa is not None
    assert first.numa.has_vnuma
    assert sorted(cpu for cell in first.numa.cells for cpu in cell.cpus) == list(range(64))
    assert fleet.place(request) is None
    assert fleet.place(vm("A40-8Q", vcpus=1)) is None


def test_a_vm_goes_where_it_is_near_its_gpu_on_any_host_before_it_goes_far_from_it() -> None:
    full = with_promised(numa_host("a", 0), more=[on_nodes((0, tuple(range(16))))])
    assert placed(Fleet([full, numa_host("b", 1)]), vm("A40-8Q")).host == "b"
    far = placed(Fleet([full]), vm("A40-8Q"))
    assert cells(far) == [(1, 2, 2)]
    assert far.shares[0].numa_node == 0


def test_gpus_of_two_nodes_give_the_guest_two_nodes() -> None:
    found = placed(Fleet([numa_host("a", 0, 1)]), vm("2*A40-48Q", vcpus=6, memory_mib=12 * GIB))
    assert cells(found) == [(0, 3, 6), (1, 3, 6)]
    assert found.numa is not None
    assert (found.numa.has_vnuma, found.numa.gpu_cells) == (True, (0, 1))
    one_vcpu = placed(Fleet([numa_host("a", 0, 1)]), vm("2*A40-48Q", vcpus=1))
    assert one_vcpu.numa is not None
    assert not one_vcpu.numa.has_vnuma


def test_gpus_of_one_node_are_taken_when_those_that_are_best_leave_no_room() -> None:
    fleet = Fleet([with_promised(numa_host("a", 0, 1, 1), more=[on_nodes((0, tuple(range(16))))])])
    found = placed(fleet, vm("2*A40-48Q", vcpus=4))
    assert {one.numa_node for one in found.shares} == {1}
    assert cells(found) == [(1, 4, 2)]


def test_a_vm_without_gpus_floats_at_the_node_with_the_fewest() -> None:
    fleet = Fleet([numa_host("a", 0, 0, 1)])
    found = placed(fleet, vm(vcpus=8))
    assert found.numa == GuestNuma((NumaCell(1, 8, 2 * GIB),))


def test_vcpus_that_float_keep_as_many_cpus_as_the_ratio_wants() -> None:
    capacity = numa_host("a", 0, cpus=8)
    fleet = Fleet([capacity])
    floating = [vm(vcpus=8, on="a")] * 8
    for number, request in enumerate(floating):
        placed(fleet, request, f"float-{number}")
    assert fleet.place(vm(vcpus=1)) is None
    assert fleet.place(vm("A40-8Q", vcpus=1)) is None
    pinned_first = Fleet([capacity])
    placed(pinned_first, vm("A40-8Q", vcpus=8))
    placed(pinned_first, vm("A40-8Q", vcpus=7), "web-1")
    assert pinned_first.place(vm(vcpus=2)) is None
    assert cells(placed(pinned_first, vm(vcpus=1), "web-2")) == [(1, 1, 2)]


@pytest.mark.parametrize(("ratio", "count"), [(CpuRatio(), 2), (CpuRatio(pinned=2), 4), (CpuRatio(pinned=None), 8)])
def test_the_inventory_says_how_many_vcpus_a_cpu_carries(ratio: CpuRatio, count: int) -> None:
    capacity = replace(numa_host("a", 0, cpus=8), constraints=HostConstraints(cpu_ratio=ratio))
    assert count_more(vm("A40-1Q", vcpus=8), [capacity], []) == {"a": count}


def test_a_pinned_vm_has_its_cores_alone() -> None:
    fleet = Fleet([numa_host("a", 0, 0, cpus=8, threads=2)])
    one = placed(fleet, vm("A40-8Q", vcpus=3))
    other = placed(fleet, vm("A40-8Q", vcpus=2), "web-1")
    assert [cpus_of(each) for each in (one, other)] == [(0, 1, 4), (2, 6)]
    third = fleet.place(vm("A40-8Q", vcpus=3))
    assert third is not None
    assert [cell.numa_node for cell in third.numa.cells] == [1] if third.numa else False
    assert cpus_of(placed(fleet, vm("A40-8Q", vcpus=2), "web-2")) == (3, 7)


def test_no_vm_floats_beside_a_pinned_one_on_a_core() -> None:
    empty = numa_host("a", 0, cpus=8, threads=2)
    with_one = with_promised(empty, more=[on_nodes((0, (0,)))])
    assert floating_cpus(with_one)[0] == (1, 2, 3, 5, 6, 7)
    assert books_of(with_one)[0].room(None, pinned=False).vcpus == 6
    assert books_of(with_one)[0].room(None, pinned=True).vcpus == 6
    floats = Footprint(vcpus=1, numa=GuestNuma((NumaCell(1, 1, 0),)))
    shared = with_promised(with_one, more=[floats])
    assert books_of(shared)[1].room(None, pinned=True).vcpus == 6
    both = replace(with_one, constraints=HostConstraints(cpu_ratio=CpuRatio(pinned=2)))
    assert floating_cpus(both)[0] == (1, 2, 3, 4, 5, 6, 7)


def test_cores_of_two_kinds_and_lists_that_say_too_much_are_read_by_the_nodes_cpus() -> None:
    assert cores_of(NumaNode(0, "0-3", GIB, cores=("0,2", "3,9", "2-3", "11,12"))) == [(0, 2), (3,), (1,)]


def test_one_node_is_one_pool_with_the_shared_ratio() -> None:
    capacity = host("a", cpus=8)
    assert count_more(vm(vcpus=4), [capacity], []) == {"a": 8}
    found = placed(Fleet([a40_host("a")]), vm("A40-8Q"))
    assert found.numa is None


CASES: list[tuple[str, VmRequest, HostCapacity, str, str]] = [
    (
        "host-cpus",
        vm("A40-8Q", vcpus=8),
        with_promised(numa_host("gpu1", 0), more=[on_nodes((0, tuple(range(16))), (1, tuple(range(16, 28))))]),
        "8 vCPUs on CPUs of their own and 2 GiB; left are node 0: 0 of 16 pinned vCPUs, 127 GiB of 127 GiB; "
        "node 1: 4 of 16 pinned vCPUs",
        "raise `cpus.pinned`",
    ),
    (
        "host-cpus",
        vm("A40-8Q", vcpus=8),
        with_promised(a40_host(), more=[taking(GIB, vcpus=121)]),
        "wants 8 vCPUs, 121 of the 128 that 32 CPUs give (4 for each) are promised",
        "raise `cpus.shared`",
    ),
    (
        "host-memory",
        vm(memory_mib=255 * GIB),
        numa_host("gpu1"),
        "node 0: 16 of 64 shared vCPUs, 127 GiB of 127 GiB; node 1",
        "ask for at most 254 GiB",
    ),
    (
        "host-hugepages",
        replace(vm(memory_mib=10 * GIB), hugepages_kib=PAGE),
        numa_host("gpu1", pages=4),
        "node 0: 16 of 64 shared vCPUs, 4 of 4 huge pages of 1 GiB; node 1",
        "raise `hugepages`",
    ),
    (
        "host-numa",
        vm(vcpus=1, memory_mib=200 * GIB),
        numa_host("gpu1"),
        "1 vCPU and 200 GiB, which no NUMA nodes have together; left are node 0",
        "ask for less",
    ),
]


@pytest.mark.parametrize(("code", "request_", "capacity", "words", "remedy"), CASES, ids=[case[0] for case in CASES])
def test_a_refusal_has_the_numbers_of_each_node(
    code: str, request_: VmRequest, capacity: HostCapacity, words: str, remedy: str
) -> None:
    refused = only_rejection(request_, capacity)
    assert refused.code == code
    assert words in refused.reason
    assert remedy in (refused.remedy or "")


def test_memory_of_nodes_without_cpus_is_not_the_host_s() -> None:
    """As on Grace Hopper, whose GPU memory is NUMA nodes of its own that the kernel's MemTotal counts."""
    there = a40_host("a").facts
    gpu_node = NumaNode(1, "", 96 * GIB, 96 * GIB)
    facts = replace(
        there,
        memory_mib=there.memory_mib + 96 * GIB,
        memory_available_mib=there.memory_available_mib + 96 * GIB,
        numa_nodes=(*there.numa_nodes, gpu_node, NumaNode(2, "", 0)),
    )
    grace = replace(a40_host("a"), facts=facts)
    assert Fleet([grace]).place(vm("A40-8Q", memory_mib=254 * GIB)) is not None
    assert "the host can give 254 GiB of its 256 GiB" in only_rejection(vm(memory_mib=255 * GIB), grace).reason
    two = numa_host("b", 0)
    both = replace(two, facts=replace(two.facts, numa_nodes=(*two.facts.numa_nodes, NumaNode(8, "", 96 * GIB))))
    assert [books.number for books in books_of(both)] == [0, 1]


def test_a_node_that_others_fill_takes_less() -> None:
    capacity = numa_host("a", 0)
    nodes = tuple(replace(node, memory_available_mib=10 * GIB) for node in capacity.facts.numa_nodes)
    capacity = replace(capacity, facts=replace(capacity.facts, numa_nodes=nodes))
    assert cells(placed(Fleet([capacity]), vm("A40-8Q", memory_mib=16 * GIB))) == [(0, 1, 8), (1, 1, 8)]


def test_vms_of_an_older_vgpuctl_count_where_libvirt_was_told_to_keep_them() -> None:
    facts = numa_host("a", 0).facts
    at_gpu = taking(8 * GIB, vcpus=4)._replace(gpu_numa_nodes=(1,))
    assert cells_on(guest_cells(facts), at_gpu) == (NumaCell(1, 4, 8 * GIB),)
    too_large = taking(150 * GIB, vcpus=20)._replace(gpu_numa_nodes=(1,))
    assert cells_on(guest_cells(facts), too_large) == (NumaCell(1, 16, 128 * GIB), NumaCell(0, 4, 22 * GIB))
    assert cells_on(guest_cells(facts), taking(9, vcpus=1)) == (NumaCell(0, 0, 4), NumaCell(1, 1, 5))
    moved = taking(8, vcpus=1)._replace(numa=GuestNuma((NumaCell(7, 1, 8),)))
    assert cells_on(guest_cells(facts), moved) == cells_on(guest_cells(facts), taking(8, vcpus=1))


def test_a_vm_that_starts_again_keeps_the_shape_that_its_guest_knows() -> None:
    capacity = numa_host("a", 0, 1)
    request = vm("2*A40-48Q", vcpus=6, memory_mib=12 * GIB)
    old = place_again(request, capacity, [], None)
    assert old.numa is not None
    assert not old.numa.has_vnuma
    assert not old.numa.is_pinned
    sizes = GuestNuma((NumaCell(0, 2, 4 * GIB, (0, 1)), NumaCell(1, 4, 8 * GIB, (16, 17, 18, 19))), True, (1, 0))
    again = place_again(request, capacity, [], sizes)
    assert again.numa is not None
    assert [cell[:3] for cell in again.numa.cells] == [cell[:3] for cell in sizes.cells]
    assert (again.numa.has_vnuma, again.numa.gpu_cells) == (True, (1, 0))
    assert again.numa.is_pinned
    full = with_promised(capacity, more=[on_nodes((0, tuple(range(13))), (1, tuple(range(16, 29))))])
    with pytest.raises(NoCapacity, match="in the shape it has"):
        place_again(request, full, [], sizes)
    flat = place_again(vm("A40-8Q", vcpus=12), with_promised(capacity, more=[taking(4, vcpus=112)]), [], FLAT)
    assert flat.numa is not None
    assert (flat.numa.has_vnuma, len(flat.numa.cells)) == (False, 2)


def test_gangs_victims_and_the_calendar_count_nodes() -> None:
    capacity = numa_host("a", 0, 1, cpus=8)
    gang = [vm("A40-8Q", vcpus=8, name=f"vm-{number}") for number in range(3)]
    assert place_together(Fleet([capacity]), gang) is None
    both = place_together(Fleet([capacity]), gang[:2])
    assert both is not None
    assert sorted(cell.numa_node for one in both if one.numa for cell in one.numa.cells) == [0, 1]
    held = [leases_of(one, vm_name=f"vm-{number}") for number, one in enumerate(both)]
    taken = [footprint_of(gang[0], one) for one in both]
    full = with_promised(capacity, more=taken)
    leases = [lease for own in held for lease in own]
    assert Fleet([full], leases).place(gang[2]) is None
    vms = [
        Candidate(own[0].vm_uuid, own[0].vm_name, "a", 100, 0.0, footprint, tuple(own))
        for own, footprint in zip(held, taken, strict=True)
    ]
    eviction = choose_victims([gang[2]], [full], leases, vms)
    assert eviction is not None
    assert len(eviction.victims) == 1
    texts = [one.text for one in changes_that_admit(gang[2], [full], leases, vms)]
    assert any("was gone" in text for text in texts)
    bookings = [
        Booking(f"acme/{own[0].vm_name}", "a", (own[0].share,), 0.0, 100.0 * (1 + number), own[0].vm_uuid, footprint)
        for number, (own, footprint) in enumerate(zip(held, taken, strict=True))
    ]
    assert place_over([gang[2]], [full], bookings, [(50.0, 60.0)]) is None
    assert place_over([gang[2]], [full], bookings, [(150.0, 160.0)]) is not None


def test_pages_are_counted_on_each_node() -> None:
    capacity = numa_host("a", 0, pages=6)
    wants = replace(vm("A40-1Q", memory_mib=4 * GIB), hugepages_kib=PAGE)
    fleet = Fleet([capacity])
    assert [cells(placed(fleet, wants, f"vm-{number}")) for number in range(3)] == [
        [(0, 2, 4)],
        [(1, 2, 4)],
        [(0, 1, 2), (1, 1, 2)],
    ]
    assert fleet.place(replace(wants, memory_mib=GIB)) is None
    more = with_more_pages(capacity.facts, PAGE, 3 * GIB)
    assert [pool.total for node in more.numa_nodes for pool in node.hugepages] == [8, 8]
    used = replace(
        capacity.facts,
        numa_nodes=tuple(
            replace(node, hugepages=tuple(replace(pool, free=0) for pool in node.hugepages))
            for node in capacity.facts.numa_nodes
        ),
    )
    back = with_memory_back(used, [taking(2 * GIB, PAGE)._replace(numa=GuestNuma((NumaCell(1, 1, 2 * GIB),)))])
    assert [pool.free for node in back.numa_nodes for pool in node.hugepages] == [0, 2]


ROOMS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12)), min_size=1, max_size=4)


@given(ROOMS, st.integers(1, 12), st.integers(1, 30), st.sampled_from([1, 2]), st.sampled_from(CellReach))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_choice_is_within_the_rooms_and_complete(
    sizes: list[tuple[int, int]], vcpus: int, memory: int, unit: int, reach: CellReach
) -> None:
    books = books_of(numa_host("a", nodes=max(2, len(sizes))))
    rooms = [
        one.room(None, pinned=True)._replace(vcpus=cpus, memory_mib=mib)
        for one, (cpus, mib) in zip(books, sizes, strict=False)
    ]
    need = Need(vcpus, memory * unit, unit)
    found = choose_cells(need, (0,), rooms, reach)
    assert has_cells(need, (0,), rooms, reach) == (found is not None)
    fits_one = any(vcpus <= room.vcpus and memory * unit <= room.memory_mib for room in rooms)
    if reach is CellReach.ANYWHERE:
        assert found is not None or not fits_one
    if found is not None:
        by_number = {room.number: room for room in rooms}
        assert (sum(one.vcpus for one in found), sum(one.memory_mib for one in found)) == (vcpus, memory * unit)
        for one in found:
            room = by_number[one.numa_node]
            assert 1 <= one.vcpus <= room.vcpus
            assert 1 <= one.memory_mib <= room.memory_mib
            assert one.memory_mib % unit == 0


REQUESTS = [
    vm("A40-1Q", vcpus=1),
    vm("A40-2Q", vcpus=5, memory_mib=9 * GIB),
    vm("A40-48Q", vcpus=10, memory_mib=30 * GIB),
    vm("2*A40-24Q", vcpus=4, memory_mib=6 * GIB),
    vm("3*A40-4Q", vcpus=9, memory_mib=21 * GIB),
    vm(vcpus=3, memory_mib=5 * GIB),
    vm(vcpus=8, memory_mib=25 * GIB),
    replace(vm("A40-4Q", vcpus=2, memory_mib=3 * GIB), hugepages_kib=PAGE),
    replace(vm(vcpus=2, memory_mib=7 * GIB), hugepages_kib=PAGE),
]


@pytest.mark.parametrize(("nodes", "threads"), [(2, 1), (4, 2), (8, 4)])
@pytest.mark.parametrize("ratio", [CpuRatio(), CpuRatio(pinned=2, shared=3), CpuRatio(pinned=None, shared=2)])
@given(deeds=st.lists(st.tuples(st.sampled_from(REQUESTS), st.integers(0, 3)), max_size=40))
@settings(max_examples=10, deadline=None, derandomize=True)
def test_no_node_is_oversold_whatever_comes_and_goes(
    nodes: int, threads: int, ratio: CpuRatio, deeds: list[tuple[VmRequest, int]]
) -> None:
    cards = [node % nodes for node in range(4)]
    empty = numa_host("a", *cards, nodes=nodes, cpus=8, memory_mib=20 * GIB, pages=4, threads=threads)
    empty = replace(empty, constraints=HostConstraints(cpu_ratio=ratio))
    fleet = Fleet([empty])
    held: list[tuple[Placement, list[Lease], Footprint]] = []
    for number, (request, what) in enumerate(deeds):
        placement = fleet.place(request)
        if placement is not None:
            own = leases_of(placement, vm_name=f"vm-{number}")
            held.append((placement, own, footprint_of(request, placement)))
            fleet.take("a", own, held[-1][2])
        if not what and held:
            gone = held.pop(len(held) // 2)
            fleet.release("a", gone[1], gone[2])
        check(empty, held, ratio)
        stored = with_promised(empty, more=[taken for _, _, taken in held])
        fresh = Fleet([stored], [lease for _, own, _ in held for lease in own])
        assert [fresh.place(one) for one in REQUESTS] == [fleet.place(one) for one in REQUESTS]


def check(capacity: HostCapacity, held: list[tuple[Placement, list[Lease], Footprint]], ratio: CpuRatio) -> None:
    """Count again, from the facts and each VM's part, that every node carries it."""
    pins: Counter[int] = Counter()
    floating: Counter[int] = Counter()
    memory: Counter[tuple[int, bool]] = Counter()
    vms_on: dict[int, set[int]] = {}
    for number, (placement, own, taken) in enumerate(held):
        assert placement.numa is not None
        there = placement.numa.cells
        assert sum(cell.vcpus for cell in there) == taken.vcpus
        assert sum(cell.memory_mib for cell in there) == taken.memory.mib
        assert placement.numa.is_pinned == (bool(own) and ratio.pinned is not None)
        for cell in there:
            pins.update(cell.cpus)
            for cpu in cell.cpus:
                vms_on.setdefault(cpu, set()).add(number)
            floating[cell.numa_node] += 0 if cell.cpus else cell.vcpus
            memory[cell.numa_node, taken.memory.page_kib is not None] += cell.memory_mib
    assert all(count <= (ratio.pinned or 0) for count in pins.values())
    for node in capacity.facts.numa_nodes:
        cpus = cpu_numbers(node.cpus)
        free = len(cpus) - sum(cpu in pins for cpu in cpus)
        if ratio.pinned == 1:
            used = [core for core in cores_of(node) if any(cpu in pins for cpu in core)]
            assert all(len({vm for cpu in core for vm in vms_on.get(cpu, ())}) == 1 for core in used)
            free = len(cpus) - sum(map(len, used))
        assert floating[node.number] <= ratio.shared * free
        assert memory[node.number, True] <= 4 * GIB
        assert memory[node.number, False] <= node.memory_mib - 4 * GIB
