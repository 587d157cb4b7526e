# SPDX-License-Identifier: Apache-2.0
"""VMs whose memory is made of huge pages go only where enough of that size are free."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fleet_factory import GIB, a40_host, leases_of, numa_host, taking, vm
from vgpuctl.agent.wire.memory import HugepageFacts
from vgpuctl.errors import UsageError
from vgpuctl.model.guest_memory import format_page_size, parse_page_size
from vgpuctl.model.placement import HostCapacity, Placement, Rejection
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.scheduler.capacity import count_more
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.victims import choose_victims
from vgpuctl.scheduler.what_if import changes_that_admit
from vgpuctl.specs.vm import check_request

LARGE = 1024 * 1024
SMALL = 2048


def paged(name: str, total: int, free: int | None = None, *, size_kib: int = LARGE) -> HostCapacity:
    """A host of 256 GiB with an A40 and a pool of huge pages."""
    capacity = a40_host(name)
    pool = HugepageFacts(size_kib, total, total if free is None else free)
    available = capacity.facts.memory_mib - total * size_kib // 1024
    return replace(capacity, facts=replace(capacity.facts, hugepages=(pool,), memory_available_mib=available))


def wants(gib: int, size_kib: int | None = LARGE, gpu: str = "A40-8Q") -> VmRequest:
    return replace(vm(gpu, memory_mib=gib * GIB), hugepages_kib=size_kib)


def only_rejection(request: VmRequest, capacity: HostCapacity) -> Rejection:
    answer = explain(request, [capacity], [])
    assert isinstance(answer, list), answer
    (one,) = answer
    return one


def test_the_host_with_enough_free_pages_of_the_size_is_chosen() -> None:
    hosts = [a40_host("a"), paged("b", 16, size_kib=SMALL), paged("c", 16, 4), paged("d", 16)]
    found = explain(wants(8), hosts, [])
    assert isinstance(found, Placement)
    assert found.host == "d"
    assert {(one.host, one.code) for one in found.rejections} == {(name, "host-hugepages") for name in "abc"}


def unmounted(capacity: HostCapacity, page_kib: int = LARGE) -> HostCapacity:
    """The same host without a hugetlbfs of this page size."""
    pools = tuple(replace(one, is_mounted=one.size_kib != page_kib) for one in capacity.facts.hugepages or ())
    return replace(capacity, facts=replace(capacity.facts, hugepages=pools))


@pytest.mark.parametrize("nodes", [1, 2])
def test_pages_without_a_mounted_hugetlbfs_are_given_to_no_vm(nodes: int) -> None:
    bad = unmounted(paged("a", 16) if nodes == 1 else numa_host("a", 0, pages=8))
    refused = only_rejection(wants(4), bad)
    assert refused.code == "host-hugepages" and "no hugetlbfs of 1 GiB pages is mounted" in refused.reason
    assert refused.remedy is not None and "mount -t hugetlbfs -o pagesize=1G" in refused.remedy
    assert isinstance(explain(wants(4, None), [bad], []), Placement)
    assert isinstance(explain(wants(4), [bad, paged("b", 16)], []), Placement)
    assert not any(count_more(wants(4), [bad], []).values())


@pytest.mark.parametrize(
    ("capacity", "reason", "remedy"),
    [
        (a40_host("a"), "wants 8 huge pages of 1 GiB, the host has none of this size", "keep at least 8"),
        (paged("a", 4), "wants 8 huge pages of 1 GiB, the host has 4", "raise `hugepages` in the host's layout to 8"),
        (
            with_promised(paged("a", 16), more=[taking(12 * GIB, LARGE)]),
            "12 of the host's 16 are promised to its VMs",
            "to 20 or more, or delete a VM",
        ),
        (paged("a", 16, 3), "3 of the host's 16 were free when it was read", "stop what uses them"),
    ],
)
def test_a_refusal_has_the_numbers_and_what_would_help(capacity: HostCapacity, reason: str, remedy: str) -> None:
    refused = only_rejection(wants(8), capacity)
    assert (refused.gpu, refused.code) == (None, "host-hugepages")
    assert reason in refused.reason
    assert refused.remedy is not None
    assert remedy in refused.remedy


def test_what_is_kept_as_huge_pages_is_no_ordinary_memory() -> None:
    most = only_rejection(wants(100, None), paged("a", 200))
    assert most.code == "host-memory"
    assert "the host can give 54 GiB" in most.reason
    assert isinstance(explain(wants(54, None), [paged("a", 200)], []), Placement)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=12),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_no_page_is_promised_twice_and_none_that_is_free_is_refused(
    pools: list[tuple[int, int]], deeds: list[tuple[int, bool]]
) -> None:
    hosts = {f"h{number}": paged(f"h{number}", *pool) for number, pool in enumerate(map(sorted_pair, pools))}
    left = {name: one.facts.hugepages[0].free for name, one in hosts.items() if one.facts.hugepages}
    fleet = Fleet(hosts.values())
    for number, (gib, is_paged) in enumerate(deeds):
        request = wants(gib, LARGE if is_paged else None, "A40-1Q")
        placement = fleet.place(request)
        if not is_paged:
            assert placement is not None
        else:
            assert (placement is None) == all(gib > pages for pages in left.values())
        if placement is not None:
            leases = leases_of(placement, vm_name=f"vm-{number}")
            fleet.take(placement.host, leases, footprint_of(request, placement))
            left[placement.host] -= gib if is_paged else 0
            assert left[placement.host] >= 0


def sorted_pair(pool: tuple[int, int]) -> tuple[int, int]:
    return (max(pool), min(pool))


def test_pages_bound_what_is_counted_and_what_goes_together() -> None:
    hosts = [paged("a", 10), paged("b", 5), a40_host("c")]
    assert count_more(wants(4, gpu="A40-1Q"), hosts, []) == {"a": 2, "b": 1}
    fleet = Fleet(hosts)
    assert place_together(fleet, [wants(4)] * 4) is None
    placements = place_together(fleet, [wants(4)] * 3)
    assert placements is not None
    assert sorted(one.host for one in placements) == ["a", "a", "b"]


def test_a_vm_that_gives_way_gives_its_pages_back() -> None:
    capacity = with_promised(paged("a", 8, 0), more=[taking(8 * GIB, LARGE)])
    placement = Fleet([a40_host("a")]).place(vm("A40-8Q"))
    assert placement is not None
    held = leases_of(placement)
    there = Candidate("uuid-of-web-0", "acme/web-0", "a", 100, 0.0, taking(8 * GIB, LARGE), tuple(held))
    eviction = choose_victims([wants(8)], [capacity], held, [there])
    assert eviction is not None
    assert [one.name for one in eviction.victims] == ["acme/web-0"]
    other = replace(there, footprint=taking(8 * GIB))
    assert choose_victims([wants(8)], [capacity], held, [other]) is None


def test_changes_name_more_pages_other_pages_and_none() -> None:
    hosts = [paged("a", 2), paged("b", 6), paged("c", 8192, size_kib=SMALL)]
    texts = [one.text for one in changes_that_admit(wants(8), hosts, [], [])]
    assert texts == [
        "it did without huge pages of 1 GiB",
        "it wanted at most 6 GiB of memory",
        "its huge pages were of 2 MiB",
        "b had 2 more huge pages of 1 GiB",
    ]


def test_page_sizes_are_read_and_written_as_people_do() -> None:
    for text, size_kib, shown in (("2M", SMALL, "2 MiB"), ("1GiB", LARGE, "1 GiB"), ("64 KiB", 64, "64 KiB")):
        assert parse_page_size(text, what="--hugepages") == size_kib
        assert format_page_size(size_kib) == shown
    for text in ("3MiB", "huge", "0k"):
        with pytest.raises(UsageError):
            parse_page_size(text, what="--hugepages")
    with pytest.raises(UsageError, match="not a whole number of huge pages of 1 GiB"):
        check_request(replace(wants(1), memory_mib=1500))
