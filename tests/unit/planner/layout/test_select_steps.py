# SPDX-License-Identifier: Apache-2.0
"""The permitted steps: a GPU in use, or one that needs a reset, waits for permission; the others do not."""

from dataclasses import replace

from vgpuctl.agent.wire.facts import Holder
from vgpuctl.agent.wire.steps import (
    ResetGpu,
    RestartFabricManager,
    SetFabricMode,
    SetServiceActive,
    SetVirtualFunctions,
)
from vgpuctl.planner.layout.result import Disturbed, HostPlan, LayoutObstacle, Phase, PlannedStep
from vgpuctl.planner.layout.selection import select_steps

A, B = "0000:41:00.0", "0000:81:00.0"
VM = Disturbed(f"{A[:-1]}4", "lease-1", "web-1", "acme")
STRANGER = Disturbed(f"{A[:-1]}5")
STOP = PlannedStep(Phase.STOP_SERVICES, SetServiceActive("dcgm.service", False), "stop dcgm.service")
START = PlannedStep(Phase.START_SERVICES, SetServiceActive("dcgm.service", True), "start dcgm.service")


def vfs(gpu: str, *disturbs: Disturbed) -> PlannedStep:
    return PlannedStep(Phase.VIRTUAL_FUNCTIONS, SetVirtualFunctions(gpu, 32), "enable", gpu, disturbs=disturbs)


def reset(gpu: str) -> PlannedStep:
    return PlannedStep(Phase.MIG_MODE, ResetGpu(gpu), "reset", gpu, needs_reset=True)


def test_a_gpu_with_a_tenant_waits_while_the_other_goes_on() -> None:
    plan = HostPlan((STOP, vfs(A, VM), vfs(B), START))
    chosen = select_steps(plan, may_disrupt=False, may_reset=False)
    assert chosen.steps == (STOP, vfs(B), START) and chosen.left_out == (vfs(A, VM),)
    assert [(one.gpu, one.option) for one in chosen.refusals] == [(A, "--disrupt")]
    assert "VM web-1 of acme" in chosen.refusals[0].reason
    allowed = select_steps(plan, may_disrupt=True, may_reset=False)
    assert allowed.steps == plan.steps and allowed.make_way == (VM,)


def test_services_run_on_when_nothing_is_left_that_needs_the_driver_alone() -> None:
    chosen = select_steps(HostPlan((STOP, vfs(A, VM), START)), may_disrupt=False, may_reset=False)
    assert chosen.steps == ()


def test_a_stranger_is_never_disturbed() -> None:
    chosen = select_steps(HostPlan((vfs(A, VM, STRANGER),)), may_disrupt=True, may_reset=True)
    assert chosen.steps == () and chosen.make_way == () and chosen.refusals[0].option is None


def test_a_reset_needs_leave_of_its_own() -> None:
    plan = HostPlan((reset(A), vfs(A), vfs(B)))
    chosen = select_steps(plan, may_disrupt=True, may_reset=False)
    assert chosen.steps == (vfs(B),) and [one.option for one in chosen.refusals] == ["--reset"]
    assert select_steps(plan, may_disrupt=False, may_reset=True).steps == plan.steps


def test_a_gpu_that_a_program_has_open_waits_unless_services_are_stopped_for_it() -> None:
    held = replace(vfs(A), processes=(Holder(4711, "nv-hostengine"),))
    chosen = select_steps(HostPlan((held, vfs(B))), may_disrupt=True, may_reset=True)
    assert chosen.steps == (vfs(B),)
    assert [(one.gpu, one.reason, one.is_held) for one in chosen.refusals] == [
        (A, "nv-hostengine (pid 4711) has it open", True)
    ]
    assert select_steps(HostPlan((STOP, held, START)), may_disrupt=False, may_reset=False).steps == (STOP, held, START)


def test_all_or_none_takes_no_step_beside_a_refused_gpu_or_an_obstacle() -> None:
    obstacle = LayoutObstacle(A, "no-room", "it is full")
    for plan in (HostPlan((vfs(A, VM), vfs(B))), HostPlan((vfs(B),), obstacles=(obstacle,))):
        chosen = select_steps(plan, may_disrupt=False, may_reset=False, all_or_none=True)
        assert (chosen.steps, chosen.left_out, chosen.make_way) == ((), plan.steps, ())
    fine = HostPlan((vfs(A, VM), vfs(B)))
    chosen = select_steps(fine, may_disrupt=True, may_reset=False, all_or_none=True)
    assert (chosen.steps, chosen.make_way) == (fine.steps, (VM,))


def test_a_step_that_disrupts_the_host_waits_for_leave_and_the_others_do_not() -> None:
    write = PlannedStep(Phase.HOST, SetFabricMode(1, True), "write")
    restart = PlannedStep(Phase.HOST, RestartFabricManager(), "restart", disrupts="interrupts NVLinks")
    plan = HostPlan((write, restart, vfs(B)))
    chosen = select_steps(plan, may_disrupt=False, may_reset=True)
    assert (chosen.steps, chosen.left_out, chosen.refused) == ((write, vfs(B)), (restart,), frozenset())
    assert [(one.gpu, one.reason, one.remedy) for one in chosen.refusals] == [
        (None, "interrupts NVLinks", "--disrupt allows it")
    ]
    assert select_steps(plan, may_disrupt=True, may_reset=False).steps == plan.steps
    assert select_steps(plan, may_disrupt=False, may_reset=False, all_or_none=True).steps == ()
