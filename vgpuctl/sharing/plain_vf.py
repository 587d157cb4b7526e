# SPDX-License-Identifier: Apache-2.0
"""Plain VFs handed out by vfio-pci (AMD, Intel); the host's driver has divided the GPU before.

libvirt binds the VF to vfio-pci (`managed='yes'`), so building takes no step of ours but for the VF's parameters.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts, VirtualFunction
from vgpuctl.agent.wire.sharing import SetVfParams, Sharing
from vgpuctl.agent.wire.vf_health import NVIDIA_VENDOR
from vgpuctl.model.layout import LayoutKind
from vgpuctl.model.lease import Share
from vgpuctl.model.plural import all_are
from vgpuctl.model.units import MIB
from vgpuctl.model.vgpu_params import FunctionParam, VgpuParams, params_text, split_params
from vgpuctl.model.vgpu_terms import VgpuTerms
from vgpuctl.sharing.bound_by_libvirt import BoundByLibvirt, bind_back, release_functions
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.declared import Declared, refuse_use
from vgpuctl.sharing.function_time import refuse_longer
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.kind import GuestDevice, HandedAs, SharingKind, Takes
from vgpuctl.sharing.live_checks import vf_surprise
from vgpuctl.sharing.mps import refuse_mps
from vgpuctl.sharing.occupancy import LiveGpu, vf_at
from vgpuctl.sharing.offer import Answer, Offer, Refusal, ShareRequest
from vgpuctl.sharing.params import of_vf, refuse_vf_params
from vgpuctl.sharing.plan import Plan
from vgpuctl.sharing.refusals import memory_mib, memory_of, numa_node, refuse_board, refuse_unusable


class PlainVf(BoundByLibvirt):
    """The kind `vf`."""

    sharing = Sharing.VF
    takes = Takes.FUNCTION
    handed_as = HandedAs.PLAIN_VF
    is_on_vf = True
    layouts = frozenset((LayoutKind.VF,))

    def refuse_declared(self, declared: Declared, gpu: Gpu, profile: str) -> str | None:
        """The layout is all that counts."""
        return refuse_use(declared, self.layouts)

    def offers(self, share_request: ShareRequest, state: GpuState) -> Answer:
        """The free VF of the lowest number, alone in its IOMMU group."""
        refusal = refuse_board(share_request, state) or self._refuse_kind(state) or refuse_unusable(state)
        if refusal is not None:
            return refusal
        gpu = state.gpu
        free = [function for function in gpu.vfs if function.address not in state.functions]
        if not free:
            return Refusal(
                Code.NO_FREE_VF, f"{all_are(len(gpu.vfs), 'VF')} in use or promised", "delete a VM on this GPU"
            )
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
        share = self._share(gpu, min(alone, key=lambda one: one.number).address, memory_of(state))
        opens = 0 if len(free) < len(gpu.vfs) else 1
        return [Offer(share, (share.framebuffer_mib or 0, opens, len(free) - 1))]

    def check(self, share: Share, live: LiveGpu) -> str | None:
        """Compare the VF with that of the placement."""
        surprise = vf_surprise(share, live)
        if surprise is not None:
            return surprise
        function = vf_at(live.gpu, share.function)
        if not live.facts.iommu_active or function is None or function.iommu_group is None:
            return f"VF {share.function} is in no IOMMU group"
        return None

    def check_kept(self, held: Share, live: LiveGpu) -> str | None:
        """Nobody else takes a VF that is leased."""
        return None

    def build(self, share: Share, gpu: Gpu) -> Plan:
        """No step; the undo brings the VF back to its first driver, should libvirt not have done so."""
        return self.with_params(share, gpu, None)

    def with_params(self, share: Share, gpu: Gpu, params: VgpuParams | None) -> Plan:
        """The VF's parameters. The agent keeps what the driver had before, and gives back what is no longer named."""
        wanted, vf = of_vf(params or ()), vf_at(gpu, share.function)
        had = () if vf is None else set_params(vf)
        steps = () if params is None or wanted == had else (SetVfParams(share.function, params_text(wanted)),)
        undo = (SetVfParams(share.function, params_text(had)),) if steps else ()
        named = f", with {params_text(wanted)}" if wanted else ""
        return Plan(
            steps=steps,
            undo=(*undo, *bind_back(share, {})),
            summary=(f"libvirt binds VF {share.function} to vfio-pci when the VM starts{named}",),
        )

    def refuse_terms(
        self, share: Share, gpu: Gpu, facts: HostFacts, declared: Declared, terms: VgpuTerms
    ) -> Refusal | None:
        """The parameters that the driver has for the VF; the guest's driver works alone."""
        own = of_vf(terms.params)
        reason = refuse_vf_params(own, gpu, share.function) or refuse_longer(own, declared)
        if reason is not None:
            return Refusal(Code.VGPU_PARAMS, reason, "leave the parameter out")
        return refuse_mps(share, gpu, terms)

    def release(self, held: Share, gpu: Gpu | None) -> Plan:
        """Reset the VF, give it the parameters back that its driver had for it, and bind it to its first driver."""
        plan = release_functions(held, gpu, can_reset=True)
        vf = None if gpu is None else vf_at(gpu, held.function)
        if gpu is not None and (vf is None or vf.first_params is None):
            return plan
        said = f"give VF {held.function} back what its driver had for it"
        step = SetVfParams(held.function, "")
        return replace(plan, steps=(*plan.steps, step), summary=(*plan.summary, said))

    def guest_devices(self, share: Share) -> tuple[GuestDevice, ...]:
        """The VF."""
        return (GuestDevice(share.function, managed=True),)

    def recognise(self, device: str, beside: Sequence[str], gpu: Gpu) -> Share | str | None:
        """A VF of the GPU that carries no vGPU; the kinds of vGPUs are asked before."""
        if vf_at(gpu, device) is None:
            return None
        if gpu.vendor_id == NVIDIA_VENDOR:
            return f"its VF {device} has no vGPU type"
        board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
        return self.as_found(self._share(gpu, device, memory_mib(gpu, board)), gpu)

    def _share(self, gpu: Gpu, function: str, memory: int) -> Share:
        return Share(
            gpu=gpu.address,
            sharing=self.sharing,
            profile=str(self.sharing),
            function=function,
            framebuffer_mib=_quota_mib(vf_at(gpu, function)) or memory // len(gpu.vfs) or None,
            numa_node=numa_node(gpu),
            milli_gpus=1000 // len(gpu.vfs),
        )

    def _refuse_kind(self, state: GpuState) -> Refusal | None:
        gpu = state.gpu
        if self.sharing in gpu.sharing:
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


def set_params(vf: VirtualFunction) -> VgpuParams:
    """The parameters that the agent has set for a VF, as they are now."""
    names = dict(split_params(vf.first_params))
    return tuple(one for one in split_params(vf.vgpu_params) if one[0] in names)


def _quota_mib(vf: VirtualFunction | None) -> int:
    """The memory that the driver has for a VF, 0 where it does not tell."""
    quota = "" if vf is None else dict(split_params(vf.vgpu_params)).get(FunctionParam.VRAM_QUOTA, "")
    return int(quota) // MIB if quota.isdigit() else 0


KIND: SharingKind = PlainVf()
