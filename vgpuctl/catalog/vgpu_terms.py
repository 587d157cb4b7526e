# SPDX-License-Identifier: Apache-2.0
"""The terms of a VM's vGPUs, as its request and the profile of its operating system have them."""

from vgpuctl.catalog.guest_os import GUEST_OSES
from vgpuctl.model.vgpu_terms import NO_TERMS, VgpuTerms
from vgpuctl.model.vm import VmRequest


def terms_of(request: VmRequest) -> VgpuTerms:
    """The terms of the VM, which no type of vGPU names."""
    if not request.gpus:
        return NO_TERMS
    profile = GUEST_OSES.get(request.os or "")
    return VgpuTerms(
        params=request.vgpu_params,
        is_linux=None if profile is None else not profile.is_windows,
        guest_driver=request.guest_driver.version,
        shows_vgpu=request.display.shows_vgpu,
        mps=request.guest.mps,
    )
