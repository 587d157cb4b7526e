# SPDX-License-Identifier: Apache-2.0
"""vGPU of any kind: asks the kinds that the GPU offers now, or says why it offers none."""

from collections.abc import Callable, Container

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, VgpuType
from vgpuctl.model.lease import Share
from vgpuctl.model.sharing import Sharing
from vgpuctl.scheduler.codes import Code
from vgpuctl.scheduler.gpu_state import GpuState, framebuffer_of
from vgpuctl.scheduler.kinds import mdev, mdev_vf, vf_profile
from vgpuctl.scheduler.kinds.common import can_do_vgpu, declared_otherwise, numa_node, refuse_unusable
from vgpuctl.scheduler.kinds.mixed_size import first_start
from vgpuctl.scheduler.kinds.vgpu_types import fitting_types, left_after, refuse_missing_type, usable_types
from vgpuctl.scheduler.kinds.virtual_functions import next_free
from vgpuctl.scheduler.offer import Answer, Offer, Refusal, ShareRequest
from vgpuctl.sharing.declared import refuse_type

_FUNCTION_OF: dict[Sharing, Callable[[GpuState], str | Refusal]] = {
    Sharing.VF_PROFILE: vf_profile.free_function,
    Sharing.MDEV_VF: mdev_vf.free_function,
    Sharing.MDEV: mdev.free_function,
}


def offers(wanted: ShareRequest, state: GpuState) -> Answer:
    """One offer per framebuffer size that fits the request and can still be created."""
    kind = next((one for one in _FUNCTION_OF if one in state.gpu.sharing), None)
    if kind is None:
        return _refuse_without_vgpu(wanted, state)
    named = fitting_types(wanted.request, state)
    if not named:
        return refuse_missing_type(wanted, state)
    reasons = [refuse_type(state.declared, state.gpu, catalog.short_name(one.name)) for one in named]
    fitting = [one for one, reason in zip(named, reasons, strict=True) if reason is None]
    if not fitting:
        return declared_otherwise(reasons[0] or "", state)
    refusal = refuse_unusable(state)
    if refusal is not None:
        return refusal
    types = usable_types(wanted, fitting, state)
    if isinstance(types, Refusal):
        return types
    function = _FUNCTION_OF[kind](state)
    if isinstance(function, Refusal):
        return function
    return [_offer(kind, offered, function, state) for offered in types]


def next_function(kind: Sharing, gpu: Gpu, taken: Container[str]) -> str:
    """The VF that the next vGPU of this kind gets on a GPU that can take one."""
    return next_free(gpu, taken, needs_group=kind is Sharing.VF_PROFILE).address


def _offer(kind: Sharing, offered: VgpuType, function: str, state: GpuState) -> Offer:
    size = framebuffer_of(offered, state.board)
    carries = any(held.framebuffer_mib == size for held in state.vgpus)
    return Offer(
        Share(
            gpu=state.gpu.address,
            sharing=kind,
            profile=catalog.short_name(offered.name),
            function=function,
            type_id=offered.type_id,
            framebuffer_mib=size,
            numa_node=numa_node(state),
            placement_start=first_start(offered, state),
        ),
        (size or 0, 0 if carries else 1, left_after(offered, state)),
    )


def _refuse_without_vgpu(wanted: ShareRequest, state: GpuState) -> Refusal:
    """Say why a GPU that offers no vGPU now does not: its model, its state, or its driver."""
    gpu = state.gpu
    if state.board is not None and (not can_do_vgpu(state.board) or not _board_could(wanted, state)):
        return refuse_missing_type(wanted, state)
    refusal = refuse_unusable(state)
    if refusal is not None:
        return refusal
    if gpu.driver != "nvidia":
        found = f"it is bound to {gpu.driver}" if gpu.driver else "no driver is bound"
        return Refusal(Code.DRIVER, f"{found}; vGPUs need the driver nvidia", "bind the GPU to nvidia (vGPU manager)")
    on_vfs = state.board is None or state.board.interface == "sriov-vf"
    if gpu.total_vfs and not gpu.vfs and on_vfs:
        if not state.facts.iommu_active:
            return Refusal(
                Code.NO_IOMMU,
                "the host's IOMMU is off, and the vGPU driver enables no VFs without it",
                "switch VT-d or AMD-Vi on in the firmware and on the kernel's command line, then reboot",
            )
        return Refusal(
            Code.VFS_NOT_ENABLED,
            f"0 of its {gpu.total_vfs} VFs are enabled",
            f"enable them: `sriov-manage -e {gpu.address}`",
        )
    return Refusal(
        Code.DRIVER,
        "its driver nvidia offers no vGPU types, so it is not the vGPU manager",
        "install NVIDIA's vGPU manager for KVM",
    )


def _board_could(wanted: ShareRequest, state: GpuState) -> bool:
    """Whether the catalogue knows a type of this model that the request could mean."""
    if state.board is None:
        return True
    if wanted.request.profile is not None:
        return catalog.type_by_name(state.board, wanted.request.profile) is not None
    return True
