# SPDX-License-Identifier: Apache-2.0
"""What a dry run believes: that earlier steps of the same run did what they foresaw."""

from typing import Optional, Sequence, Tuple

from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.steps import (
    BindDriver,
    Change,
    CreateGpuInstance,
    CreateMdev,
    DestroyGpuInstance,
    ResetGpu,
    SetHeterogeneousMode,
    SetMigMode,
    SetServiceActive,
    SetVgpuScheduler,
    SetVgpuType,
    SetVirtualFunctions,
    Step,
)

_VFS, _MODE, _RESET = SetVirtualFunctions.op, SetMigMode.op, ResetGpu.op
# (the step, what it is refused for now, the steps before it that would change that)
_EXCUSES: Tuple[Tuple[str, str, Tuple[str, ...]], ...] = (
    (CreateMdev.op, "not-found", (f"{_VFS} to some",)),
    (SetVgpuType.op, "not-found", (f"{_VFS} to some",)),
    (BindDriver.op, "not-found", (f"{_VFS} to some",)),
    (ResetGpu.op, "held", (SetServiceActive.op,)),
    (SetMigMode.op, "vfs-active", (_VFS,)),
    (CreateGpuInstance.op, "mig-off", (_MODE, _RESET)),
    (CreateGpuInstance.op, "mig-profile-unknown", (_MODE, _RESET)),
    (CreateGpuInstance.op, "mig-placement-taken", (DestroyGpuInstance.op, _MODE, _RESET, _VFS)),
    (SetHeterogeneousMode.op, "no-heterogeneous-mode", (_VFS, _MODE, _RESET)),
    (SetHeterogeneousMode.op, "mig-instance-missing", (CreateGpuInstance.op,)),
    (SetHeterogeneousMode.op, "vgpus-active", (SetVgpuType.op, _VFS)),
    (SetVgpuScheduler.op, "no-vgpu-scheduler", (_VFS, _MODE, _RESET)),
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
    if isinstance(step, CreateMdev):
        return Change(step.op, step.uuid, None, f"{step.parent} {step.type_id}", changed=True)
    if isinstance(step, SetVgpuType):
        return Change(step.op, step.address, "0", step.type_id, changed=True)
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
