# SPDX-License-Identifier: Apache-2.0
"""Time-sliced vGPUs: MIG off, VFs where the board needs them, size mode, scheduler, shares."""

from vgpuctl.model.layout import VgpuLayout
from vgpuctl.model.vgpu_params import params_text
from vgpuctl.planner.layout import driver, mig_mode, shares, vgpu_settings, virtual_functions
from vgpuctl.planner.layout.vgpu_boards import vfs_for_vgpu
from vgpuctl.planner.layout.work import GpuWork


def plan(work: GpuWork, layout: VgpuLayout) -> None:
    """Plan one GPU."""
    count = vfs_for_vgpu(work, layout.virtual_functions)
    if count is None:
        return
    driver.ensure_vendor_driver(work)
    mig_mode.ensure(work, enabled=False)
    virtual_functions.ensure(work, count)
    vgpu_settings.refuse_contradiction(work, layout)
    vgpu_settings.ensure_size_mode(work, layout.size_mode)
    vgpu_settings.ensure_scheduler(work, layout.scheduler)
    vgpu_settings.check_types(work, layout.types)
    shares.ensure(work, layout.shares, params_text(layout.vgpu_params))
