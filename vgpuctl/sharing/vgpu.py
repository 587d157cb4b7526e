# SPDX-License-Identifier: Apache-2.0
"""The part that all kinds of vGPUs have in common: types, offers and checks; and a GPU that offers no vGPU."""

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from dataclasses import replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts, VgpuType, VirtualFunction
from vgpuctl.agent.wire.sharing import MakeVgpu, Sharing, VgpuStep
from vgpuctl.agent.wire.vf_health import is_usable
from vgpuctl.model.display import VgpuDisplay
from vgpuctl.model.layout import LayoutKind
from vgpuctl.model.lease import Share
from vgpuctl.model.version import version_of
from vgpuctl.model.vgpu_params import VgpuParams, params_text
from vgpuctl.model.vgpu_terms import VgpuTerms
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.declared import Declared, refuse_type, refuse_use
from vgpuctl.sharing.gpu_state import BY_USE, GpuState, framebuffer_of, max_instances_of
from vgpuctl.sharing.guest_drivers import refuse_guest_driver
from vgpuctl.sharing.hot_plug import HotPlug, PlugTime
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.live_checks import carrier_surprise, instance_surprise, type_surprise, vf_surprise
from vgpuctl.sharing.mixed_size import first_start
from vgpuctl.sharing.mps import refuse_mps
from vgpuctl.sharing.occupancy import ExistingVgpu, LiveGpu
from vgpuctl.sharing.offer import Answer, Offer, Refusal, ShareRequest
from vgpuctl.sharing.params import of_vgpu, params_on, refuse_params
from vgpuctl.sharing.plan import Plan
from vgpuctl.sharing.refusals import can_do_vgpu, declared_otherwise, numa_node, refuse_board, refuse_unusable
from vgpuctl.sharing.type_names import describe_type, has_type_of, likely_name, numbered_now, refuse_type_gone
from vgpuctl.sharing.vgpu_types import fitting_types, left_after, refuse_missing_type, usable_types


# Choosing a VF: of the free ones that can carry a vGPU the one that was used longest ago (least recently used).
#
# A VF that a killed QEMU left broken looks healthy; by the lowest number every next VM would get that one.
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


class Vgpu(ABC):
    """A kind of vGPU. needs_group: True if the VF itself goes to the VM, and so needs an IOMMU group.

    Where MIG-backed types can be created is asked of the type, for every kind alike (vgpu_types.py).
    """

    sharing: Sharing
    takes = Takes.VGPU
    is_on_vf = True
    is_bound_by_libvirt = False
    layouts = frozenset((LayoutKind.VGPU, LayoutKind.MIG_VGPU))
    needs_group = False
    console_since: Mapping[VgpuDisplay, tuple[int, ...]]
    """The first libvirt that shows the picture of such a device, by how."""

    @abstractmethod
    def existing(self, gpu: Gpu) -> list[ExistingVgpu]:
        """Every vGPU of this kind on the GPU."""

    @abstractmethod
    def make(self, vgpu: ExistingVgpu) -> MakeVgpu:
        """The step that makes the vGPU."""

    @abstractmethod
    def remove(self, vgpu: ExistingVgpu) -> VgpuStep:
        """The step that removes the vGPU."""

    @abstractmethod
    def removal_by_hand(self, vgpu: ExistingVgpu) -> str:
        """Say how an operator removes the vGPU without vgpuctl."""

    @abstractmethod
    def describe_make(self, vgpu: ExistingVgpu, profile: str) -> str:
        """Say in words that the vGPU is made."""

    def refuse_host(self, facts: HostFacts) -> Refusal | None:
        """Any host can."""
        return None

    def refuse_console(self, display: VgpuDisplay, libvirt_version: str | None) -> Refusal | None:
        """libvirt has learned it at some time; an unknown version counts as able."""
        version, since = version_of(libvirt_version), self.console_since[display]
        if not version or version >= since:
            return None
        needed = ".".join(map(str, since))
        return Refusal(
            Code.LIBVIRT_TOO_OLD,
            f"libvirt {libvirt_version} cannot show the picture of a {self.sharing} vGPU ({display}); "
            f"{needed} and newer can",
            f"install libvirt {needed} or newer on the host, or use an emulated adapter (`video: bochs`)",
        )

    def refuse_declared(self, declared: Declared, gpu: Gpu, profile: str) -> str | None:
        """A layout may allow some types only."""
        return refuse_use(declared, self.layouts) or refuse_type(declared, gpu, profile)

    def offers(self, share_request: ShareRequest, state: GpuState) -> Answer:
        """One offer per framebuffer size that fits the request and can still be created."""
        named = fitting_types(share_request.request, state)
        if not named:
            return refuse_missing_type(share_request, state)
        other = refuse_board(share_request, state)
        if other is not None:
            return other
        reasons = [refuse_type(state.declared, state.gpu, catalog.short_name(one.name)) for one in named]
        fitting = [one for one, reason in zip(named, reasons, strict=True) if reason is None]
        if not fitting:
            return declared_otherwise(reasons[0] or "", state)
        refusal = refuse_unusable(state)
        if refusal is not None:
            return refusal
        types = usable_types(share_request, fitting, state)
        if isinstance(types, Refusal):
            return types
        function = self.refuse_host(state.facts) or self._free_function(state)
        if isinstance(function, Refusal):
            return function
        return [self._offer(offered, function, state) for offered in types]

    def hot_plug(self, share: Share, display: VgpuDisplay) -> HotPlug:
        """QEMU has a device of its own for ramfb that it does not plug (hw/vfio/pci.c, vfio-pci-nohotplug).

        libvirt plugs any other vGPU. NVIDIA's vGPU software documentation names hypervisors for that, without KVM.
        """
        if display is VgpuDisplay.RAMFB:
            return HotPlug(PlugTime.NEXT_START, "QEMU attaches no vGPU with ramfb to a guest that runs")
        return HotPlug(PlugTime.ON_REQUEST, "NVIDIA documents no hot-plug of vGPUs for KVM")

    def same_on(self, example: Share, gpu: Gpu, taken: Container[str]) -> Share | None:
        """The same type, on the function that this GPU would use."""
        function = gpu.address
        if self.is_on_vf:
            function = next_free(gpu, taken, needs_group=self.needs_group).address
        return Share(
            gpu.address,
            example.sharing,
            example.profile,
            function,
            example.type_id,
            framebuffer_mib=example.framebuffer_mib,
            numa_node=example.numa_node,
            placement_start=example.placement_start,
            board=example.board,
            milli_gpus=example.milli_gpus,
        )

    def named(self, share: Share, identity: str) -> Share:
        """The device is the VF."""
        return share

    def check(self, share: Share, live: LiveGpu) -> str | None:
        """Compare libvirt, VF and type with those of the placement."""
        refusal = self.refuse_host(live.facts)
        if refusal is not None:
            return refusal.reason
        surprise = None
        if self.is_on_vf:
            surprise = vf_surprise(share, live) or carrier_surprise(share, live.gpu)
        return surprise or type_surprise(share, live.gpu)

    def check_kept(self, held: Share, live: LiveGpu) -> str | None:
        """A vGPU that a VM kept is nobody else's.

        Where a reboot has taken it, its VF may carry another one by now, and a MIG instance may be missing.
        """
        own = next((one for one in live.vgpus if one.vfio_device == held.vfio_device), None)
        if own is not None and has_type_of(own, held):
            return None
        other = own or next((one for one in live.vgpus if self.is_on_vf and one.function == held.function), None)
        if other is not None:
            where = f"its VF {held.function}" if self.is_on_vf else f"its mdev {held.mdev_uuid}"
            return (
                f"{where} carries {describe_type(other)} now, which is not the VM's {held.profile}; "
                f"if it is nobody's: {self.removal_by_hand(other)}"
            )
        surprise = instance_surprise(held, live.gpu)
        if surprise is None and (gone := refuse_type_gone(held, live.gpu)) is not None:
            surprise = f"{gone}; `vgpuctl resize-vm --gpu` gives the VM another"
        return surprise

    def with_first_drivers(self, share: Share, gpu: Gpu) -> Share:
        """The function stays on its driver."""
        return share

    def build(self, share: Share, gpu: Gpu) -> Plan:
        """Make the vGPU; one that a VM kept is there already and stays when the start is rolled back.

        Its parameters stay as they are. Raises ValueError for a share without type.
        """
        return self.with_params(share, gpu, None)

    def with_params(self, share: Share, gpu: Gpu, params: VgpuParams | None) -> Plan:
        """The step that makes the vGPU writes its parameters too, in the order that the driver wants.

        params: None to leave those that it has.
        """
        if share.type_id is None:
            raise ValueError(f"the share {share.profile} on {share.function} has no type id")
        params = None if params is None else of_vgpu(params)
        share = numbered_now(share, gpu)
        vgpu = ExistingVgpu(
            share.gpu, share.sharing, share.function, share.type_id, share.mdev_uuid, profile=share.profile
        )
        found = next((one for one in self.existing(gpu) if one == vgpu), None)
        step = self.make(vgpu if params is None else replace(vgpu, params=params_text(params)))
        if params == () and found is not None and found.params:
            step = replace(step, params="")
        with_them = f" with {params_text(params)}" if params else ""
        return Plan(
            steps=(step,),
            undo=() if found is not None else (self.remove(vgpu),),
            summary=(f"{self.describe_make(vgpu, share.profile)}{with_them}",),
        )

    def refuse_terms(
        self, share: Share, gpu: Gpu, facts: HostFacts, declared: Declared, terms: VgpuTerms
    ) -> Refusal | None:
        """The driver's rules about parameters, the versions that host and guest negotiate, and MPS in the guest."""
        reason = refuse_params(params_on(declared, of_vgpu(terms.params)), terms, gpu, share.profile)
        if reason is not None:
            return Refusal(Code.VGPU_PARAMS, reason, "leave the parameter out of the VM, or of the host's layout")
        return refuse_guest_driver(terms.guest_driver, facts.nvidia_driver) or refuse_mps(share, gpu, terms)

    def _free_function(self, state: GpuState) -> str | Refusal:
        """The PF, or the free VF that was used longest ago."""
        if not self.is_on_vf:
            return state.gpu.address
        return free_vgpu_function(state, needs_group=self.needs_group)

    def _offer(self, offered: VgpuType, function: str, state: GpuState) -> Offer:
        size = framebuffer_of(offered, state.board)
        carries = any(held.framebuffer_mib == size for held in state.vgpus)
        return Offer(
            Share(
                gpu=state.gpu.address,
                sharing=self.sharing,
                profile=catalog.short_name(offered.name),
                function=function,
                type_id=offered.type_id,
                framebuffer_mib=size,
                numa_node=numa_node(state.gpu),
                placement_start=first_start(offered, state),
                board=catalog.board_beside(catalog.short_name(offered.name), state.board),
                milli_gpus=_milli_gpus(offered, state.board),
            ),
            (size or 0, 0 if carries else 1, left_after(offered, state)),
        )

    def _as_found(self, gpu: Gpu, vgpu: ExistingVgpu) -> Share | str | None:
        """The share that an existing vGPU is, or the reason why it is not known."""
        if vgpu.type_id is None:
            return f"its mdev {vgpu.mdev_uuid} does not exist"
        offered = next((one for one in gpu.types if one.type_id == vgpu.type_id), None)
        board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
        name = likely_name(gpu, vgpu.type_id)
        if name is None:
            return f"the type {vgpu.type_id} of {vgpu.vfio_device} is not known"
        known = catalog.type_by_name(board, name) if board is not None else None
        size = offered.framebuffer_mib if offered is not None else None
        return Share(
            gpu=gpu.address,
            sharing=self.sharing,
            profile=name,
            function=vgpu.function,
            type_id=vgpu.type_id,
            mdev_uuid=vgpu.mdev_uuid,
            framebuffer_mib=size if size is not None or known is None else known.fb_mib,
            numa_node=numa_node(gpu),
            board=catalog.board_beside(name, board),
            milli_gpus=None if offered is None else _milli_gpus(offered, board),
        )


def _milli_gpus(offered: VgpuType, board: catalog.Board | None) -> int | None:
    """Thousandths of the GPU that a time-sliced type stands for; None of a MIG-backed one, whose name tells it."""
    most = max_instances_of(offered, board)
    return None if not most or catalog.is_mig_backed(offered.name) else 1000 // most


def refuse_without_vgpu(share_request: ShareRequest, state: GpuState) -> Refusal:
    """Say why a GPU that offers no vGPU now does not: its model, its state, or its driver."""
    gpu = state.gpu
    if state.board is not None and (not can_do_vgpu(state.board) or not _board_could(share_request, state)):
        return refuse_missing_type(share_request, state)
    refusal = refuse_board(share_request, state) or refuse_unusable(state)
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


def _board_could(share_request: ShareRequest, state: GpuState) -> bool:
    """True if the catalogue knows a type of this model that the request could mean."""
    if state.board is None:
        return True
    if share_request.request.profile is not None:
        return catalog.type_by_name(state.board, share_request.request.profile) is not None
    return True
