# SPDX-License-Identifier: Apache-2.0
"""The permitted steps of a plan: steps that disturb a VM or reset a GPU need permission."""

from dataclasses import dataclass

from vgpuctl.agent.wire.cdi import SetContainerGpus
from vgpuctl.planner.layout.result import Disturbed, HostPlan, Phase, PlannedStep


@dataclass(frozen=True)
class SkippedGpu:
    """Why a GPU's steps are not taken. gpu: None for one step of the host itself. option: what gives leave, None where
    nothing does. is_held: a program of the host has the GPU open, which may end."""

    gpu: str | None
    reason: str
    option: str | None
    is_held: bool = False

    @property
    def remedy(self) -> str:
        """The next action of the operator, in words."""
        if self.is_held:
            return "stop it, or name its service in `stop_services`"
        return f"{self.option} allows it" if self.option else "it is not vgpuctl's to stop"


@dataclass(frozen=True)
class Selection:
    """steps: to be taken, in order. left_out: planned and not to be taken. make_way: known VMs that must go first.

    is_none: nothing is to be done on the host, since it would not be all.
    """

    steps: tuple[PlannedStep, ...]
    left_out: tuple[PlannedStep, ...]
    refusals: tuple[SkippedGpu, ...]
    make_way: tuple[Disturbed, ...]
    is_none: bool = False

    @property
    def refused(self) -> frozenset[str]:
        """The GPUs whose steps are not allowed."""
        return frozenset(one.gpu for one in self.refusals if one.gpu is not None)


def select_steps(plan: HostPlan, *, may_disrupt: bool, may_reset: bool, all_or_none: bool = False) -> Selection:
    """Choose. Vgpus and VMs that the store does not know are never disturbed, whatever is allowed.

    all_or_none: no step is taken where one GPU is refused or has an obstacle; else the other GPUs get theirs.

    A GPU that a program of the host has open gets no steps that need its driver alone, unless services are stopped for
    them: they would fail after the steps before.
    Containers get no GPUs while one of them is refused: it is not yet as they are to have it.
    Services are stopped only where a step is left that needs the driver alone.
    """
    refusals: list[SkippedGpu] = []
    make_way: list[Disturbed] = []
    for gpu, disturbed in plan.disturbed_by_gpu().items():
        refusal = _refuse(plan, gpu, disturbed, may_disrupt=may_disrupt, may_reset=may_reset)
        if refusal is None:
            make_way += disturbed
        else:
            refusals.append(refusal)
    kept_back = [planned for planned in plan.steps if planned.disrupts and not may_disrupt]
    refusals += [SkippedGpu(planned.gpu, planned.disrupts, "--disrupt") for planned in kept_back]
    if all_or_none and (refusals or plan.obstacles):
        return Selection((), plan.steps, tuple(refusals), (), is_none=True)
    refused = {refusal.gpu for refusal in refusals if refusal.gpu is not None}
    kept_back += [
        one
        for one in plan.steps
        if one.phase is Phase.CONTAINERS and isinstance(one.step, SetContainerGpus) and {*one.step.gpus} & refused
    ]
    taken = [planned for planned in plan.steps if planned.gpu not in refused and planned not in kept_back]
    if not any(planned.gpu and planned.phase.needs_driver_alone() for planned in taken):
        around = (Phase.STOP_SERVICES, Phase.START_SERVICES)
        taken = [planned for planned in taken if planned.phase not in around]
    left_out = tuple(planned for planned in plan.steps if planned.gpu in refused or planned in kept_back)
    return Selection(tuple(taken), left_out, tuple(refusals), tuple(dict.fromkeys(make_way)))


def _refuse(
    plan: HostPlan, gpu: str, disturbed: tuple[Disturbed, ...], *, may_disrupt: bool, may_reset: bool
) -> SkippedGpu | None:
    foreign = [one for one in disturbed if one.is_foreign]
    if foreign:
        return SkippedGpu(gpu, f"would disturb {'; '.join(map(str, foreign))}", None)
    if disturbed and not may_disrupt:
        return SkippedGpu(gpu, f"would disturb {'; '.join(map(str, disturbed))}", "--disrupt")
    held = {process for planned in plan.steps if planned.gpu == gpu for process in planned.processes}
    if held and all(planned.phase is not Phase.STOP_SERVICES for planned in plan.steps):
        who = ", ".join(f"{one.command} (pid {one.pid})" for one in sorted(held, key=lambda one: one.pid))
        return SkippedGpu(gpu, f"{who} has it open", None, is_held=True)
    if not may_reset and any(planned.gpu == gpu and planned.needs_reset for planned in plan.steps):
        return SkippedGpu(gpu, "needs a reset of the GPU", "--reset")
    return None
