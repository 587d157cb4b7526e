# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vendor-specific VFIO: the type is set on the VF, which is then given away itself; one vGPU per VF."""

from vgpuctl.model.libvirt_version import VENDOR_VFIO_REMEDY, refuse_vendor_vfio
from vgpuctl.scheduler.codes import Code
from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.kinds.virtual_functions import free_vgpu_function
from vgpuctl.scheduler.offer import Refusal


def free_function(state: GpuState) -> str | Refusal:
    """The free VF that was used longest ago and has an IOMMU group; none where libvirt cannot give it to a VM."""
    reason = refuse_vendor_vfio(state.facts.libvirt_version)
    if reason is not None:
        return Refusal(Code.LIBVIRT_TOO_OLD, reason, VENDOR_VFIO_REMEDY)
    return free_vgpu_function(state, needs_group=True)
