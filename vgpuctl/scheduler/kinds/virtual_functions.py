# SPDX-License-Identifier: Apache-2.0
"""Choosing a VF: the free one of the lowest number."""

from vgpuctl.scheduler.codes import Code
from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.offer import Refusal

_NOT_FOR_VGPU = ("vfio-pci", "pci-stub")


def free_vgpu_function(state: GpuState, *, needs_group: bool) -> str | Refusal:
    """A VF that can carry a vGPU: neither seen in use nor promised, and not taken from NVIDIA's driver."""
    free = [function for function in state.gpu.vfs if function.address not in state.functions]
    usable = [function for function in free if function.driver not in _NOT_FOR_VGPU]
    if not usable:
        away = f"; {len(free)} are bound to another driver than nvidia" if free else ""
        return Refusal(
            Code.NO_FREE_VF,
            f"{len(state.gpu.vfs) - len(free)} of its {len(state.gpu.vfs)} VFs are in use or promised{away}",
            "delete a VM on this GPU" if not free else "bind the VFs to nvidia",
        )
    if needs_group:
        grouped = [function for function in usable if function.iommu_group is not None]
        if not grouped:
            return Refusal(
                Code.NO_IOMMU,
                "its VFs are in no IOMMU group",
                "switch VT-d or AMD-Vi on in the firmware and on the kernel's command line, then reboot",
            )
        usable = grouped
    return min(usable, key=lambda function: function.number).address
