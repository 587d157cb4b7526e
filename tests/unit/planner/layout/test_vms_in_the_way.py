# SPDX-License-Identifier: Apache-2.0
"""VMs in the way of a layout: they are part of the plan from the start, and the GPU as it will be is foreseen."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import lease
from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from tests.unit.planner.layout.test_plan_host import A40, A100, GPU, declare
from vgpuctl.agent.wire.facts import Holder
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.layout import Layout, MigVgpuLayout, OffLayout, SizeMode, VgpuLayout, WantedInstance
from vgpuctl.model.lease import Share
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl.planner.layout.reached import reached
from vgpuctl.planner.layout.result import Stranded


def test_instances_that_known_users_and_idle_shares_alone_use_are_planned_as_free() -> None:
    """The whole way is one plan, and says whom it disturbs; a process of the host in an instance is an obstacle."""
    gpu = SimulatedGpu(A100)
    gpu.mig = gpu.mig_pending = True
    gpu.vf_count = 16
    assert gpu.card is not None
    gpu.card.create("3g.20gb", 0)
    first, second = gpu.functions[:2]
    gpu.vf_types = {first: "475", second: "475"}
    gpu.card.instances[0] = replace(gpu.card.instances[0], in_use=True)
    held = lease("gpu1", Share(GPU, Sharing.VF_PROFILE, "A100-3-20C", first, "475"), vm_name="web-1")
    layout = declare(MigVgpuLayout((WantedInstance("7g.40gb"),)))
    plan = plan_host(layout, SimulatedHost(gpu).facts(), [held], made=[second])
    assert not plan.obstacles
    assert [one.summary.partition(" of ")[0] for one in plan.steps] == [
        f"delete the idle share {second}",
        "destroy the GPU instance 3g.20gb at 0:4",
        f"create the GPU instance 7g.40gb at 0:8 on {GPU}",
    ]
    assert [one.vm for one in plan.disturbed_by_gpu()[GPU]] == ["web-1"]
    gpu.card.instances[0] = replace(gpu.card.instances[0], holders=(Holder(99, "python"),))
    assert [one.code for one in plan_host(layout, SimulatedHost(gpu).facts(), [held]).obstacles] == ["mig-in-use"]


def test_a_gpu_whose_vms_could_not_return_keeps_them_and_has_no_steps() -> None:
    gpu = SimulatedGpu(A40)
    host = SimulatedHost(gpu)
    plan = plan_host(
        declare(VgpuLayout()), host.facts(), stranded={GPU: Stranded("vm-cannot-return", "web-1 could not start again")}
    )
    assert [(one.gpu, one.code, one.reason) for one in plan.obstacles] == [
        (GPU, "vm-cannot-return", "web-1 could not start again")
    ]
    assert plan.steps == () and plan.later == ()


@pytest.mark.parametrize(
    ("layout", "profile", "count"),
    [
        (MigVgpuLayout((WantedInstance("3g.20gb"), WantedInstance("3g.20gb"))), "A100-3-20C", 2),
        (MigVgpuLayout((WantedInstance("1g.5gb"),) * 7), "A100-1-5C", 7),
        (VgpuLayout(), "A100-10C", 4),
        (VgpuLayout(size_mode=SizeMode.EQUAL), "A100-40C", 1),
        (OffLayout(), "A100-40C", 0),
    ],
)
def test_a_gpu_as_it_will_be_offers_what_the_simulated_one_offers_then(
    layout: Layout, profile: str, count: int
) -> None:
    facts = SimulatedHost(SimulatedGpu(A100)).facts()
    (gpu,) = reached(facts, declare(layout), [GPU]).gpus
    assert sum(one.creatable for one in gpu.types if one.name == profile) == count
    assert len(gpu.vfs) == (16 if count else 0)
