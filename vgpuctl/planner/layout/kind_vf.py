# SPDX-License-Identifier: Apache-2.0
"""Plain VFs of AMD's and Intel's GPUs (reference 8)."""

from vgpuctl.model.layout import VfLayout
from vgpuctl.planner.layout import driver, virtual_functions
from vgpuctl.planner.layout.vgpu_boards import FIRMWARE
from vgpuctl.planner.layout.work import GpuWork

GIM = "gim"


def plan(work: GpuWork, layout: VfLayout) -> None:
    """Plan one GPU. AMD's gim makes its VFs when it is loaded, so their count is a matter of its options."""
    if work.is_nvidia:
        work.block("wrong-vendor", f"{work.name} has no plain VFs for VMs", remedy="declare kind vgpu")
        return
    if layout.count > work.gpu.total_vfs:
        reason = f"{work.name} at {work.address} can have {work.gpu.total_vfs} VFs, not {layout.count}"
        work.block("too-many-vfs", reason, remedy=FIRMWARE if work.gpu.total_vfs == 0 else None)
        return
    if work.gpu.driver == GIM and len(work.gpu.vfs) != layout.count:
        work.differ("virtual-functions", layout.count, len(work.gpu.vfs))
        work.block(
            "vfs-by-module",
            f"{GIM} makes the VFs of {work.address} when it is loaded",
            remedy=f"set vf_num={layout.count} in /etc/modprobe.d or /etc/gim_config, and load {GIM} again",
        )
        return
    driver.ensure_vendor_driver(work)
    virtual_functions.ensure(work, layout.count)
