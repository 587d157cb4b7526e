# SPDX-License-Identifier: Apache-2.0
"""A whole card: no VFs and no MIG, and bound to vfio-pci ahead of any VM where that is declared."""

from vgpuctl.model.layout import PassthroughLayout
from vgpuctl.planner.layout import driver, mig_mode, shares, vgpu_settings, virtual_functions
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.work import GpuWork


def plan(work: GpuWork, layout: PassthroughLayout) -> None:
    """Plan one GPU."""
    vgpu_settings.check_no_vgpus(work)
    mig_mode.ensure(work, enabled=False)
    virtual_functions.ensure(work, 0, phase=Phase.TEAR_DOWN)
    shares.tear_down(work)
    if layout.driver == driver.VFIO_PCI:
        driver.ensure_vfio(work)
