# SPDX-License-Identifier: Apache-2.0
"""The assumption of a dry run: earlier steps of the same run had their planned result."""

from typing import Optional, Sequence, Tuple

from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import VGPU_STEPS, SetFunctionParams, SetVfParams
from vgpuctl.agent.wire.steps import (
    BindDriver,
    Change,
    CreateGpuInstance,
    DestroyGpuInstance,
    ResetGpu,
    SetHeterogeneousMode,
    SetMigMode,
    SetServiceActive,
    SetVgpuScheduler,
    SetVirtualFunctions,
    Step,
)

_VFS, _MODE, _RESET = SetVirtualFunctions.op, SetMigMode.op, ResetGpu.op
# (the step, what it is refused for now, the steps before it that would change that)
_EXCUSES: Tuple[Tuple[str, ProblemCode, Tuple[str, ...]], ...] = (
    *((step.op, ProblemCode.NOT_FOUND, (f"{_VFS} to some",)) for step in VGPU_STEPS),
    *((step.op, ProblemCode.NOT_FOUND, (f"{_VFS} to some",)) for step in (SetVfParams, SetFunctionParams)),
    (BindDriver.op, ProblemCode.NOT_FOUND, (f"{_VFS} to some",)),
    (ResetGpu.op, ProblemCode.HELD, (SetServiceActive.op,)),
    (SetMigMode.op, ProblemCode.VFS_ACTIVE, (_VFS,)),
    (CreateGpuInstance.op, ProblemCode.MIG_OFF, (_MODE, _RESET)),
    (CreateGpuInstance.op, ProblemCode.MIG_PROFILE_UNKNOWN, (_MODE, _RESET)),
    (CreateGpuInstance.op, ProblemCode.MIG_PLACEMENT_TAKEN, (DestroyGpuInstance.op, _MODE, _RESET, _VFS)),
    (SetHeterogeneousMode.op, ProblemCode.NO_HETEROGENEOUS_MODE, (_VFS, _MODE, _RESET)),
    (SetHeterogeneousMode.op, ProblemCode.MIG_INSTANCE_MISSING, (CreateGpuInstance.op,)),
    (SetHeterogeneousMode.op, ProblemCode.VGPUS_ACTIVE, (*(step.op for step in VGPU_STEPS), _VFS)),
    (SetVgpuScheduler.op, ProblemCode.NO_VGPU_SCHEDULER, (_VFS, _MODE, _RESET)),
)


def change(step: Step, problem: Problem, changes: Sequence[Change]) -> Optional[Change]:
    """Return the change a step would make after the earlier ones, None when they do not excuse its problem."""
    done = {one.op for one in changes if one.changed}
    done |= {f"{one.op} to some" for one in changes if one.changed and one.after != "0"}
    for op, code, before in _EXCUSES:
        if (step.op, problem.code) == (op, code) and done & set(before):
            return _foreseen(step)
    return None


def _foreseen(step: Step) -> Optional[Change]:
    if isinstance(step, VGPU_STEPS):
        return Change(step.op, step.device, *step.foreseen, changed=True)
    if isinstance(step, (SetVfParams, SetFunctionParams)):
        return Change(step.op, step.target, None, step.params, changed=True)
    if isinstance(step, BindDriver):
        return Change(step.op, " ".join(step.addresses), None, step.driver, changed=True)
    if isinstance(step, CreateGpuInstance):
        said = f"{step.count} x {step.profile}" if step.start is None else f"{step.profile} at {step.start}"
        return Change(step.op, step.address, None, said, changed=True)
    if isinstance(step, SetMigMode):
        return Change(step.op, step.address, None, "enabled" if step.enabled else "disabled", changed=True)
    if isinstance(step, SetHeterogeneousMode):
        return Change(step.op, step.address, None, "mixed-size" if step.enabled else "equal-size", changed=True)
    if isinstance(step, SetVgpuScheduler):
        return Change(step.op, step.address, None, step.policy, changed=True)
    return Change(step.op, getattr(step, "address", ""), None, None, changed=True)
