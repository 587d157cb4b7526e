# SPDX-License-Identifier: Apache-2.0
"""vGPUs in MIG instances: MIG on, then the VFs, then the instances, then what vGPUs need (reference 5.3)."""

from vgpuctl.model.layout import MigVgpuLayout
from vgpuctl.model.vgpu_params import params_text
from vgpuctl.planner.layout import driver, instances, mig_mode, shares, vgpu_settings, virtual_functions
from vgpuctl.planner.layout.vgpu_boards import vfs_for_vgpu
from vgpuctl.planner.layout.work import GpuWork


def plan(work: GpuWork, layout: MigVgpuLayout) -> None:
    """Plan one GPU."""
    count = vfs_for_vgpu(work, None)
    if count is None:
        return
    if count == 0:
        work.block("no-mig", f"vGPUs of {work.name} sit on the GPU itself; it has no MIG")
        return
    driver.ensure_vendor_driver(work)
    mig_mode.ensure(work, enabled=True)
    virtual_functions.ensure(work, count)
    if work.obstacles:
        return
    vgpu_settings.refuse_contradiction(work, layout)
    starts = instances.ensure(work, layout.instances, compute_instance=False)
    vgpu_settings.ensure_instance_size_modes(work, layout.size_mode, starts)
    vgpu_settings.ensure_scheduler(work, layout.scheduler)
    vgpu_settings.check_types(work, layout.types)
    shares.ensure(work, layout.shares, params_text(layout.vgpu_params))
