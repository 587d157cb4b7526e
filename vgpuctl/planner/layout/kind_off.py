# SPDX-License-Identifier: Apache-2.0
"""Nothing for VMs: no VFs, no MIG, on the vendor's driver."""

from vgpuctl.model.layout import OffLayout
from vgpuctl.planner.layout import driver, mig_mode, shares, vgpu_settings, virtual_functions
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.work import GpuWork


def plan(work: GpuWork, layout: OffLayout) -> None:
    """Plan one GPU."""
    driver.ensure_vendor_driver(work)
    vgpu_settings.check_no_vgpus(work)
    mig_mode.ensure(work, enabled=False)
    virtual_functions.ensure(work, 0, phase=Phase.TEAR_DOWN)
    shares.tear_down(work)
