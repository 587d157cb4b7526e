# SPDX-License-Identifier: Apache-2.0
"""Other framebuffer sizes of the same board and series."""

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.scheduler.advice.measured import MeasuredFleet, MeasuredVgpu

HEADROOM = 1.25
"""A profile must hold this much more than the guest ever used."""


def gpu_of(fleet: MeasuredFleet, vgpu: MeasuredVgpu) -> Gpu | None:
    """The GPU that a vGPU is on, None where its host's facts are not known."""
    capacity = fleet.capacity(vgpu.lease.host)
    if capacity is None:
        return None
    return next((gpu for gpu in capacity.facts.gpus if gpu.address == vgpu.lease.share.gpu), None)


def other_sizes(fleet: MeasuredFleet, vgpu: MeasuredVgpu) -> list[tuple[int, str]]:
    """Size in MiB and name of the time-sliced types that differ from the vGPU's in size alone, the smallest first."""
    gpu, name = gpu_of(fleet, vgpu), vgpu.lease.share.profile
    board = None if gpu is None else catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    if board is None or catalog.is_mig_backed(name):
        return []
    own = catalog.type_by_name(board, name)
    if own is None:
        return []
    prefix, _, _ = name.rpartition("-")
    return sorted(
        (one.fb_mib, one.name)
        for one in catalog.types_of(board)
        if catalog.series_of(one.name) == catalog.series_of(name)
        and one.name.rpartition("-")[0] == prefix
        and not catalog.is_mig_backed(one.name)
        and one.fb_mib != own.fb_mib
        and one.name[-1] == name[-1]
    )
