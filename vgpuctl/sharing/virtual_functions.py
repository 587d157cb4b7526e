# SPDX-License-Identifier: Apache-2.0
"""Choosing a VF: of the free ones that can carry a vGPU the one that was used longest ago (least recently used).

A VF that a killed QEMU left broken looks healthy; by the lowest number every next VM would get that one.
"""

from collections.abc import Container
from operator import attrgetter

from vgpuctl.agent.wire.facts import Gpu, VirtualFunction
from vgpuctl.agent.wire.vf_health import is_usable
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.offer import Refusal

_TURN = attrgetter("last_use", "number")


def next_free(gpu: Gpu, taken: Container[str], *, needs_group: bool) -> VirtualFunction:
    """The VF that the next vGPU gets: used longest ago, then of the lowest number. Raises ValueError without any."""
    for one in sorted(gpu.vfs, key=_TURN):
        if one.address not in taken and _is_able(one, needs_group=needs_group):
            return one
    raise ValueError(f"{gpu.address} has no free VF")


def free_vgpu_function(state: GpuState, *, needs_group: bool) -> str | Refusal:
    """A VF that can carry a vGPU: healthy, and neither in use nor promised nor in quarantine."""
    free = [one for one in state.gpu.vfs if one.address not in state.functions]
    usable = [one for one in free if is_usable(one)]
    able = [one for one in usable if _is_able(one, needs_group=needs_group)]
    if able:
        return min(able, key=_TURN).address
    if usable:
        return Refusal(
            Code.NO_IOMMU,
            "its VFs are in no IOMMU group",
            "switch VT-d or AMD-Vi on in the firmware and on the kernel's command line, then reboot",
        )
    total = len(state.gpu.vfs)
    reason = f"{total - len(free)} of its {total} VFs are in use, promised or in quarantine"
    reason += f"; {len(free)} cannot carry a vGPU (see `vgpuctl check-hosts`)" if free else ""
    if not free:
        return Refusal(Code.NO_FREE_VF, reason, "delete a VM on this GPU; `vgpuctl list-gpus` shows VFs in quarantine")
    return Refusal(Code.NO_FREE_VF, reason, f"`vgpuctl check-hosts --limit {state.host}` says how to recreate its VFs")


def _is_able(function: VirtualFunction, *, needs_group: bool) -> bool:
    return is_usable(function) and (function.iommu_group is not None or not needs_group)
