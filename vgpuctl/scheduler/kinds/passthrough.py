# SPDX-License-Identifier: Apache-2.0
"""Whole cards with their companion functions, given away by vfio-pci."""

from vgpuctl.model.lease import Slice
from vgpuctl.model.occupancy import describe_holders, strangers_in_group
from vgpuctl.model.sharing import Sharing
from vgpuctl.scheduler.codes import Code
from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.kinds.common import can_do_vgpu, memory_of, numa_node, refuse_board, refuse_unusable
from vgpuctl.scheduler.offer import Answer, Offer, Refusal, Wanted


def offers(wanted: Wanted, state: GpuState) -> Answer:
    """The card, when nobody uses any part of it and its IOMMU group is its own."""
    refusal = refuse_board(wanted, state) or refuse_unusable(state) or _refuse_shared(state) or _refuse_group(state)
    if refusal is not None:
        return refusal
    memory_mib = memory_of(state)
    return [
        Offer(
            Slice(
                gpu=state.gpu.address,
                sharing=Sharing.PASSTHROUGH,
                profile=str(Sharing.PASSTHROUGH),
                function=state.gpu.address,
                framebuffer_mib=memory_mib or None,
                companions=tuple(sorted(companion.address for companion in state.gpu.companions)),
                numa_node=numa_node(state),
            ),
            (1 if _could_be_shared(state) else 0, memory_mib, 0),
        )
    ]


def _could_be_shared(state: GpuState) -> bool:
    """Whether vGPUs could live on the card, so that another is the better one to give away as a whole."""
    return bool(state.gpu.types) or can_do_vgpu(state.board)


def _refuse_shared(state: GpuState) -> Refusal | None:
    gpu = state.gpu
    if state.lease_holders:
        return Refusal(
            Code.RESERVED_BY_LEASE,
            f"parts of it are promised to {', '.join(sorted(set(state.lease_holders)))}",
            "delete these VMs, or ask for a share of the card",
        )
    if state.vgpus:
        return Refusal(
            Code.CARD_IN_USE,
            f"it carries {len(state.vgpus)} vGPUs that vgpuctl did not make",
            "remove them, or ask for a share of the card",
        )
    if state.functions:
        return Refusal(Code.CARD_IN_USE, f"{len(state.functions)} of its VFs are in use", "stop what uses them")
    if gpu.users:
        return Refusal(
            Code.CARD_IN_USE,
            f"the host itself uses it: {describe_holders(gpu.users)}",
            "stop these processes, so that the driver can let go of the card",
        )
    if gpu.vfs:
        return Refusal(
            Code.VFS_ENABLED,
            f"{len(gpu.vfs)} VFs are enabled, so the card is set up to be shared",
            "disable its VFs, or ask for a share of the card",
        )
    return None


def _refuse_group(state: GpuState) -> Refusal | None:
    gpu = state.gpu
    if not state.facts.iommu_active or gpu.iommu_group is None:
        return Refusal(
            Code.NO_IOMMU,
            "it is in no IOMMU group",
            "switch VT-d or AMD-Vi on in the firmware and on the kernel's command line, then reboot",
        )
    if Sharing.PASSTHROUGH in gpu.sharing:
        return None
    strangers = strangers_in_group(gpu)
    if strangers:
        return Refusal(
            Code.GROUP_NOT_ISOLATED,
            f"IOMMU group {gpu.iommu_group} also holds {', '.join(strangers)}",
            "use a slot whose upstream port has ACS",
        )
    return Refusal(
        Code.DRIVER,
        f"the host does not offer it for passthrough (driver {gpu.driver or 'none'})",
        f"look at `vgpuctl inspect-host {state.host}`",
    )
