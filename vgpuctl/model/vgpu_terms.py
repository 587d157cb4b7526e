# SPDX-License-Identifier: Apache-2.0
"""The terms of a VM for its vGPUs: parameters of the plugin, and a driver in the guest that works with the host's."""

from dataclasses import dataclass

from vgpuctl.model.mps import Mps
from vgpuctl.model.vgpu_params import VgpuParams


@dataclass(frozen=True)
class VgpuTerms:
    """params: the VM's own, which win over those of the host's layout. is_linux: None where the system is not said.

    guest_driver: version or branch of NVIDIA's driver in the guest, None where nothing tells it. shows_vgpu: True if
    the console shows a vGPU's picture. mps: MPS in the guest, which whole cards are asked for too.
    """

    params: VgpuParams = ()
    is_linux: bool | None = None
    guest_driver: str | None = None
    shows_vgpu: bool = False
    mps: Mps | None = None


NO_TERMS = VgpuTerms()
