# SPDX-License-Identifier: Apache-2.0
"""Plain VFs given away by vfio-pci (AMD, Intel); the host's driver has divided the GPU before."""

from collections import Counter

from vgpuctl.model.lease import Share
from vgpuctl.model.sharing import Sharing
from vgpuctl.scheduler.codes import Code
from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.kinds.common import memory_of, numa_node, refuse_board, refuse_unusable
from vgpuctl.scheduler.offer import Answer, Offer, Refusal, ShareRequest


def offers(wanted: ShareRequest, state: GpuState) -> Answer:
    """The free VF of the lowest number, alone in its IOMMU group."""
    refusal = refuse_board(wanted, state) or _refuse_kind(state) or refuse_unusable(state)
    if refusal is not None:
        return refusal
    gpu = state.gpu
    free = [function for function in gpu.vfs if function.address not in state.functions]
    if not free:
        return Refusal(Code.NO_FREE_VF, f"all {len(gpu.vfs)} VFs are in use or promised", "delete a VM on this GPU")
    if not state.facts.iommu_active or all(function.iommu_group is None for function in free):
        return Refusal(
            Code.NO_IOMMU,
            "its VFs are in no IOMMU group",
            "switch VT-d or AMD-Vi on in the firmware and on the kernel's command line, then reboot",
        )
    members = Counter([gpu.iommu_group, *(function.iommu_group for function in gpu.vfs)])
    alone = [one for one in free if one.iommu_group is not None and members[one.iommu_group] == 1]
    if not alone:
        return Refusal(
            Code.GROUP_NOT_ISOLATED,
            "its free VFs share their IOMMU groups with other functions of the card",
            "use a slot whose upstream port has ACS",
        )
    function = min(alone, key=lambda one: one.number)
    memory_mib = memory_of(state) // len(gpu.vfs)
    return [
        Offer(
            Share(
                gpu=gpu.address,
                sharing=Sharing.VF,
                profile=str(Sharing.VF),
                function=function.address,
                framebuffer_mib=memory_mib or None,
                numa_node=numa_node(state),
            ),
            (memory_mib, 0 if len(free) < len(gpu.vfs) else 1, len(free) - 1),
        )
    ]


def _refuse_kind(state: GpuState) -> Refusal | None:
    gpu = state.gpu
    if Sharing.VF in gpu.sharing:
        return None
    if not gpu.total_vfs:
        return Refusal(Code.NO_SRIOV, f"{state.title} has no SR-IOV, or the firmware switched it off")
    if not gpu.vfs:
        return Refusal(
            Code.VFS_NOT_ENABLED,
            f"0 of its {gpu.total_vfs} VFs are enabled",
            f"enable VFs on {gpu.address} with its host driver",
        )
    return Refusal(
        Code.DRIVER,
        f"its driver {gpu.driver or '(none)'} does not give away plain VFs",
        "ask for a vGPU type, see `vgpuctl list-profiles`",
    )
