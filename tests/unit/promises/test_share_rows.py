# SPDX-License-Identifier: Apache-2.0
"""Rows about GPU shares, and who is believed when guest and host contradict each other."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host, passthrough_host
from tests.unit.fleet_factory import vm as request_of
from vgpuctl.agent.wire.fabric import FabricGpu, FabricManagerFacts, FabricPartition
from vgpuctl.agent.wire.facts import (
    Gpu,
    GpuTopology,
    Holder,
    HostFacts,
    SchedulerFacts,
    UnreadFunction,
    VirtualFunction,
)
from vgpuctl.agent.wire.readings import NOT_MEASURABLE, NOT_READABLE, Measured, VgpuReadings
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.guests.facts.guest_report import read_report
from vgpuctl.model.guest_driver import GuestDriver
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.licence import Edition
from vgpuctl.model.over_promise import stopped_work
from vgpuctl.model.promise import Moment, PromiseFinding, PromiseRow, PromiseVerdict, Witness, verdict_of
from vgpuctl.model.vm import MUST_RESTART, Vm, VmRequest, VmState
from vgpuctl.promises.compare import compare
from vgpuctl.promises.witnessed import NO_CONSENT, InsideGpu, NotLookedAt, PeerCopy, Promised, SeenInside, Witnessed
from vgpuctl.sharing.measured import MeasuredShare
from vgpuctl.usecases.vm.check_vm import seen_inside

KEPT, BROKEN, UNSEEN = PromiseVerdict.KEPT, PromiseVerdict.BROKEN, PromiseVerdict.NOT_LOOKED_AT
GPU, VF = "0000:41:00.0", "0000:41:00.4"
MADE = a40_host(vgpus=["A40-8Q"]).facts
TYPE = next(one.current_type for one in MADE.gpus[0].vfs if one.address == VF)
SHARE = Share(GPU, Sharing.VF_PROFILE, "A40-8Q", VF, TYPE, framebuffer_mib=8192)
CARD = Share("0000:42:00.0", Sharing.PASSTHROUGH, "passthrough", "0000:42:00.0")
GOOD = Measured(
    (
        ("guest_driver_info", ("580.105.08",), 1),
        ("license_state", ("licensed",), 1),
        ("framebuffer_size_bytes", (), 8192 * 2**20),
        ("promised_ratio", (), 0.25),
        ("steal_ratio", (), 0),
        ("share_utilization_ratio", (), 0.2),
    )
)
INSIDE = SeenInside(
    "580.105.08",
    (InsideGpu("NVIDIA A40-8Q", 7680, "Licensed (Expiry: 2026-12-1)", product="NVIDIA RTX Virtual Workstation"),),
    1,
    1,
)
REQUEST = request_of("A40-8Q", name="web-0")


def vm(request: VmRequest = REQUEST) -> Vm:
    return Vm("u", request, "gpu1", VmState.RUNNING)


def test_a_vgpu_that_was_reset_is_a_broken_row_of_its_own() -> None:
    lost = replace(vm(), problem=f"came from gpu2: it lost the state of its vGPU on the way and {MUST_RESTART}: why")
    found = [one for one in compare(Promised(lost), Witnessed(), Moment.LOOK) if one.row is PromiseRow.GPU_STATE]
    assert [(one.verdict, one.seen) for one in found] == [(BROKEN, lost.problem)]
    assert "vgpuctl restart-vm acme/web-0" in found[0].remedy
    assert not [one for one in compare(Promised(vm()), Witnessed(), Moment.CHECK) if one.row is PromiseRow.GPU_STATE]


def _lease(share: Share = SHARE, index: int = 0) -> Lease:
    return Lease(f"l{index}", "u", "acme", "web-0", "gpu1", index, share, LeaseState.RUNNING)


def on_vf(facts: HostFacts = MADE, **values: object) -> HostFacts:
    def changed(one: VirtualFunction) -> VirtualFunction:
        return replace(one, **values) if one.address == VF else one  # type: ignore[arg-type]

    gpu = facts.gpus[0]
    return replace(facts, gpus=(replace(gpu, vfs=tuple(map(changed, gpu.vfs))),))


PLAIN = Share(GPU, Sharing.VF, "vf", VF)
IN_TIME = vm(replace(request_of("vf", name="web-0"), vgpu_params=(("exec_quantum_ms", "20"),)))


@pytest.mark.parametrize(
    ("kernel", "verdict", "words"),
    [
        (on_vf(vgpu_params="exec_quantum_ms=20,preempt_timeout_us=0"), KEPT, "exec_quantum_ms=20"),
        (on_vf(vgpu_params="exec_quantum_ms=60,preempt_timeout_us=0"), BROKEN, "exec_quantum_ms=60"),
        (on_vf(vgpu_params="exec_quantum_ms=differs"), BROKEN, "exec_quantum_ms=differs"),
        (on_vf(vgpu_params=None), BROKEN, "exec_quantum_ms=not told"),
        (on_vf(problem="EIO"), UNSEEN, ""),
        (replace(MADE, gpus=()), UNSEEN, ""),
        (NotLookedAt("gpu1 does not answer"), UNSEEN, ""),
    ],
)
def test_parameters_of_a_vf_are_those_that_its_driver_has(
    kernel: HostFacts | NotLookedAt, verdict: PromiseVerdict, words: str
) -> None:
    found = compare(Promised(IN_TIME, (_lease(PLAIN),)), Witnessed(kernel=kernel), Moment.LOOK)
    (row,) = [one for one in found if one.row is PromiseRow.VF_PARAMS]
    assert (row.verdict, row.promised) == (verdict, "exec_quantum_ms=20")
    assert row.seen == words and bool(row.why) is (verdict is UNSEEN)
    assert ("resize-vm acme/web-0 --vgpu-param exec_quantum_ms=20" in row.remedy) is (verdict is BROKEN)


def with_scheduler(policy: str | None) -> HostFacts:
    scheduler = None if policy is None else SchedulerFacts(policy)
    return replace(MADE, gpus=(replace(MADE.gpus[0], scheduler=scheduler),))


@pytest.mark.parametrize(
    ("kernel", "verdict", "words"),
    [
        (with_scheduler("fixed-share"), KEPT, "16.6% of the GPU's time (scheduler fixed-share, up to 6 vGPUs)"),
        (with_scheduler("equal-share"), KEPT, "at least 16.6% of the GPU's time"),
        (with_scheduler("best-effort"), BROKEN, "no part of the GPU's time (its vGPUs have the scheduler best-effort)"),
        (with_scheduler(None), UNSEEN, ""),
        (replace(MADE, gpus=()), UNSEEN, ""),
        (NotLookedAt("gpu1 does not answer"), UNSEEN, ""),
    ],
)
def test_compute_time_that_was_asked_for_is_what_the_scheduler_keeps(
    kernel: HostFacts | NotLookedAt, verdict: PromiseVerdict, words: str
) -> None:
    asking = vm(request_of("A40-8Q,compute>=15%", name="web-0"))
    found = compare(Promised(asking, (_lease(),)), Witnessed(kernel=kernel), Moment.LOOK)
    (row,) = [one for one in found if one.row is PromiseRow.COMPUTE_PROMISE]
    assert (row.verdict, row.promised) == (verdict, "at least 15% of the GPU's time")
    assert row.seen.startswith(words) and bool(row.why) is (verdict is UNSEEN)
    assert ("policy: equal-share" in row.remedy) is (verdict is BROKEN)
    silent = compare(Promised(vm(), (_lease(),)), Witnessed(kernel=kernel), Moment.LOOK)
    assert PromiseRow.COMPUTE_PROMISE not in [one.row for one in silent]


def test_a_vf_whose_work_was_stopped_has_no_compute_time() -> None:
    asking = replace(vm(request_of("2*vf,compute>=15%", name="web-0")), problem=stopped_work([VF], "it takes time"))
    other = replace(PLAIN, function="0000:41:00.5")
    promised = Promised(asking, (_lease(PLAIN), _lease(other, 1)))
    found = compare(promised, Witnessed(kernel=NotLookedAt("gpu1 does not answer")), Moment.LOOK)
    rows = [one for one in found if one.row is PromiseRow.COMPUTE_PROMISE]
    assert [one.verdict for one in rows] == [BROKEN, UNSEEN], "the work of the other goes on"
    assert f"was stopped ({VF})" in rows[0].seen and "restart-vm" in rows[0].remedy


HELD = on_vf(holders=(Holder(100, "qemu-system-x86", "u"),))


def with_gpu(change: Callable[[Gpu], Gpu]) -> HostFacts:
    return replace(HELD, gpus=(change(HELD.gpus[0]),))


def _measured(measured: Measured | None, *leases: Lease) -> list[MeasuredShare]:
    there = None if measured is None else VgpuReadings(GPU, VF, "u", "A40-8Q", None, measured)
    return [MeasuredShare(one, there) for one in leases or (_lease(),)]


def _findings(
    measured: Measured | None = GOOD,
    inside: SeenInside | NotLookedAt | None = INSIDE,
    facts: HostFacts | NotLookedAt = HELD,
    request: VmRequest = REQUEST,
) -> list[PromiseFinding]:
    seen = Witnessed(kernel=facts, nvml=_measured(measured))
    seen = seen if inside is None else replace(seen, guest=inside)
    of_shares = (Witness.HOST_KERNEL, Witness.NVML, Witness.GUEST)
    found = compare(Promised(vm(request), [_lease()]), seen, Moment.CHECK)
    return [one for one in found if one.row.witness in of_shares]


def _broken(found: list[PromiseFinding]) -> list[tuple[str, Witness]]:
    return [(str(one), one.witness) for one in found if one.is_broken]


def test_everything_as_promised() -> None:
    found = _findings()
    assert {one.verdict for one in found} == {KEPT} and verdict_of(found) is KEPT
    assert [str(one) for one in found] == [
        "gpu-type A40-8Q", "gpu-held A40-8Q", "framebuffer A40-8Q", "compute A40-8Q", "guest-driver A40-8Q",
        "licence A40-8Q", "guest-gpus", "guest-gpus CUDA",
    ]  # fmt: skip


def test_a_guest_that_may_not_be_asked_is_no_row() -> None:
    found = _findings(inside=None)
    assert verdict_of(found) is KEPT and "guest-gpus" not in {str(one) for one in found}
    silent = _findings(inside=NotLookedAt("its agent is silent"))
    assert [(str(one), one.why) for one in silent if one.verdict is UNSEEN] == [
        ("guest-gpus", "only the guest can tell: its agent is silent")
    ]


@pytest.mark.parametrize(
    ("facts", "rows"),
    [
        (on_vf(HELD, current_type="1"), {"gpu-type A40-8Q": UNSEEN, "gpu-held A40-8Q": BROKEN}),
        (on_vf(HELD, current_type=None), {"gpu-type A40-8Q": BROKEN, "gpu-held A40-8Q": BROKEN}),
        (on_vf(HELD, holders=()), {"gpu-held A40-8Q": BROKEN}),
        (on_vf(HELD, holders=(Holder(7, "python3", None),)), {"gpu-held A40-8Q": BROKEN}),
        (on_vf(HELD, holders=(Holder(8, "qemu", "u"), Holder(9, "qemu", "x"))), {"gpu-held A40-8Q": BROKEN}),
        (replace(HELD, gpus=()), {"gpu-type A40-8Q": BROKEN, "gpu-held A40-8Q": BROKEN}),
        (replace(HELD, gpus=(), unread_functions=(UnreadFunction(GPU, "EIO"),)),
         {"gpu-type A40-8Q": UNSEEN, "gpu-held A40-8Q": UNSEEN}),
        (on_vf(HELD, problem="EIO"), {"gpu-type A40-8Q": UNSEEN}),
        (NotLookedAt("gpu1 does not answer"), {"gpu-type A40-8Q": UNSEEN, "gpu-held A40-8Q": UNSEEN}),
    ],
    ids=["other type", "no type", "free", "other holder", "two holders", "no card", "unread", "unread VF", "silent"],
)  # fmt: skip
def test_the_kernel_tells_type_and_holder(facts: HostFacts | NotLookedAt, rows: dict[str, PromiseVerdict]) -> None:
    found = {str(one): one.verdict for one in _findings(facts=facts) if one.verdict is not KEPT}
    assert found == rows


def test_a_type_is_known_by_the_name_that_the_driver_gives_its_id_now() -> None:
    def renumbered(gpu: Gpu) -> Gpu:
        names = {one.name: one.type_id for one in gpu.types}
        ids = {**names, "A40-8Q": names["A40-12Q"], "A40-12Q": names["A40-8Q"]}
        return replace(gpu, types=tuple(replace(one, type_id=ids[one.name]) for one in gpu.types))

    found, held = (one for one in _findings(facts=with_gpu(renumbered)) if one.is_broken)
    assert str(held) == "gpu-held A40-8Q", "what it has is not its share"
    assert (str(found), found.promised, found.seen) == ("gpu-type A40-8Q", "A40-8Q", "A40-12Q")
    assert "restart-vm" in found.remedy


@pytest.mark.parametrize(
    ("used", "stolen", "verdict"),
    [(0.24, 0.19, BROKEN), (0.24, 0.0, KEPT), (0.95, 0.01, KEPT), (1.5, 0.0, KEPT), (0.79, 0.05, BROKEN)],
)
def test_compute_time_that_neighbours_take_breaks_the_promise(
    used: float, stolen: float, verdict: PromiseVerdict
) -> None:
    values = [one for one in GOOD.values if one[0] not in ("steal_ratio", "share_utilization_ratio")]
    measured = Measured((*values, ("steal_ratio", (), stolen), ("share_utilization_ratio", (), used)))
    (found,) = [one for one in _findings(measured) if str(one) == "compute A40-8Q"]
    assert found.verdict is verdict and found.promised.startswith("25% of the GPU's time, nothing")
    without = Measured(tuple(values), (("steal_ratio", NOT_READABLE, "a test"),))
    (found,) = [one for one in _findings(without) if str(one) == "compute A40-8Q"]
    assert (found.verdict, found.why) == (UNSEEN, "not-readable: a test")


@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [("580.105.08", KEPT), ("580", KEPT), ("580.105", KEPT), ("525", BROKEN), ("58", BROKEN), ("580.105.0", BROKEN)],
)
def test_the_drivers_version_is_that_which_was_asked_for(wanted: str, verdict: PromiseVerdict) -> None:
    request = replace(REQUEST, guest_driver=GuestDriver(version=wanted))
    (found,) = [one for one in _findings(request=request) if str(one) == "guest-driver A40-8Q"]
    assert (found.verdict, found.promised, found.seen) == (verdict, f"driver {wanted}", "580.105.08")


@pytest.mark.parametrize(
    ("product", "edition", "verdict"),
    [
        ("NVIDIA RTX Virtual Workstation", Edition.VWS, KEPT),
        ("NVIDIA Virtual PC", Edition.VPC, KEPT),
        ("NVIDIA vGPU for Compute", Edition.VCS, KEPT),
        ("NVIDIA Virtual Applications", Edition.VWS, BROKEN),
        ("NVIDIA Cloud Gaming", Edition.VWS, UNSEEN),
        (None, Edition.VWS, UNSEEN),
    ],
)
def test_the_licences_product_is_known_to_the_guest_alone(
    product: str | None, edition: Edition, verdict: PromiseVerdict
) -> None:
    request = replace(REQUEST, licence=edition)
    inside = replace(INSIDE, gpus=(replace(INSIDE.gpus[0], product=product),))
    (found,) = [one for one in _findings(inside=inside, request=request) if str(one) == "licence-edition A40-8Q"]
    assert (found.verdict, found.witness) == (verdict, Witness.GUEST)
    (unasked,) = [one for one in _findings(inside=None, request=request) if str(one) == "licence-edition A40-8Q"]
    assert unasked.verdict is UNSEEN and "only the guest can tell" in unasked.why


@pytest.mark.parametrize(
    ("inside", "row"),
    [
        (replace(INSIDE, driver=None), "guest-driver"),
        (replace(INSIDE, gpus=()), "guest-gpus"),
        (replace(INSIDE, gpus=(*INSIDE.gpus, *INSIDE.gpus)), "guest-gpus"),
        (replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-8Q", 8274, "Licensed"),)), "framebuffer A40-8Q"),
        (replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-4Q", 4096, "Licensed"),)), "guest-gpus"),
        (replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-8Q", 4096, "Licensed"),)), "framebuffer A40-8Q"),
        (replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-8Q", 16384, "Licensed"),)), "framebuffer A40-8Q"),
        (replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-8Q", 8192, "Unlicensed (Restricted)"),)), "licence A40-8Q"),
        (replace(INSIDE, cuda_devices=0, cuda_copies=0), "guest-gpus CUDA"),
        (replace(INSIDE, cuda_copies=0), "guest-gpus CUDA"),
        (replace(INSIDE, driver="999.1.1"), "guest-driver A40-8Q"),
    ],
)
def test_what_the_guest_lacks_or_contradicts_is_named(inside: SeenInside, row: str) -> None:
    assert _broken(_findings(inside=inside)) == [(row, Witness.GUEST)]


HOST_SEES = {
    "no driver": Measured(
        GOOD.values[1:], (("guest_driver_info", NOT_READABLE, "the guest's driver is not loaded yet"),)
    ),
    "unlicensed": Measured((GOOD.values[0], ("license_state", ("unlicensed-restricted",), 1), *GOOD.values[2:])),
    "half of the framebuffer": Measured(
        (*GOOD.values[:2], ("framebuffer_size_bytes", (), 4096 * 2**20), *GOOD.values[3:])
    ),
}


@pytest.mark.parametrize("measured", HOST_SEES.values(), ids=HOST_SEES)
@pytest.mark.parametrize("uuid", [None, "GPU-of-another-vm"])
@pytest.mark.parametrize("mib", [8192, 8111, 7680])
def test_no_word_of_a_guest_keeps_a_promise_that_the_host_sees_broken(
    measured: Measured, uuid: str | None, mib: int
) -> None:
    lie = replace(INSIDE, gpus=(InsideGpu("NVIDIA A40-8Q", mib, "Licensed (Expiry: 2999-1-1)", uuid),))
    assert verdict_of(_findings(measured, lie)) is BROKEN


def test_no_word_of_a_guest_proves_what_the_host_cannot_read() -> None:
    assert verdict_of(_findings(None)) is UNSEEN
    old = Measured(GOOD.values[1:], (("guest_driver_info", NOT_MEASURABLE, "Function Not Found"),))
    assert verdict_of(_findings(old)) is UNSEEN


def _pair(inside: SeenInside) -> list[PromiseFinding]:
    leases = [_lease(), _lease(replace(SHARE, function="0000:41:00.5"), 1)]
    found = compare(Promised(vm(), leases), Witnessed(guest=inside), Moment.CHECK)
    return [one for one in found if str(one) == "guest-gpus"]


def test_two_equal_shares_need_two_gpus_and_one_that_is_shown_twice_is_one() -> None:
    gpu = replace(INSIDE.gpus[0], uuid="GPU-1")
    twice = replace(INSIDE, gpus=(gpu, gpu), cuda_devices=2, cuda_copies=2)
    two = replace(twice, gpus=(gpu, replace(gpu, uuid="GPU-2")))
    assert verdict_of(_pair(INSIDE)) is BROKEN
    assert verdict_of(_pair(twice)) is BROKEN
    assert verdict_of(_pair(two)) is KEPT


def test_a_whole_card_is_known_to_the_kernel_and_its_driver_to_the_guest_alone() -> None:
    facts = passthrough_host().facts
    card = facts.gpus[0]
    share = replace(CARD, gpu=card.address, function=card.address)
    held = replace(facts, gpus=(replace(card, holders=(Holder(100, "qemu", "u"),)), *facts.gpus[1:]))
    request = replace(request_of("passthrough", name="web-0"), guest_driver=GuestDriver(version="580"))
    promised = Promised(vm(request), [_lease(share)])
    seen = Witnessed(kernel=held, nvml=[MeasuredShare(_lease(share), None)])
    found = {str(one): one.verdict for one in compare(promised, seen, Moment.CHECK)}
    assert (found["gpu-type passthrough"], found["gpu-held passthrough"]) == (KEPT, KEPT)
    assert found["guest-driver whole card"] is UNSEEN and "framebuffer passthrough" not in found
    inside = SeenInside("580.105.08", (InsideGpu("NVIDIA GeForce RTX 3090", 24576, None),), None, None)
    found = {str(one): one.verdict for one in compare(promised, replace(seen, guest=inside), Moment.CHECK)}
    assert (found["guest-driver whole card"], found["guest-gpus"]) == (KEPT, KEPT)


def _hgx() -> HostFacts:
    """Three H100 of one baseboard whose first two are a partition."""
    facts = passthrough_host(board="nvidia-h100-sxm5-80gb", cards=3).facts
    gpus = tuple(replace(gpu, topology=GpuTopology(module=number + 1)) for number, gpu in enumerate(facts.gpus))
    pair = FabricPartition(3, True, tuple(FabricGpu(module, 18, 18, 25781) for module in (1, 2)))
    return replace(facts, gpus=gpus, fabric_manager=FabricManagerFacts(1, "127.0.0.1:6666", (pair,), ()))


def _peers(
    inside: SeenInside | NotLookedAt, cards: int = 2, facts: HostFacts | NotLookedAt | None = None
) -> list[PromiseFinding]:
    seen = _hgx() if facts is None else facts
    addresses = [gpu.address for gpu in _hgx().gpus[:cards]]
    leases = [_lease(replace(CARD, gpu=one, function=one), index) for index, one in enumerate(addresses)]
    found = compare(Promised(vm(), leases), Witnessed(kernel=seen, guest=inside), Moment.CHECK)
    return [one for one in found if one.row is PromiseRow.GPU_PEERS]


THERE, BACK = PeerCopy(0, 1, mib_s=350_000), PeerCopy(1, 0, mib_s=60_084)
CUDA = SeenInside("580.105.08", (), 2, 2)


@pytest.mark.parametrize(
    ("inside", "verdict", "words"),
    [
        (replace(CUDA, peers=(THERE, BACK)), KEPT, "the slowest at 60084 MiB/s (nvlink)"),
        (replace(CUDA, peers=(THERE, replace(BACK, mib_s=60_083))), KEPT, "60083 MiB/s (pcie)"),
        (replace(CUDA, peers=(THERE, PeerCopy(1, 0, "no peer access"))), BROKEN, "1 to 0; the first: no peer access"),
        (replace(CUDA, peers=(PeerCopy(1, 0, "changed"),)), BROKEN, "1 failed, 1 to 0; the first: changed"),
        (replace(CUDA, peers=(THERE, PeerCopy(5, 0, "changed"))), UNSEEN, "did not try 1 of them, 1 to 0"),
        (replace(CUDA, peers=()), UNSEEN, "did not try 2 of them, 0 to 1, 1 to 0"),
        (CUDA, UNSEEN, "its probe is of an older vgpuctl"),
        (replace(CUDA, cuda_devices=None), UNSEEN, "CUDA cannot be used in it"),
        (NO_CONSENT, UNSEEN, "the tenant does not allow it"),
    ],
)
def test_the_gpus_of_a_partition_copy_to_each_other(
    inside: SeenInside | NotLookedAt, verdict: PromiseVerdict, words: str
) -> None:
    (row,) = _peers(inside)
    assert (row.verdict, row.witness, row.promised) == (verdict, Witness.GUEST, "2 copies between 2 GPUs whole")
    assert words in (row.why if verdict is UNSEEN else row.seen)
    assert bool(row.remedy) is (verdict is BROKEN)


@pytest.mark.parametrize(("problem", "verdict"), [(None, KEPT), ("no peer \x1baccess", BROKEN)])
def test_what_the_probe_writes_of_its_copies_is_what_the_row_reads(
    problem: str | None, verdict: PromiseVerdict
) -> None:
    copies = [{"source": at, "target": 1 - at, "problem": problem, "mib_s": None if problem else 9} for at in (0, 1)]
    report = {"version": 1, "cuda_devices": 2, "cuda_copies": 2, "peer_copies": copies}
    (row,) = _peers(seen_inside(read_report(json.dumps(report).encode())))
    assert row.verdict is verdict and row.seen.isprintable()
    without = json.dumps({**report, "peer_copies": None}).encode()
    assert _peers(seen_inside(read_report(without)))[0].verdict is UNSEEN


def test_one_gpu_a_host_without_a_fabric_and_one_that_is_silent_have_no_peers() -> None:
    inside = replace(CUDA, peers=(THERE, BACK))
    assert not _peers(inside, cards=1)
    assert not _peers(inside, facts=replace(_hgx(), fabric_manager=None))
    assert not _peers(inside, facts=NotLookedAt("gpu1 does not answer"))
