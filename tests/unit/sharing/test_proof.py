# SPDX-License-Identifier: Apache-2.0
"""Every part of a promise, and who is believed when guest and host contradict each other."""

from dataclasses import replace

import pytest

from vgpuctl.agent.wire.readings import NOT_MEASURABLE, NOT_READABLE, Measured, VgpuReadings
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.proof import AskedOf, PromiseVerdict, verdict_of
from vgpuctl.sharing.measured import MeasuredShare
from vgpuctl.sharing.proof import InsideGpu, SeenInside, compare

SHARE = Share("0000:41:00.0", Sharing.VF_PROFILE, "A40-8Q", "0000:41:00.4", framebuffer_mib=8192)
CARD = Share("0000:42:00.0", Sharing.PASSTHROUGH, "passthrough", "0000:42:00.0")
GOOD = Measured(
    (
        ("guest_driver_info", ("580.105.08",), 1),
        ("license_state", ("licensed",), 1),
        ("framebuffer_size_bytes", (), 8192 * 2**20),
    )
)
INSIDE = SeenInside("580.105.08", (InsideGpu("NVIDIA A40-8Q", 7680, "Licensed (Expiry: 2026-12-1)"),), 1, 1)


def _lease(share: Share, index: int = 0) -> Lease:
    return Lease(f"l{index}", "u", "acme", "web-1", "gpu1", index, share, LeaseState.RUNNING)


def _outside(measured: Measured | None, lease: Lease) -> list[MeasuredShare]:
    there = None if measured is None else VgpuReadings("0000:41:00.0", "0000:41:00.4", "u", "A40-8Q", None, measured)
    return [MeasuredShare(lease, there)]


def _parts(inside: SeenInside | None, measured: Measured | None) -> dict[tuple[str, AskedOf], PromiseVerdict]:
    lease = _lease(SHARE)
    return {(one.part, one.source): one.verdict for one in compare([lease], inside, _outside(measured, lease))}


def test_everything_as_promised() -> None:
    found = _parts(INSIDE, GOOD)
    assert set(found.values()) == {PromiseVerdict.KEPT}
    assert {part for part, source in found if source is AskedOf.HOST} == {
        "driver of A40-8Q", "licence of A40-8Q", "framebuffer of A40-8Q",
    }  # fmt: skip
    assert {part for part, source in found if source is AskedOf.GUEST} == {
        "driver", "GPUs", "GPU A40-8Q", "framebuffer of A40-8Q", "licence of A40-8Q", "CUDA",
    }  # fmt: skip


def test_the_host_alone_can_prove_driver_licence_and_framebuffer() -> None:
    lease = _lease(SHARE)
    assert verdict_of(compare([lease], None, _outside(GOOD, lease))) is PromiseVerdict.KEPT
    assert verdict_of(compare([lease], None, _outside(None, lease))) is PromiseVerdict.UNKNOWN
    silent = Measured((), (("guest_driver_info", NOT_READABLE, "the guest's driver is not loaded yet"),))
    found = compare([lease], None, _outside(silent, lease))
    assert verdict_of(found) is PromiseVerdict.NOT_KEPT
    (driver,) = (one for one in found if one.part == "driver of A40-8Q")
    assert driver.seen == "not-readable: the guest's driver is not loaded yet" and "vgpu-mgr" in driver.look


@pytest.mark.parametrize(
    ("inside", "part"),
    [
        (replace(INSIDE, driver=None), "driver"),
        (replace(INSIDE, gpus=()), "GPUs"),
        (replace(INSIDE, gpus=(*INSIDE.gpus, *INSIDE.gpus)), "GPUs"),
        (replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-8Q", 8274, "Licensed"),)), "framebuffer of A40-8Q"),
        (replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-4Q", 4096, "Licensed"),)), "GPU A40-8Q"),
        (replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-8Q", 4096, "Licensed"),)), "framebuffer of A40-8Q"),
        (replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-8Q", 16384, "Licensed"),)), "framebuffer of A40-8Q"),
        (replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-8Q", 8192, "Unlicensed (Restricted)"),)), "licence of A40-8Q"),
        (replace(INSIDE, cuda_devices=0, cuda_copies=0), "CUDA"),
        (replace(INSIDE, cuda_copies=0), "CUDA"),
    ],
)
def test_what_the_guest_lacks_is_named(inside: SeenInside, part: str) -> None:
    found = _parts(inside, GOOD)
    assert [one for one, verdict in found.items() if verdict is PromiseVerdict.NOT_KEPT] == [(part, AskedOf.GUEST)]


def test_a_guest_that_lies_is_caught_by_the_host() -> None:
    assert _parts(replace(INSIDE, driver="999.1.1"), GOOD)["driver, twice", AskedOf.GUEST] is PromiseVerdict.NOT_KEPT
    values = tuple(one for one in GOOD.values if one[0] != "license_state")
    unlicensed = Measured((*values, ("license_state", ("unlicensed-restricted",), 1)))
    found = _parts(INSIDE, unlicensed)
    assert found["licence, twice", AskedOf.GUEST] is PromiseVerdict.NOT_KEPT
    assert found["licence of A40-8Q", AskedOf.HOST] is PromiseVerdict.NOT_KEPT


BROKEN = {
    "no driver": Measured(
        GOOD.values[1:], (("guest_driver_info", NOT_READABLE, "the guest's driver is not loaded yet"),)
    ),
    "unlicensed": Measured((GOOD.values[0], ("license_state", ("unlicensed-restricted",), 1), GOOD.values[2])),
    "half of the framebuffer": Measured((*GOOD.values[:2], ("framebuffer_size_bytes", (), 4096 * 2**20))),
}


@pytest.mark.parametrize("measured", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("uuid", [None, "GPU-of-another-vm"])
@pytest.mark.parametrize("mib", [8192, 8111, 7680])
def test_no_word_of_a_guest_keeps_a_promise_that_the_host_sees_broken(
    measured: Measured, uuid: str | None, mib: int
) -> None:
    lie = replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-8Q", mib, "Licensed (Expiry: 2999-1-1)", uuid),))
    lease = _lease(SHARE)
    assert verdict_of(compare([lease], lie, _outside(measured, lease))) is PromiseVerdict.NOT_KEPT


def test_no_word_of_a_guest_proves_what_the_host_cannot_read() -> None:
    lease = _lease(SHARE)
    assert verdict_of(compare([lease], INSIDE, _outside(None, lease))) is PromiseVerdict.UNKNOWN
    old = Measured(GOOD.values[1:], (("guest_driver_info", NOT_MEASURABLE, "Function Not Found"),))
    assert verdict_of(compare([lease], None, _outside(old, lease))) is PromiseVerdict.UNKNOWN


def test_one_gpu_that_a_guest_shows_twice_is_one() -> None:
    pair = [_lease(SHARE), _lease(replace(SHARE, function="0000:41:00.5"), 1)]
    gpu = replace(INSIDE.gpus[0], uuid="GPU-1")
    twice = replace(INSIDE, gpus=(gpu, gpu), cuda_devices=2, cuda_copies=2)
    two = replace(twice, gpus=(gpu, replace(gpu, uuid="GPU-2")))
    assert verdict_of(compare(pair, twice, [])) is PromiseVerdict.NOT_KEPT
    assert verdict_of(compare(pair, two, [])) is PromiseVerdict.KEPT


def test_a_whole_card_is_known_to_its_guest_alone() -> None:
    lease = _lease(CARD)
    outside = [MeasuredShare(lease, None)]
    assert verdict_of(compare([lease], None, outside)) is PromiseVerdict.UNKNOWN
    inside = SeenInside("580.105.08", (InsideGpu("NVIDIA A40", 46068, None),), None, None)
    assert verdict_of(compare([lease], inside, outside)) is PromiseVerdict.KEPT


def test_two_equal_shares_need_two_gpus() -> None:
    pair = [_lease(SHARE), _lease(replace(SHARE, function="0000:41:00.5"), 1)]
    one, two = INSIDE, replace(INSIDE, gpus=(*INSIDE.gpus, *INSIDE.gpus), cuda_devices=2, cuda_copies=2)
    assert verdict_of(compare(pair, one, [])) is PromiseVerdict.NOT_KEPT
    assert verdict_of(compare(pair, two, [])) is PromiseVerdict.KEPT
