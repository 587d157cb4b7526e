# SPDX-License-Identifier: Apache-2.0
"""The map of a GPU: segments without gaps, free where the lab's own statement of the rules can create something."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some_of

from tests.unit.emulated_gpu import EmulatedGpu, RuleBroken
from tests.unit.fleet_factory import (
    GIB,
    a40_host,
    emulated_a40,
    host,
    intel_vf_host,
    lease,
    leases_of,
    passthrough_host,
    vm,
)
from tests.unit.scheduler.test_mig_rejections import A100, mig
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import GpuInstance, VgpuType
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.gpu_map import GpuMap, MapMode, Segment, SegmentKind
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind
from vgpuctl.scheduler.gpu_map import map_gpus
from vgpuctl.scheduler.place import place

SHARE, FOREIGN, FREE, UNUSABLE = SegmentKind.SHARE, SegmentKind.FOREIGN, SegmentKind.FREE, SegmentKind.UNUSABLE
NEEDS, CLOSED = SegmentKind.NEEDS_INSTANCE, SegmentKind.CLOSED


def only(capacity: HostCapacity, leases: Sequence[Lease] = (), **more: object) -> GpuMap:
    """The map of the only GPU of a host."""
    (drawn,) = map_gpus([capacity], leases, **more)  # type: ignore[arg-type]  # the tests name real fields
    return drawn


def row(drawn: GpuMap) -> list[tuple[SegmentKind, int]]:
    """Kinds and sizes in GiB."""
    return [(one.kind, one.size_mib // GIB) for one in drawn.segments]


def has_no_gap(drawn: GpuMap) -> bool:
    """True if each segment begins where the one before ends."""
    at = 0
    for one in drawn.segments:
        if one.start_mib != at or one.size_mib <= 0:
            return False
        at += one.size_mib
    return at == drawn.memory_mib


def test_a_share_is_named_and_the_rest_is_free_for_its_size() -> None:
    capacity = a40_host()
    drawn = only(capacity, leases_of(place(vm("A40-8Q"), [capacity], [])))
    assert row(drawn) == [(SHARE, 8), (FREE, 40)]
    share = drawn.segments[0]
    assert (share.tenant, share.vm, share.profile, share.lease_state) == ("acme", "web-0", "A40-8Q", "running")
    assert {(one.size_mib // GIB, one.count) for one in drawn.creatable} == {(8, 5)}
    assert drawn.mode is MapMode.EQUAL and not drawn.is_exact


def test_what_no_profile_fits_is_not_usable() -> None:
    drawn = only(a40_host(vgpus=["A40-16Q", "A40-16Q", "A40-16Q"]))
    assert row(drawn) == [(FOREIGN, 16)] * 3
    # Seven vGPUs of 6 GiB leave 6 GiB for one more of that size; nothing else may come.
    assert row(only(a40_host(vgpus=["A40-6Q"] * 7))) == [(FOREIGN, 6)] * 7 + [(FREE, 6)]
    gpu = emulated_a40().facts()
    full = replace(gpu, types=tuple(replace(one, creatable=0) for one in gpu.types))
    drawn = only(host("gpu1", full))
    assert row(drawn) == [(UNUSABLE, 48)] and drawn.largest is None
    assert drawn.why_none is not None and "no A40" in drawn.why_none


def test_a_seen_vgpu_of_a_lease_is_drawn_once() -> None:
    capacity = a40_host(vgpus=["A40-8Q", "A40-8Q"])
    function = capacity.facts.gpus[0].vfs[0].address
    held = Share("0000:41:00.0", Sharing.VF_PROFILE, "A40-8Q", function, "562", framebuffer_mib=8 * GIB)
    assert row(only(capacity, [lease("gpu1", held)])) == [(SHARE, 8), (FOREIGN, 8), (FREE, 32)]


@pytest.mark.parametrize(
    ("device", "kind", "code"),
    [
        ("0000:41:00.0", RestrictionKind.QUARANTINE, "gpu-quarantine"),
        ("0000:41:00.0", RestrictionKind.CORDON, "gpu-cordoned"),
        (WHOLE_HOST, RestrictionKind.CORDON, "host-cordoned"),
        (WHOLE_HOST, RestrictionKind.FENCE, "host-fenced"),
    ],
)
def test_free_memory_of_a_closed_gpu_is_closed(device: str, kind: RestrictionKind, code: str) -> None:
    capacity = a40_host()
    leases = leases_of(place(vm("A40-8Q"), [capacity], []))
    closed = replace(capacity, restrictions=(Restriction("gpu1", device, kind, "it smells"),))
    drawn = only(closed, leases)
    assert row(drawn) == [(SHARE, 8), (CLOSED, 40)]
    assert drawn.closed is not None and drawn.closed.code == code and "it smells" in drawn.closed.reason
    assert drawn.creatable == ()


def test_a_vf_in_quarantine_is_named_and_the_gpu_goes_on() -> None:
    capacity = a40_host()
    function = capacity.facts.gpus[0].vfs[0].address
    drawn = only(replace(capacity, restrictions=(Restriction("gpu1", function, RestrictionKind.QUARANTINE, "wedged"),)))
    assert drawn.closed is None and drawn.closed_vfs[0][0] == function
    assert row(drawn) == [(FREE, 48)]


def test_a_gpu_with_a_problem_is_closed() -> None:
    gpu = replace(emulated_a40().facts(), problems=("it fell off the bus",))
    drawn = only(host("gpu1", gpu))
    assert row(drawn) == [(CLOSED, 48)]
    assert drawn.closed is not None and drawn.closed.reason == "it fell off the bus"


def test_a_whole_card_is_free_or_taken_as_one() -> None:
    capacity = passthrough_host()
    assert row(only(capacity)) == [(FREE, 24)]
    drawn = only(capacity, leases_of(place(vm("passthrough"), [capacity], [])))
    assert drawn.segments[0].kind is SHARE and drawn.size_of(FREE) == 0
    assert drawn.mode is MapMode.WHOLE


def test_plain_vfs_are_equal_parts() -> None:
    capacity = intel_vf_host(vfs=4)
    drawn = only(capacity, leases_of(place(vm("vf"), [capacity], [])))
    assert drawn.mode is MapMode.VFS
    assert drawn.largest is not None and drawn.largest.count == 3
    assert drawn.segments[0].kind is SHARE and drawn.size_of(FREE) >= 2 * drawn.size_of(SHARE)


def a100(*instances: GpuInstance, types: tuple[VgpuType, ...] = ()) -> HostCapacity:
    """An A100 of 40 GB with MIG on."""
    capacity = mig(*instances)
    return host("gpu1", replace(capacity.facts.gpus[0], types=types))


def test_mig_shows_slots_instances_and_where_one_more_fits() -> None:
    one = VgpuType("474", "A100-1-5C", "GRID A100-1-5C", 5 * GIB, 7, 1)
    capacity = a100(
        GpuInstance(1, "3g.20gb", 0, 4, in_use=True), GpuInstance(2, "1g.5gb", 6, 1, in_use=False), types=(one,)
    )
    held = Share("0000:c1:00.0", Sharing.VF_PROFILE, "A100-3-20C", A100.vfs[0].address, "476", framebuffer_mib=20 * GIB)
    drawn = only(capacity, [lease("gpu1", held)])
    assert drawn.mode is MapMode.MIG and drawn.slots == 8 and drawn.is_exact
    kinds = [(one.kind, one.instance, one.size_mib) for one in drawn.segments]
    slot = 5 * GIB
    # Slots 4 and 5 take a 1g or a 2g, slot 6 has an idle instance; 1g.5gb has no start at slot 7.
    assert kinds == [(SHARE, 1, 4 * slot), (NEEDS, None, 2 * slot), (FREE, 2, slot), (UNUSABLE, None, slot)]
    assert [one.profile for one in drawn.instances] == ["3g.20gb", "1g.5gb"]


def test_an_instance_that_something_else_uses_is_foreign() -> None:
    drawn = only(a100(GpuInstance(1, "7g.40gb", 0, 8, in_use=True)))
    assert [(one.kind, one.profile) for one in drawn.segments] == [(FOREIGN, "7g.40gb")]


def test_readings_tell_the_instance_of_a_share() -> None:
    capacity = a100(GpuInstance(1, "1g.5gb", 0, 1, in_use=True), GpuInstance(2, "1g.5gb", 1, 1, in_use=True))
    device = A100.vfs[0].address
    held = Share("0000:c1:00.0", Sharing.VF_PROFILE, "A100-1-5C", device, "474", framebuffer_mib=5 * GIB)
    assert only(capacity, [lease("gpu1", held)]).segments[0].vm == "web-0"
    told = only(capacity, [lease("gpu1", held)], instances={("gpu1", device): 2})
    assert [one.vm for one in told.segments[:2]] == [None, "web-0"]


def test_shares_that_divide_one_instance_have_their_part_of_it() -> None:
    board = catalog.board("nvidia-rtx-pro-6000-blackwell-server")
    gpu = EmulatedGpu(board, "0000:c1:00.0", "vf-profile", vf_count=48).facts()
    types = (VgpuType("1546", "DC-1-6Q", "NVIDIA RTX Pro 6000 Blackwell DC-1-6Q", 6 * GIB, 16, 2),)
    table = mig().facts.gpus[0].mig
    assert table is not None
    there = replace(table, instances=(GpuInstance(1, "1g.24gb+gfx", 0, 2, in_use=True),), profiles=())
    capacity = host("gpu1", replace(gpu, mig_mode="enabled", mig=there, types=types))
    leases = leases_of(place(vm("2*DC-1-6Q"), [capacity], []))
    inside = [(one.kind, one.size_mib) for one in only(capacity, leases).segments if one.instance == 1]
    whole = sum(size for _, size in inside)
    assert [(kind, round(size / whole, 2)) for kind, size in inside] == [(SHARE, 0.25), (SHARE, 0.25), (UNUSABLE, 0.5)]


def test_shares_without_an_instance_are_kept_beside_the_drawing() -> None:
    held = Share("0000:c1:00.0", Sharing.VF_PROFILE, "A100-1-5C", A100.vfs[0].address, "474", framebuffer_mib=5 * GIB)
    drawn = only(a100(), [lease("gpu1", held)])
    assert [one.vm for one in drawn.unplaced] == ["web-0"]


def test_instances_that_lie_over_each_other_end_the_drawing_all_the_same() -> None:
    """A host that lies: overlapping instances, one of size 0, one beyond the slots."""
    drawn = only(
        a100(
            GpuInstance(1, "3g.20gb", 0, 4, in_use=False),
            GpuInstance(2, "2g.10gb", 2, 2, in_use=False),
            GpuInstance(3, "1g.5gb", 6, 0, in_use=False),
            GpuInstance(4, "1g.5gb", 1 << 40, 1, in_use=False),
        )
    )
    assert has_no_gap(drawn)


def test_no_host_and_no_gpu_have_no_map() -> None:
    assert map_gpus([], []) == []
    assert map_gpus([host("gpu1")], []) == []


_SIZES = some_of.lists(
    some_of.sampled_from(["1Q", "2Q", "4Q", "8Q", "12Q", "16Q", "24Q", "48Q", "4C", "8C"]), max_size=9
)


@settings(max_examples=60, deadline=None)
@given(names=_SIZES, is_mixed=some_of.booleans())
def test_the_map_agrees_with_the_lab_about_what_is_free(names: list[str], is_mixed: bool) -> None:
    card = replace(emulated_a40(), is_mixed=is_mixed)
    for function, name in zip(card.functions, names, strict=False):
        try:
            card.create(f"A40-{name}", function)
        except (RuleBroken, IndexError):
            continue
    drawn = only(host("gpu1", card))
    assert has_no_gap(drawn) and drawn.memory_mib == 48 * GIB and not drawn.unplaced
    types = [catalog.type_by_name(card.board, one) for one in card.vgpus.values()]
    assert drawn.size_of(FOREIGN) == sum(one.fb_mib for one in types if one is not None)
    can = [one for one in card.types() if card.can_create(one.name)]
    assert {one.profile for one in drawn.creatable if one.profile != "passthrough"} <= {one.name for one in can}
    assert (drawn.size_of(FREE) > 0) is bool(can)
    if can:
        assert drawn.largest is not None and drawn.largest.size_mib == max(one.fb_mib for one in can)
        assert drawn.size_of(FREE) >= drawn.largest.size_mib


def test_segments_say_what_they_are() -> None:
    assert len({kind.text for kind in SegmentKind}) == len(SegmentKind)
    assert Segment(SHARE, 0, 1).kind.is_free() is False and FREE.is_free()
