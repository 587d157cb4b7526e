# SPDX-License-Identifier: Apache-2.0
"""The permitted steps of a plan: steps that disturb a VM or reset a GPU need permission."""

from dataclasses import dataclass

from vgpuctl.planner.layout.result import Disturbed, HostPlan, Phase, PlannedStep


@dataclass(frozen=True)
class SkippedGpu:
    """Why a GPU's steps are not taken. option: what gives leave, None where nothing does."""

    gpu: str
    reason: str
    option: str | None


@dataclass(frozen=True)
class Selection:
    """steps: to be taken, in order. left_out: planned and not to be taken. make_way: known VMs that must go first."""

    steps: tuple[PlannedStep, ...]
    left_out: tuple[PlannedStep, ...]
    refusals: tuple[SkippedGpu, ...]
    make_way: tuple[Disturbed, ...]


def select_steps(plan: HostPlan, *, may_disrupt: bool, may_reset: bool) -> Selection:
    """Choose. Vgpus and VMs that the store does not know are never disturbed, whatever is allowed.

    Services are stopped only where a step is left that needs the driver alone.
    """
    gpus = dict.fromkeys(
        [planned.gpu for planned in plan.steps if planned.gpu]
        + [obstacle.gpu for obstacle in plan.obstacles if obstacle.gpu and obstacle.disturbs]
    )
    refusals: list[SkippedGpu] = []
    make_way: list[Disturbed] = []
    for gpu in gpus:
        disturbed = _disturbed(plan, gpu)
        refusal = _refuse(plan, gpu, disturbed, may_disrupt=may_disrupt, may_reset=may_reset)
        if refusal is None:
            make_way += disturbed
        else:
            refusals.append(refusal)
    refused = {refusal.gpu for refusal in refusals}
    taken = [planned for planned in plan.steps if planned.gpu not in refused]
    if not any(planned.gpu and planned.phase.needs_driver_alone() for planned in taken):
        around = (Phase.STOP_SERVICES, Phase.START_SERVICES)
        taken = [planned for planned in taken if planned.phase not in around]
    left_out = tuple(planned for planned in plan.steps if planned.gpu in refused)
    return Selection(tuple(taken), left_out, tuple(refusals), tuple(dict.fromkeys(make_way)))


def _disturbed(plan: HostPlan, gpu: str) -> tuple[Disturbed, ...]:
    found = [one for planned in plan.steps if planned.gpu == gpu for one in planned.disturbs]
    found += [one for obstacle in plan.obstacles if obstacle.gpu == gpu for one in obstacle.disturbs]
    return tuple(dict.fromkeys(found))


def _refuse(
    plan: HostPlan, gpu: str, disturbed: tuple[Disturbed, ...], *, may_disrupt: bool, may_reset: bool
) -> SkippedGpu | None:
    foreign = [one for one in disturbed if one.is_foreign]
    if foreign:
        return SkippedGpu(gpu, f"would disturb {'; '.join(map(str, foreign))}", None)
    if disturbed and not may_disrupt:
        return SkippedGpu(gpu, f"would disturb {'; '.join(map(str, disturbed))}", "--disrupt")
    if not may_reset and any(planned.gpu == gpu and planned.needs_reset for planned in plan.steps):
        return SkippedGpu(gpu, "needs a reset of the GPU", "--reset")
    return None
