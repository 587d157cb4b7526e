# SPDX-License-Identifier: Apache-2.0
"""Choosing a VF: the free one of the lowest number."""

from collections.abc import Container

from vgpuctl.agent.wire.facts import Gpu, VirtualFunction
from vgpuctl.scheduler.codes import Code
from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.offer import Refusal

_NOT_FOR_VGPU = ("vfio-pci", "pci-stub")


def lowest_free(gpu: Gpu, taken: Container[str], *, needs_group: bool) -> VirtualFunction:
    """The VF of the lowest number that is not taken and can carry a vGPU. Raises ValueError when there is none."""
    chosen: VirtualFunction | None = None
    for function in gpu.vfs:
        if function.address in taken or (chosen is not None and function.number > chosen.number):
            continue
        if function.driver not in _NOT_FOR_VGPU and (function.iommu_group is not None or not needs_group):
            chosen = function
    if chosen is None:
        raise ValueError(f"{gpu.address} has no free VF")
    return chosen


def free_vgpu_function(state: GpuState, *, needs_group: bool) -> str | Refusal:
    """A VF that can carry a vGPU: neither seen in use nor promised, and not taken from NVIDIA's driver."""
    free = usable = 0
    chosen: VirtualFunction | None = None
    for function in state.gpu.vfs:
        if function.address in state.functions:
            continue
        free += 1
        if function.driver in _NOT_FOR_VGPU:
            continue
        usable += 1
        grouped = function.iommu_group is not None or not needs_group
        if grouped and (chosen is None or function.number < chosen.number):
            chosen = function
    if chosen is not None:
        return chosen.address
    if usable:
        return Refusal(
            Code.NO_IOMMU,
            "its VFs are in no IOMMU group",
            "switch VT-d or AMD-Vi on in the firmware and on the kernel's command line, then reboot",
        )
    total = len(state.gpu.vfs)
    away = f"; {free} are bound to another driver than nvidia" if free else ""
    return Refusal(
        Code.NO_FREE_VF,
        f"{total - free} of its {total} VFs are in use or promised{away}",
        "bind the VFs to nvidia" if free else "delete a VM on this GPU",
    )
