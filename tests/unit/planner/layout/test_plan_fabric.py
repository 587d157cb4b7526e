# SPDX-License-Identifier: Apache-2.0
"""The plan for Fabric Manager's mode: steps, what is pending, who is in the way, and boards without the mode."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import host_facts
from vgpuctl import catalog
from vgpuctl.agent.wire.fabric import FabricGpu, FabricManagerFacts, FabricPartition
from vgpuctl.agent.wire.facts import GpuTopology, Holder, HostFacts, NvLinks, UnreadPart
from vgpuctl.agent.wire.steps import RestartFabricManager, SetFabricMode, Step
from vgpuctl.model.layout import FabricLayout, FabricMode, HostLayout
from vgpuctl.planner.layout.manifest import manifest_of
from vgpuctl.planner.layout.plan import plan_host

GPU = "0000:41:00.0"
ORIGIN = "host_vars/hgx.yml:9"
SHARED = HostLayout(fabric=FabricLayout(FabricMode.SHARED), places={"fabric.mode": ORIGIN})
VGPU = HostLayout(fabric=FabricLayout(FabricMode.VGPU))
WRITE, RESTART, BACK = SetFabricMode(1, True), RestartFabricManager(), SetFabricMode(0, False)
RUNS: dict[str, Any] = {"is_active": True, "needs_restart": False}


def hgx(board: str = "nvidia-h100-sxm5-80gb", *, mode: int | None = 0, **manager: Any) -> HostFacts:
    gpu = EmulatedGpu(catalog.board(board), GPU, "vf-profile").facts()
    address = "127.0.0.1:6666"
    found = FabricManagerFacts(mode, address, **{"keeps_partitions": bool(mode), **RUNS, **manager})
    return replace(host_facts([gpu]), fabric_manager=found, services=())


def steps_of(layout: HostLayout, facts: HostFacts) -> tuple[Step, ...]:
    return tuple(planned.step for planned in plan_host(layout, facts).steps)


def held(facts: HostFacts) -> HostFacts:
    return replace(facts, gpus=(replace(facts.gpus[0], holders=(Holder(4711, "qemu-system-x86"),)),))


def test_a_mode_is_written_and_then_read_which_needs_leave_and_has_its_way_back() -> None:
    plan = plan_host(SHARED, hgx())
    assert [str(one) for one in plan.differences] == [
        "host: fabric-mode is bare (FABRIC_MODE=0, FABRIC_MODE_RESTART=0), "
        "declared shared (FABRIC_MODE=1, FABRIC_MODE_RESTART=1)"
    ]
    write, restart = plan.steps
    assert (write.step, restart.step) == (WRITE, RESTART)
    assert not write.disrupts and "NVLinks" in restart.disrupts
    assert plan.undo == (BACK, RESTART, BACK)


@pytest.mark.parametrize(
    ("layout", "facts", "steps", "subjects"),
    [
        (HostLayout(), hgx(), (), []),
        (SHARED, hgx(mode=1), (), []),
        (SHARED, hgx(mode=1, keeps_partitions=False), (WRITE, RESTART), ["fabric-mode"]),
        (SHARED, hgx(mode=None), (WRITE, RESTART), ["fabric-mode"]),
        (SHARED, hgx(mode=7), (WRITE, RESTART), ["fabric-mode"]),
        (SHARED, hgx(mode=1, needs_restart=True), (RESTART,), ["fabric-manager"]),
        (SHARED, hgx(mode=1, needs_restart=None), (), []),
        (SHARED, hgx(mode=1, is_active=False), (RESTART,), ["fabric-manager"]),
        (SHARED, held(hgx(mode=1, is_active=False)), (RESTART,), ["fabric-manager"]),  # nothing is lost by a start
        (SHARED, hgx(needs_restart=True), (WRITE, RESTART), ["fabric-mode", "fabric-manager"]),
        (SHARED, replace(hgx(is_active=None), services=None), (WRITE,), ["fabric-mode"]),
        (HostLayout(fabric=FabricLayout(FabricMode.BARE)), hgx(mode=2), (BACK, RESTART), ["fabric-mode"]),
    ],
)
def test_only_what_differs_is_planned(
    layout: HostLayout, facts: HostFacts, steps: tuple[Step, ...], subjects: list[str]
) -> None:
    plan = plan_host(layout, facts)
    assert tuple(planned.step for planned in plan.steps) == steps
    assert [one.subject for one in plan.differences] == subjects and not plan.obstacles


def test_one_that_does_not_run_is_started_without_leave() -> None:
    (planned,) = plan_host(SHARED, hgx(mode=1, is_active=False, needs_restart=None)).steps
    assert not planned.disrupts


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (held(hgx()), f"{GPU} is held by qemu-system-x86 (pid 4711)"),
        (held(hgx(mode=1, needs_restart=True)), "pid 4711"),
        (
            hgx(mode=2, partitions=(FabricPartition(3, True, (FabricGpu(1, 18, 18, 1), FabricGpu(3, 18, 18, 1))),)),
            "partition 3 is active (modules 1, 3)",
        ),
    ],
)
def test_nothing_is_written_under_a_vm_or_an_active_partition(facts: HostFacts, words: str) -> None:
    plan = plan_host(SHARED, facts)
    assert not plan.steps and plan.differences
    (obstacle,) = plan.obstacles
    assert (obstacle.code, obstacle.origin) == ("fabric-in-use", ORIGIN) and words in obstacle.reason


def test_a_host_as_declared_is_so_with_its_vms() -> None:
    assert plan_host(SHARED, held(hgx(mode=1))).is_in_layout


def volta() -> HostFacts:
    facts = hgx("nvidia-v100-sxm2-32gb")
    links = (NvLinks((0, 1), True, peer_kind="switch"),)
    return replace(facts, gpus=(replace(facts.gpus[0], topology=GpuTopology(nvlinks=links)),))


@pytest.mark.parametrize(
    ("layout", "facts", "code"),
    [
        (SHARED, hgx("nvidia-a40"), "no-nvswitch"),
        (SHARED, replace(hgx("nvidia-a40"), fabric_manager=None), "no-nvswitch"),
        (SHARED, replace(hgx(), fabric_manager=None), "no-fabric-manager"),
        (SHARED, hgx(is_active=None), "no-fabric-manager"),
        (VGPU, volta(), "fabric-mode-unsupported"),
    ],
)
def test_a_host_that_cannot_have_the_mode_says_why(layout: HostLayout, facts: HostFacts, code: str) -> None:
    plan = plan_host(layout, facts)
    assert [one.code for one in plan.obstacles] == [code] and not plan.steps
    assert plan.obstacles[0].remedy


def test_hgx_2_can_be_shared_and_so_can_a_board_that_the_catalogue_does_not_know() -> None:
    assert steps_of(SHARED, volta()) == (WRITE, RESTART)
    facts = hgx()
    unknown = replace(facts, gpus=(replace(facts.gpus[0], device_id="ffff"),))
    assert steps_of(SHARED, unknown) == (WRITE, RESTART)


def test_one_that_was_not_read_is_a_note() -> None:
    facts = replace(hgx(), fabric_manager=None, unread=(UnreadPart("fabric_manager", "EIO"),))
    plan = plan_host(SHARED, facts)
    assert plan.is_in_layout and plan.notes == ("Fabric Manager was not read: EIO",)
    assert plan.unless_unread(plan.is_in_layout) is None and plan.unless_unread(False) is False
    assert plan_host(SHARED, held(hgx(mode=1))).unless_unread(True) is True


def test_a_boot_takes_the_same_steps() -> None:
    assert [one.step for one in manifest_of(SHARED, hgx(mode=1)).steps] == [WRITE, RESTART]
    assert not manifest_of(HostLayout(), hgx(mode=1)).steps
    without_systemd = replace(hgx(mode=1, is_active=None), services=None)
    assert [one.step for one in manifest_of(SHARED, without_systemd).steps] == [WRITE]
