# SPDX-License-Identifier: Apache-2.0
"""Time and memory that a layout gives the functions of Intel's cards: planned, compared, restored at boot."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import intel_vf_host, lease
from tests.unit.fleet_factory import vm as request_of
from vgpuctl.agent.wire.facts import Gpu, Holder, HostFacts
from vgpuctl.agent.wire.sharing import SetFunctionParams, Sharing
from vgpuctl.agent.wire.steps import SetVirtualFunctions
from vgpuctl.model.layout import GpuLayout, GpuMatch, HostLayout, VfLayout
from vgpuctl.model.lease import Share
from vgpuctl.model.vgpu_params import VgpuParams
from vgpuctl.planner.layout.function_params import refuse_for_vm, rolled_back_with
from vgpuctl.planner.layout.manifest import manifest_of
from vgpuctl.planner.layout.plan import plan_host
from vgpuctl.planner.layout.reached import reached
from vgpuctl.planner.layout.result import HostPlan
from vgpuctl.planner.layout.selection import select_steps
from vgpuctl.sharing.compute import compute_of
from vgpuctl.sharing.declared import Declared

GPU = "0000:9a:00.0"
NONE = "exec_quantum_ms=0,preempt_timeout_us=0,sched_priority=low"
QUANTUM = (("exec_quantum_ms", "20"),)
GIB = 1 << 30


def declare(vf: VgpuParams = (), pf: VgpuParams = (), count: int = 3) -> HostLayout:
    return HostLayout((GpuLayout(GpuMatch(), VfLayout(count, vf, pf), "gpu1.yml:3"),))


def facts(*vfs: str, pf: str | None = NONE, first: str | None = None, held: bool = False) -> HostFacts:
    """A card with VFs that have these parameters. first: of the first VF, before a VM's own."""
    found = intel_vf_host(vfs=len(vfs)).facts
    (gpu,) = found.gpus
    functions = [replace(one, vgpu_params=text) for one, text in zip(gpu.vfs, vfs, strict=True)]
    if functions:
        holders = (Holder(7, "qemu", None),) if held else ()
        functions[0] = replace(functions[0], first_params=first, holders=holders)
    return replace(found, gpus=(replace(gpu, pf_params=pf, vfs=tuple(functions)),))


def steps_of(plan: HostPlan) -> list[tuple[int | None, str]]:
    return [(one.step.vf, one.step.params) for one in plan.steps if isinstance(one.step, SetFunctionParams)]


def test_each_function_that_differs_gets_its_values_and_the_undo_has_the_old_ones() -> None:
    has = NONE.replace("exec_quantum_ms=0", "exec_quantum_ms=20")
    plan = plan_host(declare(QUANTUM, (("sched_priority", "normal"),)), facts(has, NONE, has))
    assert steps_of(plan) == [(None, "sched_priority=normal"), (1, "exec_quantum_ms=20")]
    assert plan.undo == (
        SetFunctionParams(GPU, 1, "exec_quantum_ms=0"),
        SetFunctionParams(GPU, None, "sched_priority=low"),
    )
    assert [str(one) for one in plan.differences] == [
        f"{GPU}: function-params is sched_priority=low, declared sched_priority=normal of the PF",
        f"{GPU}: function-params is exec_quantum_ms=0, declared exec_quantum_ms=20 of VF 1",
    ]
    assert not any(one.disturbs for one in plan.steps), "VMs keep their VFs"
    done = plan_host(declare(QUANTUM), facts(has, has, has))
    assert done.is_in_layout and not done.steps


def test_what_fails_of_one_function_is_undone_of_the_others_of_its_card() -> None:
    plan = plan_host(declare(QUANTUM, QUANTUM), facts(NONE, NONE, NONE))
    pf, first, second, third = plan.steps
    other = replace(pf, gpu="0000:9b:00.0")
    new = replace(first, undo=())
    assert rolled_back_with(third, [pf, other, new, second]) == [second, pf]
    enabled = plan_host(declare(QUANTUM), facts()).steps[0]
    assert rolled_back_with(enabled, [pf]) == [] and rolled_back_with(third, [enabled]) == []


def test_a_vms_own_value_is_no_difference_and_what_it_covers_is() -> None:
    own = NONE.replace("exec_quantum_ms=0", "exec_quantum_ms=5")
    has = NONE.replace("exec_quantum_ms=0", "exec_quantum_ms=20")
    assert not plan_host(declare(QUANTUM), facts(own, has, has, first="exec_quantum_ms=20")).steps
    assert steps_of(plan_host(declare(QUANTUM), facts(own, has, has, first="exec_quantum_ms=0"))) == [
        (0, "exec_quantum_ms=20")
    ]


def test_new_vfs_get_them_after_they_are_made_and_a_boot_restores_them() -> None:
    layout = declare(QUANTUM, QUANTUM)
    plan = plan_host(layout, facts())
    assert isinstance(plan.steps[0].step, SetVirtualFunctions)
    wanted = [(None, "exec_quantum_ms=20"), *((number, "exec_quantum_ms=20") for number in range(3))]
    assert steps_of(plan) == wanted
    has = NONE.replace("exec_quantum_ms=0", "exec_quantum_ms=20")
    steps = [one.step for one in manifest_of(layout, facts(has, has, has, pf=has)).steps]
    assert isinstance(steps[0], SetVirtualFunctions)
    assert [(one.vf, one.params) for one in steps[1:] if isinstance(one, SetFunctionParams)] == wanted


def test_memory_shrinks_before_it_grows_and_disturbs_the_vm_whose_guest_has_read_it() -> None:
    small, large = f"{NONE},vram_quota={GIB}", f"{NONE},vram_quota={9 * GIB}"
    wanted = (("vram_quota", str(4 * GIB)),)
    assert [number for number, _ in steps_of(plan_host(declare(wanted), facts(small, large, small)))] == [1, 0, 2]
    there = facts(small, large, small, held=True)
    held = lease("gpu1", Share(GPU, Sharing.VF, "vf", there.gpus[0].vfs[0].address), vm_name="web-1")
    plan = plan_host(declare(wanted), there, [held])
    assert steps_of(plan) == [(number, f"vram_quota={4 * GIB}") for number in (1, 0, 2)]
    assert [[who.vm for who in one.disturbs] for one in plan.steps] == [[], ["web-1"], []]
    assert not [one for one in plan.differences if one.remedy], "a run that may disturb reaches the layout"
    assert {one.gpu for one in select_steps(plan, may_disrupt=False, may_reset=False).refusals} == {GPU}
    time = plan_host(declare((*QUANTUM, ("vram_quota", str(GIB)))), facts(small, small, small, held=True), [held])
    assert len(steps_of(time)) == 3 and not any(one.disturbs for one in time.steps), "time alone differs"


@pytest.mark.parametrize(
    ("vf", "pf", "there", "code"),
    [
        (QUANTUM, (), facts(NONE, NONE, NONE, pf=None), "no-vf-params"),
        ((("vram_quota", str(GIB)),), (), facts(NONE, NONE, NONE), "no-vf-params"),
        ((("vram_quota", str(6 * GIB)),), (), facts(*[f"{NONE},vram_quota={GIB}"] * 3), "too-much-memory"),
    ],
)
def test_what_the_card_cannot_do_is_an_obstacle(vf: VgpuParams, pf: VgpuParams, there: HostFacts, code: str) -> None:
    plan = plan_host(declare(vf, pf), there)
    assert [one.code for one in plan.obstacles] == [code] and not plan.steps


def test_tiles_that_differ_get_one_value() -> None:
    unequal = NONE.replace("exec_quantum_ms=0", "exec_quantum_ms=differs")
    has = NONE.replace("exec_quantum_ms=0", "exec_quantum_ms=20")
    plan = plan_host(declare(QUANTUM), facts(unequal, has, has))
    assert steps_of(plan) == [(0, "exec_quantum_ms=20")] and plan.undo == ()


def test_a_card_of_another_maker_has_none() -> None:
    def amd(gpu: Gpu) -> Gpu:
        return replace(gpu, vendor_id="1002", driver="amdgpu", pf_params=None)

    there = facts(NONE, NONE, NONE)
    plan = plan_host(declare(QUANTUM), replace(there, gpus=tuple(map(amd, there.gpus))))
    assert "no-vf-params" in [one.code for one in plan.obstacles]


def sliced(quantum: int, timeout: int = 5000) -> VgpuParams:
    return (("exec_quantum_ms", str(quantum)), ("preempt_timeout_us", str(timeout)))


SLICED = "exec_quantum_ms=20,preempt_timeout_us=5000"


@pytest.mark.parametrize(
    ("gpus", "own", "vf", "pf", "said"),
    [
        ("vf,compute>=20%", (), sliced(20), sliced(5), None),
        ("vf,compute>=20%", (), sliced(20), sliced(50), "16%"),
        ("vf,compute>=20%", (), sliced(10), sliced(50), "10.5%"),
        ("vf,compute>=20%", (), sliced(10, 1000), sliced(5, 1000), None),
        ("vf,compute>=20%", (), (), (), "does not declare"),
        ("vf,compute>=20%", (), sliced(0), sliced(5), "does not declare"),
        ("vf,compute>=20%", (), (*sliced(20), ("sched_priority", "high")), sliced(5), "priority high"),
        ("vf", (), sliced(1), sliced(99), None),
        ("vf", sliced(20), sliced(20), sliced(5), None),
        ("vf", sliced(20)[:1], sliced(10), sliced(5), "could not start again: its layout (gpu1.yml:3) gives each VF"),
        ("vf", sliced(20), sliced(20, 4999), (), "preempt_timeout_us=4999, and 5000 is more"),
        ("vf", (("exec_quantum_ms", "0"),), sliced(20), (), "no limit is more"),
        ("vf", sliced(20), (), (), None),
    ],
)
def test_a_layout_that_breaks_a_promise_to_a_vm_says_which(
    gpus: str, own: VgpuParams, vf: VgpuParams, pf: VgpuParams, said: str | None
) -> None:
    there = facts(SLICED, SLICED, SLICED, pf=SLICED, first=SLICED if own else None)
    (gpu,) = there.gpus
    held = lease("gpu1", Share(GPU, Sharing.VF, "vf", gpu.vfs[0].address))
    request = replace(request_of(gpus), vgpu_params=own)
    for count in (3, 4):
        (entry,) = declare(vf, pf, count).gpus
        reason = refuse_for_vm(request, held, gpu, Declared(entry))
        if count == 3 and said is not None:
            assert reason is not None and said in reason
        else:
            assert reason is None, "with another count of VFs it is placed again"


def test_other_vfs_are_foreseen_with_the_time_that_they_get() -> None:
    layout = declare(sliced(20), sliced(20), count=4)
    (gpu,) = reached(facts(SLICED, SLICED, pf=NONE), layout, [GPU]).gpus
    found = compute_of(Share(GPU, Sharing.VF, "vf", gpu.vfs[0].address), gpu, Declared(layout.gpus[0]))
    assert "20 ms of a round of 120 ms" in str(found)
