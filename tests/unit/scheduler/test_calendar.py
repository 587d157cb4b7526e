# SPDX-License-Identifier: Apache-2.0
"""When a request fits, by declared ends and promises."""

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import emulated_a40, host, vm
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.layout import GpuLayout, GpuMatch, OwnLayout
from vgpuctl.model.lease import Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.calendar import Booking, emptied, first_start, first_windows, place_over
from vgpuctl.scheduler.explain import rejections_of
from vgpuctl.scheduler.nearest import nearest_remedy

NOW = 1000.0


def running(card: EmulatedGpu, name: str, end: float, type_name: str = "A40-24Q", size: int = 24576) -> Booking:
    """A VM that runs on the card until `end`."""
    key = next(one for one in card.functions if one not in card.vgpus)
    card.create(type_name, key)
    held = Share(card.address, Sharing.VF_PROFILE, type_name, key, framebuffer_mib=size)
    return Booking(f"acme/{name}", "gpu1", (held,), 0.0, end, f"uuid-of-{name}")


def promised(begin: float, end: float, function: str, type_name: str = "A40-24Q", size: int = 24576) -> Booking:
    held = Share("0000:41:00.0", Sharing.VF_PROFILE, type_name, function, framebuffer_mib=size)
    return Booking("acme/reserved", "gpu1", (held,), begin, end)


def test_a_request_starts_when_enough_vms_have_ended() -> None:
    card = emulated_a40()
    there = [running(card, "a", 2000.0), running(card, "b", 3000.0)]
    fleet = [host("gpu1", card)]
    half = first_start([vm("A40-24Q")], fleet, there, NOW)
    whole = first_start([vm("A40-48Q")], fleet, there, NOW)
    assert half is not None
    assert whole is not None
    assert (half.at, whole.at) == (2000.0, 3000.0)
    assert first_start([vm("A40-48Q")], fleet, [*there[:1], replace(there[1], end=math.inf)], NOW) is None
    assert first_start([vm("T4-2Q")], fleet, there, NOW) is None


def test_a_promise_for_later_lets_in_only_what_ends_before_it() -> None:
    card = emulated_a40()
    fleet = [host("gpu1", card)]
    calendar = [promised(2000.0, 3000.0, "0000:41:00.4", "A40-48Q", 49152)]
    short = first_start([replace(vm("A40-8Q"), duration_s=1000.0)], fleet, calendar, NOW)
    long = first_start([replace(vm("A40-8Q"), duration_s=1001.0)], fleet, calendar, NOW)
    open_end = first_start([vm("A40-8Q")], fleet, calendar, NOW)
    assert short is not None
    assert long is not None
    assert open_end is not None
    assert (short.at, long.at, open_end.at) == (NOW, 3000.0, 3000.0)


def test_an_emptied_fleet_refuses_what_it_refuses_at_any_time() -> None:
    """A card that containers of the host have is no VM's, whatever ends; one that VMs fill is free again."""
    full, own = emulated_a40(), emulated_a40("0000:51:00.0")
    there = [running(full, "a", math.inf), running(full, "b", math.inf), promised(2000.0, math.inf, "0000:41:00.4")]
    facts = host("gpu1", full, own)
    layout = (GpuLayout(GpuMatch(address="0000:51:00.0"), OwnLayout(), origin="hosts.yml:7"),)
    fleet = [replace(facts, declared=layout)]
    assert place_over([vm("A40-48Q")], fleet, there, [(NOW, 5000.0)]) is None
    assert emptied(fleet, there).place(vm("A40-48Q")) is not None
    assert emptied(fleet, there).place(vm("2*A40-48Q")) is None
    alone = [replace(host("gpu1", own), declared=layout)]
    refused = rejections_of(emptied(alone, ()), vm("A40-8Q"))
    assert [one.code for one in refused] == ["declared-otherwise"]
    remedy = nearest_remedy(emptied(alone, ()), vm("A40-8Q"), refused) or ""
    assert "change `vgpu:` of gpu1 at hosts.yml:7, then run `vgpuctl apply-hosts" in remedy


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1500.0, 2000.0, 2500.0, math.inf]), max_size=4),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=2),
    st.sampled_from([300.0, 800.0, 2000.0, None]),
    st.sampled_from(["A40-12Q", "2*A40-12Q", "A40-48Q"]),
)
def test_a_start_holds_all_the_time_and_no_earlier_one_was_possible(
    ends: list[float], promises: list[tuple[int, int]], duration_s: float | None, wanted: str
) -> None:
    card = emulated_a40()
    there = [running(card, f"vm-{n}", end, "A40-12Q", 12288) for n, end in enumerate(ends)]
    for number, (begin, length) in enumerate(promises):
        begins, function = NOW + begin * 200, f"0000:41:02.{number}"
        there.append(promised(begins, begins + length * 200, function, "A40-12Q", 12288))
    fleet: list[HostCapacity] = [host("gpu1", card)]
    request = replace(vm(wanted), duration_s=duration_s)
    length_s = math.inf if duration_s is None else duration_s
    start = first_start([request], fleet, there, NOW)
    times = sorted({NOW, *(one.end for one in there if NOW < one.end < math.inf)})
    possible = [at for at in times if place_over([request], fleet, there, [(at, at + length_s)]) is not None]
    assert (None if start is None else start.at) == min(possible, default=None)
    if start is not None:
        taken = {held.function for held in start.placements[0].shares}
        for one in there:
            if one.overlaps(start.at, start.at + length_s):
                assert not taken & {held.function for held in one.shares}


def test_windows_are_moved_together_to_where_all_of_them_fit() -> None:
    card = emulated_a40()
    fleet = [host("gpu1", card)]
    there = [promised(1500.0, 2000.0, "0000:41:00.4", "A40-48Q", 49152),
             replace(promised(3500.0, 4000.0, "0000:41:00.4", "A40-48Q", 49152), name="acme/other")]  # fmt: skip
    once, twice = [(1200.0, 1700.0)], [(1200.0, 1700.0), (3200.0, 3700.0)]
    assert place_over([vm("A40-8Q")], fleet, there, once) is None
    assert first_windows(vm("A40-8Q"), fleet, there, once) == 2000.0
    assert first_windows(vm("A40-8Q"), fleet, there, twice) == 2000.0
    assert first_windows(vm("A40-8Q"), fleet, there, [(1200.0, 1700.0), (2800.0, 3300.0)]) == 4000.0


def test_what_follows_on_one_function_is_not_taken_twice_at_a_time() -> None:
    card = emulated_a40()
    there = [running(card, "now", 2000.0), promised(2000.0, 3000.0, "0000:41:00.4")]
    start = first_start([vm("A40-24Q")], [host("gpu1", card)], there, NOW)
    assert start is not None
    assert start.at == NOW
