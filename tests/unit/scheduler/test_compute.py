# SPDX-License-Identifier: Apache-2.0
"""Compute time that is asked for: given where a GPU keeps it, refused with the layout's line elsewhere."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.proof.compute import BrokenPromise, Promise, check, run
from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import a40_host, emulated_a40, host, intel_vf_host, lease, passthrough_host, t4_host
from tests.unit.fleet_factory import vm as request_of
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import SchedulerFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.compute import ComputeKind, percent_text
from vgpuctl.model.layout import GpuLayout, GpuMatch, SchedulerPolicy, VfLayout, VgpuLayout
from vgpuctl.model.lease import Share
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.sharing.compute import compute_of
from vgpuctl.sharing.declared import UNDECLARED, Declared
from vgpuctl.sharing.function_time import shorter_slice

BEST, EQUAL, FIXED = SchedulerPolicy
HELD = Share("0000:41:00.0", Sharing.VF_PROFILE, "A40-8Q", "0000:41:00.4")


def with_policy(capacity: HostCapacity, policy: str | None) -> HostCapacity:
    scheduler = None if policy is None else SchedulerFacts(policy)
    gpus = tuple(replace(one, scheduler=scheduler) for one in capacity.facts.gpus)
    return replace(capacity, facts=replace(capacity.facts, gpus=gpus))


def mixed_a40(*types: str) -> HostCapacity:
    """A host whose A40 takes vGPUs of mixed sizes. types: that its layout allows, none for any."""
    gpu = replace(emulated_a40(), is_mixed=True)
    return replace(host("gpu1", gpu), declared=(GpuLayout(GpuMatch(), VgpuLayout(types=types), "gpu1.yml:3"),))


@pytest.mark.parametrize(
    ("wanted", "capacity"),
    [
        ("A40-8Q,compute>=16.6%", with_policy(a40_host(), FIXED)),
        ("A40-8Q,compute=guaranteed", with_policy(a40_host(), FIXED)),
        ("A40-8Q,compute=guaranteed,compute>=16%", with_policy(a40_host(), FIXED)),
        ("A40-8Q,compute=at-least", with_policy(a40_host(), EQUAL)),
        ("A40-8Q,compute>=16.6%", with_policy(a40_host(), EQUAL)),
        ("A40-8Q,compute=best-effort", with_policy(a40_host(), BEST)),
        ("A40-8Q,compute=best-effort", with_policy(a40_host(), None)),
        ("A40-48Q,compute=guaranteed,compute>=100%", with_policy(a40_host(), BEST)),
        ("memory>=8GiB,compute>=25%", with_policy(a40_host(), FIXED)),
        ("compute>=50%", with_policy(t4_host(), EQUAL)),
        ("passthrough,compute=guaranteed,compute>=100%", passthrough_host()),
        ("A40-16Q,compute>=33%", with_policy(mixed_a40("A40-16Q", "A40-24Q"), EQUAL)),
    ],
)
def test_a_gpu_that_keeps_it_is_taken(wanted: str, capacity: HostCapacity) -> None:
    placement = Fleet([capacity]).place(request_of(wanted))
    assert placement is not None, explain(request_of(wanted), [capacity], [])


@pytest.mark.parametrize(
    ("wanted", "capacity", "said", "remedy"),
    [
        ("A40-8Q,compute>=16%", with_policy(a40_host(), BEST), "no part of the GPU's time", "policy: equal-share"),
        ("A40-8Q,compute=guaranteed", with_policy(a40_host(), BEST), "scheduler best-effort", "policy: fixed-share"),
        ("A40-8Q,compute=guaranteed", with_policy(a40_host(), EQUAL), "at least 16.6%", "policy: fixed-share"),
        ("A40-8Q,compute>=16.7%", with_policy(a40_host(), FIXED), "16.7% are asked for", "a larger type"),
        ("A40-8Q,compute>=1%", with_policy(a40_host(), None), "does not tell the scheduler", "policy: equal-share"),
        ("A40-16Q,compute>=33%", with_policy(mixed_a40(), EQUAL), "vGPUs of mixed sizes", "ask for less"),
        ("A40-16Q,compute=guaranteed", with_policy(mixed_a40(), EQUAL), "is asked for", "equal sizes alone"),
        ("vf,compute>=5%", intel_vf_host(), "nobody documents", "a whole card"),
    ],
)
def test_another_says_what_it_promises_and_what_would_promise_more(
    wanted: str, capacity: HostCapacity, said: str, remedy: str
) -> None:
    answer = explain(request_of(wanted), [capacity], [])
    assert not isinstance(answer, Placement)
    assert {one.code for one in answer} == {"compute-promise"}
    assert said in answer[0].reason
    assert remedy in (answer[0].remedy or "")


def test_smaller_vgpus_that_are_there_already_take_their_part() -> None:
    """From before the layout allowed larger types alone: promised by the store, then seen by the host."""
    capacity = with_policy(mixed_a40("A40-16Q", "A40-24Q"), EQUAL)
    wanted = request_of("A40-16Q,compute>=30%")
    assert Fleet([capacity]).place(wanted) is not None
    small = replace(HELD, profile="A40-2Q", framebuffer_mib=2048)
    answer = explain(wanted, [capacity], [lease("gpu1", small)])
    assert not isinstance(answer, Placement)
    assert answer[0].code == "compute-promise" and "larger types alone" in (answer[0].remedy or "")
    (gpu,) = capacity.facts.gpus
    type_id = next(one.type_id for one in gpu.types if one.name.endswith("A40-2Q"))
    seen = replace(gpu, vfs=(replace(gpu.vfs[0], current_type=type_id), *gpu.vfs[1:]))
    entry = Declared(capacity.declared[0])
    assert compute_of(replace(HELD, profile="A40-16Q"), seen, entry).promised == Fraction(1, 24)
    assert compute_of(replace(HELD, profile="A40-16Q"), gpu, entry).promised == Fraction(1, 3)


def test_the_line_of_the_layout_is_named() -> None:
    (answer,) = explain(request_of("A40-16Q,compute>=5%"), [with_policy(mixed_a40(), BEST)], [])  # type: ignore[misc]
    assert "gpu1.yml:3" in (answer.remedy or "")


def test_of_two_hosts_the_one_that_keeps_it_is_taken_for_it_alone() -> None:
    fleet = Fleet([with_policy(a40_host("a"), BEST), with_policy(a40_host("b"), FIXED)])
    wanted = ("A40-8Q", "A40-8Q,compute>=10%", "A40-8Q")
    assert [one.host for one in (fleet.place(request_of(each)) for each in wanted) if one] == ["a", "b", "a"]


def test_a_gpu_instance_is_guaranteed_its_slices() -> None:
    gpu = EmulatedGpu(catalog.board("nvidia-a100-pcie-40gb"), "0000:41:00.0", "vf-profile", vf_count=16).facts()
    found = compute_of(Share(gpu.address, Sharing.VF_PROFILE, "A100-3-20C", "0000:41:00.4"), gpu, UNDECLARED)
    assert (found.kind, found.part) == (ComputeKind.GUARANTEED, Fraction(3, 7))
    shared = EmulatedGpu(catalog.board("nvidia-rtx-pro-6000-blackwell-server"), gpu.address, "vf-profile", vf_count=48)
    found = compute_of(Share(gpu.address, Sharing.VF_PROFILE, "DC-1-8Q", "0000:41:00.4"), shared.facts(), UNDECLARED)
    assert (found.kind, found.promised) == (ComputeKind.BEST_EFFORT, Fraction(0))


@pytest.mark.parametrize(
    ("percent", "text"), [(25.0, "25%"), (100 / 6, "16.6%"), (100 / 7 * 3, "42.8%"), (100.0, "100%")]
)
def test_no_promise_reads_as_more_than_it_is(percent: float, text: str) -> None:
    assert percent_text(percent) == text


def test_nothing_is_given_that_a_full_gpu_does_not_keep() -> None:
    found = run(40, seed=41)
    assert found["given"] >= 40
    assert found["refused"] > 20


@pytest.mark.parametrize("promise", [Promise(HELD, Fraction(1, 2), False), Promise(HELD, Fraction(0), True)])
def test_the_proof_sees_a_promise_that_is_not_kept(promise: Promise) -> None:
    two = [lease("gpu1", HELD), lease("gpu1", HELD, vm_name="b")]
    equal = with_policy(a40_host(), EQUAL)
    check(Promise(HELD, Fraction(1, 2), False), equal, two)
    with pytest.raises(BrokenPromise):
        check(promise, equal, [*two, lease("gpu1", HELD, vm_name="c")])
    with pytest.raises(BrokenPromise):
        check(promise, with_policy(a40_host(), BEST), two)


SLICES = (("exec_quantum_ms", "20"), ("preempt_timeout_us", "5000"))


SLICED = VfLayout(3, SLICES, SLICES)


def xe_host(
    *, declared: VfLayout | None, now: str = "exec_quantum_ms=20,preempt_timeout_us=5000", **other: str
) -> HostCapacity:
    """A host with three VFs of Intel's. now: what every function has; other: of single ones, `vf0` or `pf`."""
    found = intel_vf_host(vfs=3)
    (gpu,) = found.facts.gpus
    vfs = tuple(replace(one, vgpu_params=other.get(f"vf{one.number}", now)) for one in gpu.vfs)
    facts = replace(found.facts, gpus=(replace(gpu, vfs=vfs, pf_params=other.get("pf", now)),))
    entries = () if declared is None else (GpuLayout(GpuMatch(), declared, "gpu1.yml:3"),)
    return replace(found, facts=facts, declared=entries)


def test_a_vf_has_its_slice_of_a_round_in_which_all_others_overrun() -> None:
    capacity = xe_host(declared=SLICED)
    placement = Fleet([capacity]).place(request_of("vf,compute>=21%"))
    assert placement is not None
    (gpu,) = capacity.facts.gpus
    found = compute_of(placement.shares[0], gpu, Declared(capacity.declared[0]))
    assert (found.kind, found.promised) == (ComputeKind.AT_LEAST, Fraction(20, 20 + 3 * 25))
    assert "20 ms of a round of 95 ms" in str(found)


@pytest.mark.parametrize(
    ("capacity", "wanted", "said"),
    [
        (xe_host(declared=None), "vf,compute>=1%", "does not declare"),
        (xe_host(declared=VfLayout(3, SLICES)), "vf,compute>=1%", "does not declare"),
        (xe_host(declared=VfLayout(3, SLICES, SLICES[:1])), "vf,compute>=1%", "does not declare"),
        (
            xe_host(declared=SLICED, vf2="exec_quantum_ms=0,preempt_timeout_us=9"),
            "vf,compute>=1%",
            "unlimited",
        ),
        (
            xe_host(declared=SLICED, pf="exec_quantum_ms=9,preempt_timeout_us=0"),
            "vf,compute>=1%",
            "unlimited",
        ),
        (
            xe_host(declared=SLICED, vf1="exec_quantum_ms=differs,preempt_timeout_us=9"),
            "vf,compute>=1%",
            "unlimited",
        ),
        (
            xe_host(declared=VfLayout(3, SLICES, (*SLICES, ("sched_priority", "high")))),
            "vf,compute>=1%",
            "priority high",
        ),
        (xe_host(declared=SLICED), "vf,compute=guaranteed", "guaranteed is asked for"),
        (xe_host(declared=SLICED), "vf,compute>=22%", "22% are asked for"),
        (
            xe_host(declared=SLICED, vf1="exec_quantum_ms=60,preempt_timeout_us=9"),
            "vf,compute>=20%",
            "14.8%",
        ),
        (xe_host(declared=VfLayout(5, SLICES, SLICES)), "vf,compute>=20%", "13.7%"),
    ],
)
def test_a_vf_promises_nothing_that_a_function_can_take(capacity: HostCapacity, wanted: str, said: str) -> None:
    answer = explain(request_of(wanted), [capacity], [])
    assert not isinstance(answer, Placement)
    assert {one.code for one in answer} == {"compute-promise"} and said in answer[0].reason


@pytest.mark.parametrize("own", ["exec_quantum_ms=21", "exec_quantum_ms=0", "preempt_timeout_us=5001"])
def test_no_vm_gets_a_longer_slice_than_its_neighbours_were_promised_beside(own: str) -> None:
    name, _, value = own.partition("=")
    capacity = xe_host(declared=SLICED)
    asking = replace(request_of("vf"), vgpu_params=((name, value),))
    answer = explain(asking, [capacity], [])
    assert not isinstance(answer, Placement)
    assert answer[0].code == "vgpu-params" and "gpu1.yml:3" in answer[0].reason
    assert Fleet([capacity]).place(replace(asking, vgpu_params=((name, "3"),))) is not None
    assert Fleet([xe_host(declared=VfLayout(3))]).place(asking) is not None


LONG, UNLIMITED, SHORT = "exec_quantum_ms=40", "exec_quantum_ms=0", "exec_quantum_ms=5"


@pytest.mark.parametrize(
    ("vfs", "own", "slice_ms"),
    [
        ((LONG, SHORT, UNLIMITED), (0,), 5),
        ((UNLIMITED, LONG, LONG), (0,), 40),
        ((SHORT, LONG, SHORT), (0,), "5 ms already"),
        ((SHORT, LONG, LONG), (0,), "5 ms already"),
        ((SHORT, LONG, SHORT), (0, 1), 5),
        ((SHORT, UNLIMITED, LONG), (0, 1), 40),
        ((SHORT, UNLIMITED, LONG), (0,), "5 ms already"),
        ((LONG, SHORT, UNLIMITED), (0, 1), "no other VF"),
        ((LONG, UNLIMITED, UNLIMITED), (0,), "no other VF"),
        (("", SHORT, SHORT), (0,), "no time slice"),
        ((LONG, "exec_quantum_ms=differs", SHORT), (0, 1), "no time slice"),
    ],
)
def test_a_vm_that_takes_time_is_brought_down_to_its_neighbours(
    vfs: tuple[str, ...], own: tuple[int, ...], slice_ms: int | str
) -> None:
    capacity = xe_host(declared=None, **{f"vf{number}": text for number, text in enumerate(vfs)})
    (gpu,) = capacity.facts.gpus
    found = shorter_slice([gpu.vfs[number].address for number in own], gpu)
    assert slice_ms in found if isinstance(slice_ms, str) and isinstance(found, str) else found == slice_ms
