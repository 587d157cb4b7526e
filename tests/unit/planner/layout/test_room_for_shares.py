# SPDX-License-Identifier: Apache-2.0
"""Room for the shares of a layout is judged on the GPU as it will be."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import lease
from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from tests.unit.planner.layout.test_plan_host import GPU, T4, declare
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.layout import SizeMode, VgpuLayout
from vgpuctl.model.lease import Share
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl.planner.layout.result import Phase


def test_what_stays_is_told_before_idle_shares_make_way_for_what_has_no_room() -> None:
    ours, others = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"
    gpu = SimulatedGpu(T4)
    gpu.mdevs = {ours: (GPU, "230"), others: (GPU, "230")}
    facts = SimulatedHost(gpu).facts()
    (card,) = facts.gpus
    taken = [one if one.framebuffer_mib == 1024 else replace(one, creatable=0) for one in card.types]
    facts = replace(facts, gpus=(replace(card, types=tuple(taken)),))
    plan = plan_host(declare(VgpuLayout(shares=(("T4-16Q", 1),))), facts, made=[ours])
    assert ([one.code for one in plan.obstacles], plan.steps) == (["no-room"], ())
    assert "more T4-16Q beside" in plan.obstacles[0].reason
    alone = plan_host(declare(VgpuLayout(shares=(("T4-16Q", 1),))), facts, made=[ours, others])
    assert (alone.obstacles, len(alone.steps), len(alone.later)) == ((), 2, 1)


@pytest.mark.parametrize(
    ("start", "count", "has_room"), [(0, 1, True), (24, 1, True), (0, 2, False), (24, 2, False), (None, 2, True)]
)
def test_shares_of_mixed_sizes_are_packed_anew_with_the_largest_first(
    start: int | None, count: int, has_room: bool
) -> None:
    """Idle shares lie where the driver put them: the larger one finds its place once all of them are gone."""
    gpu = SimulatedGpu("nvidia-l40s")
    gpu.vf_count, gpu.heterogeneous = gpu.total_vfs, True
    idle, of_vm = gpu.functions[:3], gpu.functions[3]
    gpu.vf_types = {**dict.fromkeys(idle, "1150"), of_vm: "1155"}
    facts = SimulatedHost(gpu).facts()
    (card,) = facts.gpus
    facts = replace(facts, gpus=(replace(card, types=tuple(replace(one, creatable=0) for one in card.types)),))
    share = Share(GPU, Sharing.VF_PROFILE, "L40S-24Q", of_vm, "1155", placement_start=start)
    layout = VgpuLayout(size_mode=SizeMode.MIXED, shares=(("L40S-4Q", 1), ("L40S-16Q", count)))
    plan = plan_host(declare(layout), facts, [lease("gpu1", share)], made=idle)
    assert ([one.code for one in plan.obstacles] == []) is has_room
    if has_room:
        assert [planned.phase for planned in plan.steps] == [Phase.SHARES] * 3
        assert [one.partition(" x ")[2].partition(",")[0] for one in plan.later] == ["L40S-16Q", "L40S-4Q"]


def test_shares_of_another_size_are_judged_by_the_size_mode_that_comes() -> None:
    gpu = SimulatedGpu("nvidia-l40s")
    gpu.vf_count = gpu.total_vfs
    gpu.vf_types = {gpu.functions[0]: "1152"}
    facts = SimulatedHost(gpu).facts()
    (card,) = facts.gpus
    facts = replace(facts, gpus=(replace(card, types=tuple(replace(one, creatable=0) for one in card.types)),))
    plan = plan_host(declare(VgpuLayout(size_mode=SizeMode.MIXED, shares=(("L40S-4Q", 2),))), facts)
    assert ([one.code for one in plan.obstacles], len(plan.later)) == ([], 1)
    equal = plan_host(declare(VgpuLayout(size_mode=SizeMode.EQUAL, shares=(("L40S-4Q", 2),))), facts)
    assert [one.code for one in equal.obstacles] == ["no-room"]
