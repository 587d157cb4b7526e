# SPDX-License-Identifier: Apache-2.0
"""The GPUs that can carry NVIDIA vGPUs, and how many VFs the vGPUs need."""

from vgpuctl.planner.layout.work import GpuWork

FIRMWARE = "enable SR-IOV and Above 4G decoding in the firmware"


def vfs_for_vgpu(work: GpuWork, declared: bool | None) -> int | None:
    """How many VFs the GPU needs for vGPUs: all it can have, or none where mdevs sit on the PF.

    None when it cannot be; the obstacle is noted. declared: what the layout says of VFs, None for as it needs.
    """
    if not work.is_nvidia:
        work.block("wrong-vendor", f"{work.name} has no NVIDIA vGPU types", remedy="declare kind vf")
        return None
    interface = work.board.interface if work.board else None
    if interface == "none":
        work.block("no-vgpu", f"{work.name} has no vGPU types", remedy="declare passthrough or mig")
        return None
    needs_vfs = interface == "sriov-vf" or (interface is None and work.gpu.total_vfs > 0)
    if declared is True and not needs_vfs:
        work.block("no-virtual-functions", f"vGPUs of {work.name} sit on the GPU itself; it has no VFs")
        return None
    if declared is False and needs_vfs:
        work.block("needs-virtual-functions", f"vGPUs of {work.name} sit on VFs", remedy="leave virtual_functions out")
        return None
    if needs_vfs and work.gpu.total_vfs == 0:
        work.block("sriov-off", f"{work.name} at {work.address} shows no VFs (sriov_totalvfs is 0)", remedy=FIRMWARE)
        return None
    return work.gpu.total_vfs if needs_vfs else 0
