# SPDX-License-Identifier: Apache-2.0
"""The resize-vm command that brings a VM into another size, for hints."""

import shlex

from vgpuctl.model.units import exact_mib
from vgpuctl.model.vgpu_params import show_vgpu_param
from vgpuctl.model.vm import VmRequest


def resize_command(there: VmRequest, wanted: VmRequest) -> str | None:
    """`vgpuctl resize-vm acme/web --vcpus 4`; None when nothing differs that it changes."""
    changes = []
    if there.vcpus != wanted.vcpus:
        changes += ["--vcpus", str(wanted.vcpus)]
    if there.memory_mib != wanted.memory_mib:
        changes += ["--memory", str(exact_mib(wanted.memory_mib))]
    if there.gpus != wanted.gpus:
        changes += [word for gpu in wanted.gpus for word in ("--gpu", gpu.text)] or ["--gpu", "none"]
    if there.vgpu_params != wanted.vgpu_params:
        params = map(show_vgpu_param, wanted.vgpu_params)
        changes += [word for param in params for word in ("--vgpu-param", param)] or ["--vgpu-param", "none"]
    if not changes:
        return None
    return shlex.join(["vgpuctl", "resize-vm", f"{wanted.tenant}/{wanted.name}", *changes])
