# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vendor-specific VFIO: the type is set on the VF, which is then given away itself; one vGPU per VF."""

from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.kinds.virtual_functions import free_vgpu_function
from vgpuctl.scheduler.offer import Refusal


def free_function(state: GpuState) -> str | Refusal:
    """The free VF of the lowest number that has an IOMMU group."""
    return free_vgpu_function(state, needs_group=True)
