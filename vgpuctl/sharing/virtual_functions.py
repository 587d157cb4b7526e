# SPDX-License-Identifier: Apache-2.0
"""Choosing a VF: of the free ones that can carry a vGPU the one that was used longest ago (least recently used).

A VF that a killed QEMU left broken looks healthy; by the lowest number every next VM would get that one.
"""

from collections.abc import Container

from vgpuctl.agent.wire.facts import Gpu, VirtualFunction
from vgpuctl.agent.wire.vf_health import is_usable
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gpu_state import BY_USE, GpuState
from vgpuctl.sharing.offer import Refusal


def next_free(gpu: Gpu, taken: Container[str], *, needs_group: bool) -> VirtualFunction:
    """The VF that the next vGPU gets: used longest ago, then of the lowest number. Raises ValueError without any."""
    for one in sorted(gpu.vfs, key=BY_USE):
        if one.address not in taken and is_usable(one) and (one.iommu_group is not None or not needs_group):
            return one
    raise ValueError(f"{gpu.address} has no free VF")


def free_vgpu_function(state: GpuState, *, needs_group: bool) -> str | Refusal:
    """A VF that can carry a vGPU: healthy, and neither in use nor promised nor in quarantine."""
    for one in state.usable_functions:
        if one.iommu_group is not None or not needs_group:
            return one.address
    if state.usable_functions:
        return Refusal(
            Code.NO_IOMMU,
            "its VFs are in no IOMMU group",
            "switch VT-d or AMD-Vi on in the firmware and on the kernel's command line, then reboot",
        )
    total = len(state.gpu.vfs)
    sick = sum(one.address not in state.functions for one in state.gpu.vfs)
    reason = f"{total - sick} of its {total} VFs are in use, promised or in quarantine"
    reason += f"; {sick} cannot carry a vGPU (see `vgpuctl check-hosts`)" if sick else ""
    if not sick:
        return Refusal(Code.NO_FREE_VF, reason, "delete a VM on this GPU; `vgpuctl list-gpus` shows VFs in quarantine")
    return Refusal(Code.NO_FREE_VF, reason, f"`vgpuctl check-hosts --limit {state.host}` says how to recreate its VFs")
