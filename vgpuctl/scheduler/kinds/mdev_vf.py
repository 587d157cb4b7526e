# SPDX-License-Identifier: Apache-2.0
"""Mediated devices on VFs (Ampere and later, kernels with the mdev class): one vGPU per VF."""

from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.kinds.virtual_functions import free_vgpu_function
from vgpuctl.scheduler.offer import Refusal


def free_function(state: GpuState) -> str | Refusal:
    """The free VF that was used longest ago."""
    return free_vgpu_function(state, needs_group=False)
