# SPDX-License-Identifier: Apache-2.0
"""Refusals of a large fleet in few lines, and those that reading again cannot change."""

import pytest

from tests.unit.fleet_factory import a40_host, t4_host, vm
from vgpuctl.errors import NoCapacity
from vgpuctl.model.placement import Rejection
from vgpuctl.scheduler.place import place
from vgpuctl.scheduler.refusals import in_short, summarise


def test_refusals_are_grouped_by_reason_with_counts_the_nearest_first() -> None:
    far = [Rejection(f"t{number}", "0000:3b:00.0", "wrong-board", "it is a T4", None) for number in range(150)]
    near = [Rejection("a1", "0000:41:00.0", "gpu-full", "no room", None)]
    assert summarise([*far, *near]) == [
        "a1 0000:41:00.0: no room (gpu-full)",
        "150 GPUs of 150 hosts: it is a T4 (wrong-board)",
        "--all-refusals shows each of the 151 refusals",
    ]
    assert len(summarise([*far, *near], is_whole=True)) == 151


def test_reasons_that_differ_in_their_numbers_show_an_example() -> None:
    both = [Rejection(f"g{n}", None, "host-memory", f"{n} GiB left", None) for n in (1, 2)]
    assert summarise(both)[0] == "2 hosts: for example g1: 1 GiB left (host-memory)"


@pytest.mark.parametrize(("gpu", "stays"), [("passthrough:H100", True), ("A40-48Q", False)])
def test_what_follows_from_the_request_stays_refused(gpu: str, stays: bool) -> None:
    hosts = [t4_host("gpu1"), t4_host("gpu2")] if stays else [a40_host("gpu1", vgpus=["A40-8Q"])]
    with pytest.raises(NoCapacity) as refused:
        place(vm(gpu), hosts, [])
    assert refused.value.stays is stays
    assert refused.value.context
    assert refused.value.brief


FOR_EVER = ("wrong-board", "no-such-type", "no-gpu", "host-too-small", "host-cpus")
MAY_END = (
    "gpu-full",
    "no-place-left",
    "no-free-vf",
    "host-memory",
    "host-hugepages",
    "host-cordoned",
    "gpu-quarantine",
    "reserved-by-lease",
    "reserved-in-calendar",
    "equal-size",
    "host-pool",
)


@pytest.mark.parametrize("code", MAY_END)
@pytest.mark.parametrize("other", FOR_EVER)
def test_a_short_reason_names_what_may_end_and_not_the_largest_group(code: str, other: str) -> None:
    many = [Rejection(f"t{number}", "0000:3b:00.0", other, "it never will", None) for number in range(150)]
    one = Rejection("a1", "0000:41:00.0", code, "not now", None)
    assert in_short([*many, one]) == "a1 0000:41:00.0: not now"
    assert in_short(many) == "150 GPUs of 150 hosts: it never will", "where nothing ends, that is the reason"
