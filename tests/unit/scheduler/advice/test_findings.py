# SPDX-License-Identifier: Apache-2.0
"""VMs that are named: framebuffer that runs out, and contention."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fleet_factory import a40_host, intel_vf_host, lease
from tests.unit.scheduler.advice.measured_factory import GIB, Curve, FleetBuilder
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.faults import FaultId
from vgpuctl.model.lease import LeaseState, Share
from vgpuctl.scheduler.advice.contention import find_unmeasured
from vgpuctl.scheduler.advice.everything import find_all


def test_a_leak_is_named_long_before_the_framebuffer_is_full() -> None:
    dice = random.Random(1)
    noise = [dice.gauss(0, 0.05) for _ in range(200)]

    def leak(before: int) -> float:
        return (2 + (120 - before) / 60 * 1.5 + noise[before]) * GIB

    fleet = FleetBuilder(a40_host()).vm("leaks", "A40-8Q", framebuffer=leak).build()
    (found,) = find_all(fleet)
    assert (found.fault, found.tenant, found.vm) == (FaultId.FRAMEBUFFER_RUNS_OUT, "acme", "leaks")
    assert found.figures["exhaustion_seconds"] == pytest.approx(2 * 3600, rel=0.1)
    assert (
        found.figures["earliest_exhaustion_seconds"]
        < found.figures["exhaustion_seconds"]
        < found.figures["latest_exhaustion_seconds"]
    )
    assert "acme/leaks uses 62%" in found.text


@pytest.mark.parametrize(
    ("curve", "minutes"),
    [
        (lambda _before: 7.9 * GIB, 120),
        (lambda before: (1 if before > 100 else 5) * GIB, 120),
        (lambda before: before / 60 * GIB, 120),
        (lambda before: (2 + (120 - before) / 60 * 0.02) * GIB, 120),
        (lambda before: (2 + (5 - before)) * GIB, 5),
        (lambda before: (5 if before < 8 else 5 - (before - 8) / 4) * GIB, 20),
    ],
    ids=["full-but-flat", "one-step", "falls", "too-slow", "too-short", "has-loaded"],
)
def test_what_does_not_grow_for_sure_is_not_named(curve: Curve, minutes: int) -> None:
    fleet = FleetBuilder(a40_host()).vm("calm", "A40-8Q", framebuffer=curve, minutes=minutes).build()
    assert find_all(fleet) == []


def test_the_noisy_neighbour_is_named_and_not_its_victims() -> None:
    fleet = (
        FleetBuilder(a40_host())
        .vm("noisy", "A40-24Q", use=lambda _b: 0.8, steal=lambda _b: 0.0, promised=0.5)
        .vm("victim", "A40-24Q", use=lambda _b: 0.18, steal=lambda _b: 0.3, promised=0.5)
        .build()
    )
    (found,) = find_all(fleet)
    assert (found.fault, found.vm, found.victims) == (FaultId.SHARE_STOLEN, "noisy", ("acme/victim",))
    assert found.figures["contention_ratio"] == pytest.approx(0.3)
    assert "promised 50%" in found.text


@pytest.mark.parametrize(
    ("steal", "minutes"), [(lambda _b: 0.03, 60), (lambda b: 0.3 if b < 4 else 0.0, 60), (lambda _b: 0.3, 5)]
)
def test_little_short_and_unmeasured_steal_is_not_contention(steal: Curve, minutes: int) -> None:
    builder = FleetBuilder(a40_host())
    builder.vm("noisy", "A40-24Q", use=lambda _b: 0.8, promised=0.5, minutes=minutes)
    builder.vm("victim", "A40-24Q", use=lambda _b: 0.18, steal=steal, promised=0.5, minutes=minutes)
    assert find_all(builder.build()) == []


def test_neighbours_on_vfs_are_named_as_not_measured_and_others_are_not() -> None:
    vfs = intel_vf_host("gpu1")
    gpu = vfs.facts.gpus[0]
    shares = [Share(gpu.address, Sharing.VF, "vf", vf.address) for vf in gpu.vfs]
    alone = lease("gpu2", Share("0000:81:00.0", Sharing.VF, "vf", "0000:81:00.1"), vm_name="alone")
    both = [lease("gpu1", share, vm_name=name) for share, name in zip(shares, ("b", "a", "a", "c"), strict=False)]
    gone = replace(both[3], state=LeaseState.RESERVED)
    vgpus = FleetBuilder(a40_host("gpu3")).vm("x", "A40-8Q").vm("y", "A40-8Q").build().leases
    (found,) = find_unmeasured([alone, *both[:3], gone, *vgpus])
    assert (found.host, found.gpu, found.vms) == ("gpu1", gpu.address, ("acme/a", "acme/b"))
    assert "no reading of what a VF uses" in found.why


@given(st.lists(st.tuples(st.floats(-1, 2), st.floats(-1, 2)), min_size=60, max_size=60))
@settings(max_examples=30, deadline=None)
def test_any_series_gives_findings_whose_parts_are_parts(values: list[tuple[float, float]]) -> None:
    builder = FleetBuilder(a40_host())
    for name in ("a", "b"):
        builder.vm(
            name,
            "A40-24Q",
            use=lambda b: values[b % 60][0],
            steal=lambda b: values[b % 60][1],
            promised=0.5,
            framebuffer=lambda b: values[b % 60][0] * 12 * GIB,
        )
    for one in find_all(builder.build()):
        assert one.figures.get("contention_ratio", 0.5) <= 2
        assert one.figures.get("exhaustion_seconds", 0.0) >= 0


def test_equal_fleets_give_equal_findings() -> None:
    def build() -> list[object]:
        builder = FleetBuilder(a40_host())
        builder.vm("noisy", "A40-24Q", use=lambda _b: 0.8, promised=0.5)
        builder.vm("victim", "A40-24Q", use=lambda _b: 0.18, steal=lambda _b: 0.3, promised=0.5)
        return list(find_all(builder.build()))

    assert build() == build()
