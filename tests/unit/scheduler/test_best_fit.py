# SPDX-License-Identifier: Apache-2.0
"""The choice among several possible GPUs: best fit, then names."""

from dataclasses import replace

import pytest

from tests.unit.emulated_gpu import qemu
from tests.unit.fleet_factory import (
    a40_host,
    emulated_a40,
    emulated_t4,
    host,
    intel_vf_host,
    lease,
    leases_of,
    passthrough_host,
    t4_host,
    vm,
    whole_card,
)
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.placement import Placement
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.place import place


@pytest.mark.parametrize(
    ("sharing", "type_id"), [("vf-profile", "562"), ("mdev-vf", "nvidia-562")], ids=["vf-profile", "mdev-vf"]
)
def test_a_vgpu_on_vfs_takes_the_lowest_free_vf(sharing: str, type_id: str) -> None:
    placement = place(vm("A40-8Q"), [a40_host(sharing=sharing, vgpus=["A40-8Q", "A40-8Q"])], [])
    (chosen,) = placement.shares
    assert placement.host == "gpu1"
    assert (chosen.gpu, chosen.function, chosen.device) == ("0000:41:00.0", "0000:41:00.6", "0000:41:00.6")
    assert (chosen.sharing, chosen.profile, chosen.type_id) == (sharing, "A40-8Q", type_id)
    assert (chosen.framebuffer_mib, chosen.numa_node, chosen.mdev_uuid) == (8192, 0, None)


def test_an_mdev_on_the_pf_sits_on_the_pf() -> None:
    (chosen,) = place(vm("T4-4Q"), [t4_host(vgpus=["T4-4Q"])], []).shares
    assert (chosen.sharing, chosen.function, chosen.type_id) == (Sharing.MDEV, "0000:3b:00.0", "nvidia-232")


def test_a_whole_card_goes_with_its_companions() -> None:
    (chosen,) = place(vm("passthrough"), [passthrough_host()], []).shares
    assert (chosen.function, chosen.companions) == ("0000:81:00.0", ("0000:81:00.1",))
    assert (chosen.sharing, chosen.profile, chosen.type_id) == (Sharing.PASSTHROUGH, "passthrough", None)


def test_a_plain_vf_takes_the_lowest_free_vf() -> None:
    capacity = intel_vf_host()
    first = place(vm("vf"), [capacity], [])
    second = place(vm("vf:flex-170"), [capacity], leases_of(first))
    assert [one.shares[0].function for one in (first, second)] == ["0000:9a:00.4", "0000:9a:00.5"]
    assert first.shares[0].sharing is Sharing.VF


def test_the_gpu_that_is_fullest_of_this_size_is_chosen() -> None:
    fleet = [
        a40_host("a-empty"),
        a40_host("b-two", vgpus=["A40-8Q"] * 2),
        a40_host("c-five", vgpus=["A40-8C"] * 5),
        a40_host("d-full", vgpus=["A40-8Q"] * 6),
    ]
    assert place(vm("A40-8Q"), fleet, []).host == "c-five"


def test_a_gpu_of_this_size_is_chosen_before_an_empty_one_with_less_left() -> None:
    rtx = a40_host("b", vgpus=["A40-8Q"])
    assert place(vm("A40-8Q"), [a40_host("a"), rtx], []).host == "b"


def test_equal_hosts_are_chosen_by_name_and_equal_gpus_by_address() -> None:
    fleet = [a40_host("gpu3", cards=2), a40_host("gpu1", cards=2), a40_host("gpu2", cards=2)]
    placement = place(vm("A40-8Q"), fleet, [])
    assert (placement.host, placement.shares[0].gpu) == ("gpu1", "0000:41:00.0")
    assert place(vm("A40-8Q"), list(reversed(fleet)), []) == placement


def test_a_lease_that_the_host_does_not_show_yet_counts() -> None:
    capacity = a40_host()
    leases: list[Lease] = []
    for number in range(6):
        placement = place(vm("A40-8Q"), [capacity], leases)
        leases.extend(leases_of(placement, vm_name=f"web-{number}"))
    assert len({one.share.function for one in leases}) == 6


def test_a_lease_that_the_host_shows_too_counts_once() -> None:
    before = a40_host()
    leases = leases_of(place(vm("A40-24Q"), [before], []))
    after = a40_host(vgpus=["A40-24Q"])
    assert place(vm("A40-24Q"), [after], leases).shares[0].function == "0000:41:00.5"


def test_a_lease_that_is_gone_does_not_count() -> None:
    held = place(vm("A40-48Q"), [a40_host()], []).shares[0]
    gone = [lease("gpu1", held, state=LeaseState.GONE)]
    assert place(vm("A40-48Q"), [a40_host()], gone).shares[0] == held


def test_a_lease_on_another_host_does_not_count() -> None:
    held = place(vm("A40-48Q"), [a40_host()], []).shares[0]
    assert place(vm("A40-48Q"), [a40_host("gpu2")], [lease("gpu1", held)]).host == "gpu2"


def test_a_vf_that_somebody_holds_is_left_out() -> None:
    gpu = emulated_a40().facts()
    held = replace(gpu.vfs[0], holders=(qemu(),))
    capacity = host("gpu1", replace(gpu, vfs=(held, *gpu.vfs[1:])))
    assert place(vm("A40-8Q"), [capacity], []).shares[0].function == "0000:41:00.5"


def test_several_shares_of_one_vm_take_different_vfs_of_one_card() -> None:
    placement = place(vm("3*A40-8Q"), [a40_host(cards=2)], [])
    assert [one.function for one in placement.shares] == ["0000:41:00.4", "0000:41:00.5", "0000:41:00.6"]


def test_shares_that_one_card_cannot_hold_go_to_the_next_card() -> None:
    placement = place(vm("3*A40-24Q"), [a40_host(cards=2)], [])
    assert [one.gpu for one in placement.shares] == ["0000:41:00.0", "0000:41:00.0", "0000:51:00.0"]


def test_all_shares_of_one_vm_are_on_one_host() -> None:
    fleet = [passthrough_host("gpu1"), passthrough_host("gpu2", cards=2), passthrough_host("gpu3")]
    placement = place(vm("passthrough*2"), fleet, [])
    assert placement.host == "gpu2"
    assert [one.gpu for one in placement.shares] == ["0000:81:00.0", "0000:91:00.0"]


def test_shares_come_in_the_order_they_were_asked_for() -> None:
    capacity = host("gpu1", emulated_a40(), emulated_t4(), whole_card())
    wanted = vm("memory>=1GiB,series=Q", "T4-2Q", "passthrough", "A40-8Q")
    profiles = [one.profile for one in place(wanted, [capacity], []).shares]
    assert profiles[1:] == ["T4-2Q", "passthrough", "A40-8Q"]
    assert profiles[0] in ("A40-8Q", "T4-2Q")


def test_a_choice_that_would_leave_a_later_share_without_a_gpu_is_undone() -> None:
    capacity = t4_host(vgpus=["T4-8Q"], cards=2)
    placement = place(vm("memory>=2GiB", "passthrough"), [capacity], [])
    assert [one.profile for one in placement.shares] == ["T4-8Q", "passthrough"]


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("memory>=5GiB", "A40-6Q"),
        ("memory>=8GiB,series=C", "A40-8C"),
        ("memory=12GiB", "A40-12Q"),
        ("series=A", "A40-1A"),
        ("series=B", "A40-1B"),
    ],
)
def test_conditions_take_the_smallest_type_that_fits(text: str, profile: str) -> None:
    assert place(vm(text), [a40_host()], []).shares[0].profile == profile


def test_conditions_take_the_card_where_the_fleet_loses_least() -> None:
    fleet = [a40_host("gpu1"), t4_host("gpu2", vgpus=["T4-8Q"])]
    assert place(vm("memory>=7GiB"), fleet, []).host == "gpu2"
    assert place(vm("memory>=6GiB"), fleet, []).shares[0].profile == "T4-8Q"
    assert place(vm("memory>=1GiB"), fleet, []).shares[0].profile == "A40-1Q"


def test_conditions_leave_the_scarcer_of_two_models_alone() -> None:
    fleet = [a40_host(f"a{number}") for number in range(3)] + [t4_host(f"t{number}") for number in range(9)]
    fleet += [t4_host("used", vgpus=["T4-4Q", "T4-4Q"])]
    promised = [a40_host(f"b{number}", vgpus=["A40-48Q"]) for number in range(60)]
    assert place(vm("memory>=16GiB"), fleet, []).shares[0].profile == "T4-16Q"
    assert place(vm("memory>=16GiB"), fleet + promised, []).shares[0].profile == "T4-16Q"
    scarce = [t4_host(f"c{number}", vgpus=["T4-16Q"]) for number in range(200)]
    assert place(vm("memory>=16GiB"), fleet + scarce, []).shares[0].profile == "A40-16Q"


def test_a_model_of_which_little_is_left_is_kept_for_those_who_name_it() -> None:
    fleet = [a40_host("a", vgpus=["A40-12Q"]), *(a40_host(f"a{number}", vgpus=["A40-48Q"]) for number in range(74))]
    fleet += [t4_host(f"t{number}", vgpus=["T4-16Q"] if number < 306 else []) for number in range(325)]
    assert place(vm("memory>=12GiB"), fleet, []).shares[0].profile == "T4-16Q"


def test_opening_a_card_matters_less_between_models_of_a_large_fleet() -> None:
    small = [a40_host("a", cards=4), t4_host("t")]
    large = [a40_host(f"a{number}", cards=4) for number in range(100)] + [t4_host(f"t{number}") for number in range(40)]
    assert place(vm("memory>=12GiB"), small, []).shares[0].profile == "T4-16Q"
    assert place(vm("memory>=12GiB"), large, []).shares[0].profile == "A40-12Q"


def test_an_untouched_card_is_opened_on_the_host_with_the_fewest() -> None:
    fleet = [a40_host("a", cards=4), a40_host("b", cards=4, vgpus=["A40-8Q"])]
    assert place(vm("A40-48Q"), fleet, []).host == "b"
    assert place(vm("2*memory>=48GiB"), fleet, []).host == "b"


def test_conditions_take_a_larger_type_when_the_smaller_cannot_be_created() -> None:
    assert place(vm("memory>=2GiB"), [a40_host(vgpus=["A40-12Q"])], []).shares[0].profile == "A40-12Q"


def test_a_card_that_cannot_do_vgpu_is_given_away_whole_first() -> None:
    fleet = [t4_host("a"), passthrough_host("b")]
    assert place(vm("passthrough"), fleet, []).host == "b"
    assert place(vm("passthrough:T4"), fleet, []).host == "a"


def test_a_vm_must_run_where_the_request_says() -> None:
    assert place(vm("A40-8Q", on="gpu2"), [a40_host("gpu1"), a40_host("gpu2")], []).host == "gpu2"


def test_a_vm_without_gpus_stays_off_the_hosts_with_gpus() -> None:
    placement = place(vm(), [a40_host("a"), host("b"), host("c")], [])
    assert (placement.host, placement.shares) == ("b", ())


def test_a_broken_card_does_not_keep_the_others_from_being_used() -> None:
    broken = replace(emulated_a40("0000:21:00.0").facts(), problems=("it fell off the bus",))
    placement = explain(vm("A40-8Q"), [host("gpu1", broken, emulated_a40())], [])
    assert isinstance(placement, Placement)
    assert placement.shares[0].gpu == "0000:41:00.0"
    assert [(one.gpu, one.code) for one in placement.rejections] == [("0000:21:00.0", "gpu-problem")]
