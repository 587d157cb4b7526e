# SPDX-License-Identifier: Apache-2.0
"""From any layout of a board to any other: a host takes the steps, they lead there, and the undo leads back."""

import itertools
from collections.abc import Sequence
from typing import get_args

import pytest

from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from vgpuctl.agent.wire.facts import GpuInstance
from vgpuctl.agent.wire.steps import BindDriver, ResetGpu, SetMigMode, SetServiceActive
from vgpuctl.model.layout import (
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    MigLayout,
    MigVgpuLayout,
    OffLayout,
    OwnLayout,
    PassthroughLayout,
    SchedulerLayout,
    SchedulerPolicy,
    SizeMode,
    VfLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.planner.layout.manifest import manifest_after, manifest_of
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl.planner.layout.result import HostPlan

EQUAL_SHARE = SchedulerLayout(SchedulerPolicy.EQUAL_SHARE, 2000)
FIXED_SHARE = SchedulerLayout(SchedulerPolicy.FIXED_SHARE)
BOARDS: dict[str, list[Layout]] = {
    "nvidia-t4": [
        PassthroughLayout("vfio-pci"),
        PassthroughLayout(),
        VgpuLayout(),
        VgpuLayout(scheduler=EQUAL_SHARE, shares=(("T4-4Q", 2),)),
        OffLayout(),
    ],
    "nvidia-a40": [
        PassthroughLayout("vfio-pci"),
        VgpuLayout(),
        VgpuLayout(True, SizeMode.MIXED, EQUAL_SHARE, ("A40-8Q", "A40-4Q"), (("A40-8Q", 2), ("A40-4Q", 1))),
        VgpuLayout(size_mode=SizeMode.EQUAL, scheduler=FIXED_SHARE, shares=(("A40-8Q", 3),)),
        OffLayout(),
        OwnLayout(),
    ],
    "nvidia-a100-pcie-40gb": [
        PassthroughLayout("vfio-pci"),
        VgpuLayout(),
        VgpuLayout(size_mode=SizeMode.EQUAL, shares=(("A100-8C", 2),)),
        MigLayout(),
        MigLayout((WantedInstance("3g.20gb", 4), WantedInstance("2g.10gb"), WantedInstance("1g.5gb"))),
        MigLayout(tuple(WantedInstance("1g.5gb") for _ in range(7))),
        MigLayout((WantedInstance("3g.20gb"), WantedInstance("3g.20gb", compute=(2, 1)))),
        MigLayout((WantedInstance("3g.20gb", 4, (1, 1, 1)), WantedInstance("2g.10gb", None, (1,)))),
        MigVgpuLayout((WantedInstance("3g.20gb"), WantedInstance("2g.10gb"))),
        MigVgpuLayout((WantedInstance("2g.10gb", 4), WantedInstance("1g.5gb")), shares=(("A100-2-10C", 1),)),
        OffLayout(),
        OwnLayout(),
        OwnLayout((WantedInstance("3g.20gb", 4), WantedInstance("2g.10gb"))),
    ],
    "nvidia-rtx-pro-6000-blackwell-server": [
        VgpuLayout(),
        MigVgpuLayout((WantedInstance("2g.48gb+gfx"), WantedInstance("1g.24gb+gfx")), SizeMode.MIXED, EQUAL_SHARE),
        MigVgpuLayout((WantedInstance("1g.24gb+gfx"),) * 4, SizeMode.EQUAL),
        PassthroughLayout(),
    ],
    "nvidia-rtx-pro-5000-blackwell": [
        MigLayout((WantedInstance("1g.24gb"), WantedInstance("1g.24gb"))),
        MigLayout((WantedInstance("2g.48gb+gfx"),)),
        MigLayout((WantedInstance("1g.24gb+me"), WantedInstance("1g.24gb-me"))),
        OffLayout(),
    ],
    "intel-flex-170": [VfLayout(4), VfLayout(7), PassthroughLayout("vfio-pci"), OffLayout()],
}
MODES: list[Layout] = [
    VgpuLayout(size_mode=mode, scheduler=scheduler, shares=shares)
    for mode in (None, *SizeMode)
    for scheduler in (None, EQUAL_SHARE, FIXED_SHARE, SchedulerLayout(SchedulerPolicy.BEST_EFFORT))
    for shares in ((), (("A40-8Q", 2),))
    if (mode, scheduler) != (SizeMode.MIXED, FIXED_SHARE)
]
INSTANCE_MODES: list[Layout] = [
    MigVgpuLayout((WantedInstance(profile),) * 2, mode, scheduler)
    for profile in ("1g.24gb+gfx", "2g.48gb+gfx")
    for mode in (None, *SizeMode)
    for scheduler in (None, EQUAL_SHARE, FIXED_SHARE)
    if (mode, scheduler) != (SizeMode.MIXED, FIXED_SHARE)
]
WAYS = [
    pytest.param(board, before, after, id=f"{board}-{first}-{second}")
    for board, layouts in BOARDS.items()
    for (first, before), (second, after) in itertools.permutations(enumerate(layouts), 2)
]


def declare(layout: Layout) -> HostLayout:
    entry = GpuLayout(GpuMatch(), layout, "host_vars/gpu1.yml:4")
    return HostLayout((entry,), stop_services=("dcgm.service", "nvsm.service"), hugepages=((2048, 8),))


def reach(host: SimulatedHost, layout: HostLayout) -> list[HostPlan]:
    """Plan, take the steps and plan again until nothing is left; shares may need a second round."""
    plans: list[HostPlan] = []
    for _ in range(4):
        plan = plan_host(layout, host.facts(), made=host.shares())
        assert not plan.obstacles
        if not plan.steps:
            break
        assert not plan.is_in_layout
        plans.append(plan)
        manifest = manifest_after(layout, host.facts(), [planned.step for planned in plan.steps])
        for planned in plan.steps:
            host.take(planned.step)
        assert manifest in (None, manifest_of(layout, host.facts()))
        is_the_hosts = [isinstance(one.step, BindDriver) or getattr(one.step, "start", 0) is None for one in plan.steps]
        assert manifest is not None or any(is_the_hosts)
        assert plan.later or not plan_host(layout, host.facts(), made=host.shares()).steps
    assert plan_host(layout, host.facts(), made=host.shares()) == HostPlan()
    assert host.services["dcgm.service"]
    return plans


def test_the_boards_hold_the_layouts_that_they_begin_with() -> None:
    assert {type(layout) for layouts in BOARDS.values() for layout in layouts} == set(get_args(Layout))


@pytest.mark.parametrize(("board", "before", "after"), WAYS)
def test_every_layout_leads_to_every_other_and_the_undo_leads_back(board: str, before: Layout, after: Layout) -> None:
    host = SimulatedHost(SimulatedGpu(board))
    reach(host, declare(before))
    start, shares = host.facts(), host.shares()
    for plan in reversed(reach(host, declare(after))):
        for step in plan.undo:
            host.take(step)
    again = host.facts()
    before_gpu, again_gpu = start.gpus[0], again.gpus[0]
    assert (again_gpu.driver, len(again_gpu.vfs)) == (before_gpu.driver, len(before_gpu.vfs))
    assert (again_gpu.heterogeneous, again_gpu.scheduler) == (before_gpu.heterogeneous, before_gpu.scheduler)
    if before_gpu.mig and again_gpu.mig:
        assert again_gpu.mig.current == before_gpu.mig.current
        assert _profiles(again_gpu.mig.instances) == _profiles(before_gpu.mig.instances)
    assert again.services == start.services
    assert host.shares() == shares


@pytest.mark.parametrize("pending", [True, False])
def test_a_pending_mig_mode_is_committed_by_a_reset_of_its_own(pending: bool) -> None:
    gpu = SimulatedGpu("nvidia-a100-pcie-40gb")
    host = SimulatedHost(gpu)
    if not pending:
        reach(host, declare(MigVgpuLayout((WantedInstance("3g.20gb"),))))
    gpu.mig_pending = pending
    after: Layout = MigLayout((WantedInstance("7g.40gb"),)) if pending else VgpuLayout()
    (plan,) = reach(host, declare(after))
    kinds = [planned.step for planned in plan.steps if isinstance(planned.step, (ResetGpu, SetMigMode))]
    assert kinds == [ResetGpu(gpu.address)]
    assert plan.needs_reset


def test_a_pending_change_that_nobody_declared_is_called_off() -> None:
    gpu = SimulatedGpu("nvidia-a100-pcie-40gb")
    host = SimulatedHost(gpu)
    reach(host, declare(VgpuLayout()))
    gpu.mig_pending = True
    (plan,) = reach(host, declare(VgpuLayout()))
    stop, start = SetServiceActive("dcgm.service", False), SetServiceActive("dcgm.service", True)
    assert [planned.step for planned in plan.steps] == [stop, SetMigMode(gpu.address, False), start]
    assert not plan.needs_reset


def _profiles(instances: Sequence[GpuInstance]) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((one.profile, one.compute) for one in instances)


@pytest.mark.parametrize(
    ("board", "layouts"),
    [("nvidia-a40", MODES), ("nvidia-rtx-pro-6000-blackwell-server", INSTANCE_MODES)],
    ids=["a40", "instances"],
)
def test_from_every_size_mode_and_scheduler_to_every_other_the_driver_takes_each_step(
    board: str, layouts: list[Layout]
) -> None:
    """A mode that the layout leaves and contradicts by its other key is named, and nothing is tried."""
    blocked = 0
    for before, after in itertools.permutations(layouts, 2):
        host = SimulatedHost(SimulatedGpu(board))
        reach(host, declare(before))
        plan = plan_host(declare(after), host.facts(), made=host.shares())
        if plan.obstacles:
            assert [one.code for one in plan.obstacles] == ["mixed-with-fixed-share"]
            assert not plan.is_in_layout and not any(one.gpu for one in plan.steps)
            assert after.size_mode is None or after.scheduler is None  # type: ignore[union-attr]
            blocked += 1
            continue
        reach(host, declare(after))
    assert 0 < blocked < len(layouts) ** 2 / 4
