# SPDX-License-Identifier: Apache-2.0
"""Mediated devices on the PF (Maxwell to Turing, Intel GVT-g): every vGPU of the GPU hangs on the same function."""

from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.offer import Refusal


def free_function(state: GpuState) -> str | Refusal:
    """The PF; the mdev's UUID makes the share unique and is given when the lease is made."""
    return state.gpu.address
