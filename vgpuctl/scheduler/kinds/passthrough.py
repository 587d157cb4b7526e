# SPDX-License-Identifier: Apache-2.0
"""Whole cards with their companion functions, given away by vfio-pci."""

from vgpuctl.model.lease import Share
from vgpuctl.model.sharing import Sharing
from vgpuctl.scheduler.codes import Code
from vgpuctl.scheduler.gpu_state import GpuState
from vgpuctl.scheduler.kinds.common import can_do_vgpu, memory_of, numa_node, refuse_board, refuse_unusable
from vgpuctl.scheduler.offer import Answer, Offer, Refusal, ShareRequest
from vgpuctl.sharing.declared import refuse_display


def offers(wanted: ShareRequest, state: GpuState) -> Answer:
    """The card, when nobody uses any part of it and its IOMMU group is its own."""
    refusal = refuse_board(wanted, state) or refuse_unusable(state)
    refusal = refusal or _refuse_promised(state) or _refuse_obstacle(state) or _refuse_display(state)
    if refusal is not None:
        return refusal
    memory_mib = memory_of(state)
    return [
        Offer(
            Share(
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


def _refuse_promised(state: GpuState) -> Refusal | None:
    if state.lease_holders:
        return Refusal(
            Code.RESERVED_BY_LEASE,
            f"parts of it are promised to {', '.join(sorted(set(state.lease_holders)))}",
            "delete these VMs, or ask for a share of the card",
        )
    return None


def _refuse_display(state: GpuState) -> Refusal | None:
    reason = refuse_display(state.declared, state.gpu)
    if reason is None:
        return None
    remedy = f"declare it `kind: passthrough` in `vgpu:` of {state.host} if the host may lose this display"
    return Refusal(Code.HOST_DISPLAY, reason, remedy)


def _refuse_obstacle(state: GpuState) -> Refusal | None:
    found = state.obstacle
    if found is None:
        return None
    return Refusal(Code(found.code), found.reason, found.remedy or f"look at `vgpuctl inspect-host {state.host}`")
