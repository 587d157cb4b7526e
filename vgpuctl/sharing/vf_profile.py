# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vendor-specific VFIO: the type's decimal id is written to the VF's `current_vgpu_type` (reference 4).

The VF stays on NVIDIA's driver and goes to the VM itself (`managed='no'`); one vGPU per VF.
"""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import Gpu, HostFacts, VirtualFunction
from vgpuctl.agent.wire.sharing import SetVfProfile, Sharing, VgpuStep
from vgpuctl.model.display import VgpuDisplay
from vgpuctl.model.lease import Share
from vgpuctl.model.version import version_of
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.kind import GuestDevice, HandedAs, VgpuKind
from vgpuctl.sharing.occupancy import ExistingVgpu, vf_at
from vgpuctl.sharing.offer import Refusal
from vgpuctl.sharing.plan import Plan
from vgpuctl.sharing.type_names import describe_type, has_type_of, names_on
from vgpuctl.sharing.vgpu import Vgpu

_NO_TYPE = "0"
_LIBVIRT_SINCE = (9, 7)
"""libvirt NEWS, 9.7.0: VFIO variant drivers with managed='no'."""


class VfProfile(Vgpu):
    """The kind `vf-profile`."""

    sharing = Sharing.VF_PROFILE
    handed_as = HandedAs.TYPED_VF
    has_uuid = False
    needs_group = True
    # libvirt NEWS, 10.3.0: `display` and `ramfb` of PCI devices.
    console_since = {VgpuDisplay.ON: (10, 3, 0), VgpuDisplay.RAMFB: (10, 3, 0)}

    def refuse_host(self, facts: HostFacts) -> Refusal | None:
        """An older libvirt gives a VM no VF that stays on its vendor's driver; an unknown version counts as able."""
        version = version_of(facts.libvirt_version)
        if not version or version >= _LIBVIRT_SINCE:
            return None
        return Refusal(
            Code.LIBVIRT_TOO_OLD,
            f"libvirt {facts.libvirt_version} cannot give a VM a VF that stays on the driver nvidia ({self.sharing}); "
            "9.7 and newer can",
            "install libvirt 9.7 or newer on the host, or boot the distribution's own kernel instead of a newer one "
            "(HWE, backports)",
        )

    def existing(self, gpu: Gpu) -> list[ExistingVgpu]:
        """The types that are set on VFs."""
        carrying = [function for function in gpu.vfs if function.mdev_uuid is None and _has_type(function)]
        names = names_on(gpu) if carrying else {}
        return [
            ExistingVgpu(
                gpu.address,
                self.sharing,
                function.address,
                function.current_type,
                params=function.vgpu_params,
                profile=names.get(function.current_type or ""),
            )
            for function in carrying
        ]

    def freed(self, gpu: Gpu, given_back: Sequence[Share]) -> Gpu:
        """The types go from the VFs."""
        functions = {one.function for one in given_back}
        return replace(
            gpu,
            vfs=tuple(replace(one, current_type=None) if one.address in functions else one for one in gpu.vfs),
        )

    def release(self, held: Share, gpu: Gpu | None) -> Plan:
        """Remove the type. A VF that is gone, free, or carries a type vgpuctl did not set is left as it is."""
        if gpu is not None:
            function = vf_at(gpu, held.function)
            if function is None:
                return Plan(summary=(f"nothing to release: VF {held.function} does not exist",))
            if not _has_type(function):
                return Plan(summary=(f"nothing to release: VF {held.function} carries no vGPU",))
            (found,) = (one for one in self.existing(gpu) if one.function == held.function)
            if not has_type_of(found, held):
                surprise = f"it carries {describe_type(found)}, not {held.profile}"
                return Plan(summary=(f"VF {held.function} is left as it is: {surprise}",))
        return Plan(
            steps=(SetVfProfile(held.function, _NO_TYPE),),
            summary=(f"take vGPU {held.profile} from VF {held.function}",),
        )

    def make(self, vgpu: ExistingVgpu) -> SetVfProfile:
        """Set the type. Raises ValueError for a vGPU without type."""
        if vgpu.type_id is None:
            raise ValueError(f"the vGPU on VF {vgpu.function} has no type id")
        return SetVfProfile(vgpu.function, vgpu.type_id, vgpu.params or None, vgpu.profile)

    def remove(self, vgpu: ExistingVgpu) -> VgpuStep:
        """Set the type that means none."""
        return SetVfProfile(vgpu.function, _NO_TYPE)

    def describe_make(self, vgpu: ExistingVgpu, profile: str) -> str:
        """Name the type and the VF."""
        return f"set vGPU type {vgpu.type_id} ({profile}) on VF {vgpu.function}"

    def removal_by_hand(self, vgpu: ExistingVgpu) -> str:
        """The driver's file of the VF."""
        return "write 0 to its current_vgpu_type"

    def guest_devices(self, share: Share) -> tuple[GuestDevice, ...]:
        """The VF, which libvirt leaves on its driver."""
        return (GuestDevice(share.function, managed=False),)

    def recognise(self, device: str, beside: Sequence[str], gpu: Gpu) -> Share | str | None:
        """A VF of the GPU with a type."""
        found = next((one for one in self.existing(gpu) if one.function == device), None)
        return None if found is None else self._as_found(gpu, found)


def _has_type(function: VirtualFunction) -> bool:
    return function.current_type not in (None, "", _NO_TYPE)


KIND: VgpuKind = VfProfile()
