# SPDX-License-Identifier: Apache-2.0
"""A replay gives the same counts and places as a new reading of the whole fleet, and restores the fleet."""

from tests.unit.fleet_factory import a40_host, vm
from tests.unit.scheduler.advice.measured_factory import FleetBuilder
from vgpuctl.model.lease import Lease
from vgpuctl.scheduler.advice.measured import MeasuredFleet
from vgpuctl.scheduler.advice.replayed_fleet import small_vm
from vgpuctl.scheduler.advice.room import Layout, layout_of, room_for, starts, with_profile, with_vm, without
from vgpuctl.scheduler.capacity import count_more
from vgpuctl.scheduler.fleet import Fleet

PROFILES = ("A40-4Q", "A40-8Q", "A40-24Q")


def _fleet() -> MeasuredFleet:
    builder = FleetBuilder(*(a40_host(name) for name in ("a", "b", "c")))
    for name, profile, on in (("one", "A40-24Q", "a"), ("two", "A40-24Q", "b"), ("three", "A40-8Q", "c")):
        builder.vm(name, profile, on=on)
    return builder.waits("waits", "A40-48Q").waits("small", "A40-8Q").build()


def _read_anew(layout: Layout) -> tuple[Fleet, dict[str, int]]:
    hosts = [layout.host(name) for name in layout.replayed.hosts]
    capacities = [capacity for capacity, _leases in hosts]
    leases: list[Lease] = [one for _capacity, own in hosts for one in own]
    counts = {name: count_more(small_vm(name), capacities, leases).total() for name in PROFILES}
    return Fleet(capacities, leases), counts


def test_changed_layouts_are_counted_and_placed_on_like_fleets_that_are_read_anew() -> None:
    fleet = _fleet()
    one, two, _three = fleet.vms.values()
    freed = without(layout_of(fleet), [one])
    smaller = with_profile(one.request, "A40-4Q")
    placement = freed.place(smaller)
    assert placement is not None
    layouts = [layout_of(fleet), freed, without(freed, [two]), with_vm(freed, one, smaller, placement)]
    for layout in (*layouts, *layouts):
        anew, counts = _read_anew(layout)
        assert room_for(layout, PROFILES) == counts
        for profile in PROFILES:
            assert layout.place(vm(profile, name="asked")) == anew.place(vm(profile, name="asked"))
        assert starts(layout, fleet.waiting) == starts(layout, fleet.waiting)
    assert starts(layouts[0], fleet.waiting) == ["acme/small"]
    assert starts(layouts[1], fleet.waiting) == ["acme/waits", "acme/small"]
