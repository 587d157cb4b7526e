# SPDX-License-Identifier: Apache-2.0
"""Compute time that is asked for: given where a GPU keeps it, refused with the layout's line elsewhere."""

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import a40_host, emulated_a40, host, intel_vf_host, leases_of, passthrough_host, t4_host
from tests.unit.fleet_factory import vm as request_of
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import SchedulerFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.compute import ComputeKind, percent_text
from vgpuctl.model.layout import GpuLayout, GpuMatch, SchedulerPolicy, VgpuLayout
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.sharing.compute import compute_of
from vgpuctl.sharing.declared import UNDECLARED

BEST, EQUAL, FIXED = SchedulerPolicy


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


def kept(policy: str | None, own: Share, leases: Sequence[Lease], most: int) -> Fraction:
    """The part of its GPU that a vGPU gets when all on it want everything, by NVIDIA's words for each policy."""
    if most == 1:
        return Fraction(1)
    if policy == FIXED:
        return Fraction(1, most)
    if policy == EQUAL:
        return Fraction(1, sum(one.share.gpu == own.gpu for one in leases))
    return Fraction(0)


def test_nothing_is_given_that_a_full_gpu_does_not_keep() -> None:
    """Generated hosts, policies and requests: each GPU is filled with others, and the least is looked at."""
    chance = random.Random(41)
    granted = refused = 0
    board = catalog.board("nvidia-a40")
    names = [one.name.removeprefix("NVIDIA ") for one in catalog.types_of(board)]
    for _case in range(60):
        policy = chance.choice([None, BEST, EQUAL, FIXED])
        capacity = with_policy(mixed_a40() if policy == EQUAL and chance.random() < 0.5 else a40_host(), policy)
        leases: list[Lease] = []
        asked: list[tuple[Share, Fraction]] = []
        for number in range(34):
            name = chance.choice(names) if chance.random() < 0.5 else "A40-1Q"
            least = chance.choice([None, 1.0, 3.1, 12.5, 16.6, 25.0, 50.0])
            wanted = name if least is None else f"{name},compute>={least}%"
            given = Fleet([capacity], leases).place(request_of(wanted)) if number < 6 else None
            found = given or Fleet([capacity], leases).place(request_of("A40-1Q"))
            if found is None:
                refused += 1
                continue
            leases += leases_of(found, vm_name=f"vm-{number}")
            if given is not None and least is not None:
                asked.append((given.shares[0], Fraction(str(least)) / 100))
        for share, least_part in asked:
            known = catalog.type_by_name(board, share.profile)
            assert known is not None
            granted += 1
            got = kept(policy, share, leases, known.max_instances)
            assert got >= least_part, (policy, share.profile, float(got), float(least_part))
    assert granted > 30
    assert refused > 30
