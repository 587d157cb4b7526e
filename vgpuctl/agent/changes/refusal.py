# SPDX-License-Identifier: Apache-2.0
"""Why NVIDIA's driver or the kernel refused a vGPU: the errno's and the resource manager code's meaning."""

import re
from typing import Optional, Sequence

from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import replace

_RM_CODE = re.compile(r"vgpu create request:\s*(0x[0-9a-fA-F]+)")

# NVIDIA open-gpu-kernel-modules, nvstatuscodes.h; what they mean at create: kernel_vgpu_mgr.c (reference 2.2).
RM_MEANINGS = {
    "0x1a": "insufficient resources: the GPU has as many vGPUs as this type allows",
    "0x38": "invalid operation: the VF already has a vGPU, or MIG mode and the type do not go together",
    "0x40": "invalid state: no matching MIG GPU instance is free",
    "0x56": "not supported: the GPU holds vGPUs of another framebuffer size (equal-size mode)",
    "0x57": "object not found",
    "0x66": "the driver asks to try again",
}

# Linux drivers/vfio/mdev/mdev_core.c (reference 2.1).
ERRNO_MEANINGS = {
    "EINVAL": "the kernel does not take it as a UUID or type",
    "EEXIST": "this UUID is already active on some parent",
    "ENODEV": "the parent device is going away",
    "EUSERS": "the parent has no instance of this type left",
    "ENOSPC": "the parent has no instance of this type left",
    "EIO": "the driver refused",
    "EBUSY": "the vGPU's plugin still runs",
    "EPERM": "the VF has a vGPU already, or the VFIO device of its vGPU is still in use",
}
_NOT_ROOT = "the agent is not allowed to; it must run as root"
_NOT_ROOT_HINT = "let the agent run as root: ansible_become=true"
_STILL_USED_HINT = "see dmesg for what the driver waits for; `vgpuctl repair` tries again"
_ROOM_HINT = "run `vgpuctl inspect-host` to see what the GPU can still take"


def rm_code(kernel_lines: Sequence[str]) -> Optional[str]:
    """Return the last resource manager code in the kernel's words, such as `0x56`."""
    found = [match[1].lower() for match in map(_RM_CODE.search, kernel_lines) if match]
    return found[-1] if found else None


def vgpu_refused(what: str, problem: Problem, kernel_lines: Sequence[str], *, is_root: bool) -> Problem:
    """Build the `vgpu-refused` problem from a failed write and what the kernel logged during it.

    is_root: the agent's own rights; EPERM to root is the driver's answer about the device.
    """
    code = rm_code(kernel_lines)
    lacks_rights = problem.errno == "EACCES" or (problem.errno == "EPERM" and not is_root)
    meaning = RM_MEANINGS.get(code or "") or ERRNO_MEANINGS.get(problem.errno or "") or problem.message
    if lacks_rights:
        meaning, hint = _NOT_ROOT, _NOT_ROOT_HINT
    else:
        hint = _STILL_USED_HINT if problem.errno in ("EPERM", "EBUSY") else _ROOM_HINT
    return replace(
        problem,
        code=ProblemCode.VGPU_REFUSED,
        message=f"{what} was refused ({problem.errno}{f', {code}' if code else ''}): {meaning}",
        rm_code=code,
        kernel_lines=tuple(kernel_lines),
        hint=hint,
    )
