# SPDX-License-Identifier: Apache-2.0
"""The plan of one GPU, by the kind that its layout declares."""

from collections.abc import Sequence

from vgpuctl.catalog import VfPartition
from vgpuctl.model.layout import MigLayout, MigVgpuLayout, OffLayout, OwnLayout, PassthroughLayout, VfLayout, VgpuLayout
from vgpuctl.model.vgpu_params import params_text
from vgpuctl.planner.layout import (
    driver,
    function_params,
    instances,
    mig_mode,
    shares,
    vgpu_settings,
    virtual_functions,
)
from vgpuctl.planner.layout.result import Phase
from vgpuctl.planner.layout.vgpu_boards import FIRMWARE, vfs_for_vgpu
from vgpuctl.planner.layout.work import GpuWork


def plan_passthrough(work: GpuWork, layout: PassthroughLayout) -> None:
    """A whole card: no VFs and no MIG, and bound to vfio-pci ahead of any VM where that is declared."""
    vgpu_settings.check_no_vgpus(work)
    mig_mode.ensure(work, enabled=False)
    virtual_functions.ensure(work, 0, phase=Phase.TEAR_DOWN)
    shares.tear_down(work)
    if layout.driver == driver.VFIO_PCI:
        driver.ensure_vfio(work)


def plan_vgpu(work: GpuWork, layout: VgpuLayout) -> None:
    """Time-sliced vGPUs: MIG off, VFs where the board needs them, size mode, scheduler, shares."""
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


def plan_mig(work: GpuWork, layout: MigLayout) -> None:
    """MIG for the host itself: MIG on, no VFs, instances with a compute instance each."""
    if not work.is_nvidia:
        work.block("wrong-vendor", f"{work.name} has no MIG")
        return
    driver.ensure_vendor_driver(work)
    mig_mode.ensure(work, enabled=True)
    virtual_functions.ensure(work, 0, phase=Phase.TEAR_DOWN)
    if not work.obstacles:
        instances.ensure(work, layout.instances, compute_instance=True)


def plan_mig_vgpu(work: GpuWork, layout: MigVgpuLayout) -> None:
    """vGPUs in MIG instances: MIG on, then the VFs, then the instances, then what vGPUs need (reference 5.3)."""
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


GIM = "gim"


def _partition_words(partitions: Sequence[VfPartition]) -> str:
    """Counts of VFs with their modes: `1 (SPX, NPS1), 8 (CPX, NPS4, matching firmware)`."""
    words = []
    for one in partitions:
        firmware = "matching firmware" if one.needs_firmware else None
        modes = ", ".join(mode for mode in (one.compute, one.memory, firmware) if mode is not None)
        words.append(f"{one.vfs} ({modes})" if modes else str(one.vfs))
    return ", ".join(words)


def plan_vf(work: GpuWork, layout: VfLayout) -> None:
    """Plain VFs of AMD's and Intel's GPUs (reference 8).

    AMD's gim makes its VFs when it is loaded, so their count is a matter of its options.
    """
    if work.is_nvidia:
        work.block("wrong-vendor", f"{work.name} has no plain VFs for VMs", remedy="declare kind vgpu")
        return
    if layout.count > work.gpu.total_vfs:
        reason = f"{work.name} at {work.address} can have {work.gpu.total_vfs} VFs, not {layout.count}"
        work.block("too-many-vfs", reason, remedy=FIRMWARE if work.gpu.total_vfs == 0 else None)
        return
    is_there = len(work.gpu.vfs) == layout.count
    known = work.board.sriov.partitions if work.board is not None and work.board.sriov is not None else ()
    partition = next((one for one in known if one.vfs == layout.count), None)
    if known and partition is None and not is_there:
        reason = f"the releases of {work.name}'s driver name no {layout.count} VFs"
        work.block("vfs-not-supported", reason, remedy=f"declare a count that they name: {_partition_words(known)}")
        return
    if work.gpu.driver == GIM and not is_there:
        work.differ("virtual-functions", layout.count, len(work.gpu.vfs))
        modes = ""
        if partition is not None and partition.compute is not None:
            modes = f"give the GPU the partitions of {_partition_words([partition])} with `amd-smi partition`, "
        work.block(
            "vfs-by-module",
            f"{GIM} makes the VFs of {work.address} when it is loaded",
            remedy=f"{modes}set vf_num={layout.count} in /etc/modprobe.d or /etc/gim_config, and load {GIM} again",
        )
        return
    driver.ensure_vendor_driver(work)
    virtual_functions.ensure(work, layout.count)
    function_params.ensure(work, layout)


def plan_off(work: GpuWork, layout: OffLayout) -> None:
    """Nothing for VMs: no VFs, no MIG, on the vendor's driver."""
    driver.ensure_vendor_driver(work)
    vgpu_settings.check_no_vgpus(work)
    mig_mode.ensure(work, enabled=False)
    virtual_functions.ensure(work, 0, phase=Phase.TEAR_DOWN)
    shares.tear_down(work)


def plan_own(work: GpuWork, layout: OwnLayout) -> None:
    """The host's own, for its containers: no VM, no VFs, MIG with these instances or off.

    A GPU that a VM has, or is promised by a lease or reservation, gets no step, so that no VM ends for a container.
    """
    if not work.is_nvidia:
        work.block("wrong-vendor", f"{work.name} has no device nodes of NVIDIA's driver", remedy="declare kind off")
        return
    promised = [f"reservation {one.name} of {one.tenant}" for one in work.reserved]
    if work.users or promised:
        who = "; ".join([*map(str, work.users), *promised])
        ways = ["`vgpuctl move-vm`", "`vgpuctl delete-vm`"] if work.users else []
        ways += ["`vgpuctl cancel-reservation`"] if promised else []
        remedy = f"move, delete or cancel them first: {', '.join(ways)}"
        work.block("used-by-vms", f"{work.address} cannot be the host's own yet: {who}", remedy=remedy)
        return
    if layout.instances:
        plan_mig(work, MigLayout(layout.instances))
    else:
        plan_off(work, OffLayout())
