# SPDX-License-Identifier: Apache-2.0
"""MIG for the host itself: MIG on, no VFs, instances with a compute instance each."""

from vgpuctl.model.layout import MigLayout
from vgpuctl.planner.layout import driver, instances, mig_mode, virtual_functions
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.work import GpuWork


def plan(work: GpuWork, layout: MigLayout) -> None:
    """Plan one GPU."""
    if not work.is_nvidia:
        work.block("wrong-vendor", f"{work.name} has no MIG")
        return
    driver.ensure_vendor_driver(work)
    mig_mode.ensure(work, enabled=True)
    virtual_functions.ensure(work, 0, phase=Phase.TEAR_DOWN)
    if not work.obstacles:
        instances.ensure(work, layout.instances, compute_instance=True)
