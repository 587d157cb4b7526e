# SPDX-License-Identifier: Apache-2.0
"""Mediated devices, made under a function by a UUID of ours.

`mdev` on the card itself (Maxwell to Turing, Intel GVT-g): every vGPU of the GPU hangs on the same function.
`mdev-vf` on a VF (Ampere and later, kernels with the mdev class): one vGPU per VF.
"""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.sharing import CreateMdev, DeleteMdev, Sharing, VgpuStep
from vgpuctl.errors import GuestError
from vgpuctl.model.display import VgpuDisplay
from vgpuctl.model.lease import Share
from vgpuctl.sharing.kind import GuestDevice, HandedAs, VgpuKind
from vgpuctl.sharing.occupancy import ExistingVgpu, LiveGpu
from vgpuctl.sharing.plan import Plan
from vgpuctl.sharing.type_names import describe_type, has_type_of, names_on
from vgpuctl.sharing.vgpu import Vgpu


class MediatedDevice(Vgpu):
    """The kinds `mdev` and `mdev-vf`."""

    has_uuid = True
    handed_as = HandedAs.MDEV
    # libvirt, formatdomain, "Host device assignment": `display` and `ramfb` of mediated devices.
    console_since = {VgpuDisplay.ON: (4, 6, 0), VgpuDisplay.RAMFB: (5, 10, 0)}

    def __init__(self, sharing: Sharing, *, is_on_vf: bool) -> None:
        self.sharing = sharing
        self.is_on_vf = is_on_vf

    def named(self, share: Share, identity: str) -> Share:
        """The UUID makes the share unique where many are on one function."""
        return replace(share, mdev_uuid=identity)

    def existing(self, gpu: Gpu) -> list[ExistingVgpu]:
        """The mdevs on the PF, or those on VFs; a VF may name one that could not be read."""
        mdevs = [mdev for mdev in gpu.mdevs if (mdev.parent != gpu.address) is self.is_on_vf]
        names = names_on(gpu) if mdevs else {}
        found = [
            ExistingVgpu(
                gpu.address,
                self.sharing,
                mdev.parent,
                mdev.type_id,
                mdev.uuid,
                mdev.vgpu_params,
                names.get(mdev.type_id),
            )
            for mdev in mdevs
        ]
        if self.is_on_vf:
            read = {mdev.uuid for mdev in gpu.mdevs}
            found += [
                ExistingVgpu(gpu.address, self.sharing, function.address, None, function.mdev_uuid)
                for function in gpu.vfs
                if function.mdev_uuid is not None and function.mdev_uuid not in read
            ]
        return found

    def freed(self, gpu: Gpu, given_back: Sequence[Share]) -> Gpu:
        """The mdevs go."""
        uuids = {one.mdev_uuid for one in given_back if one.mdev_uuid is not None}
        return replace(
            gpu,
            mdevs=tuple(one for one in gpu.mdevs if one.uuid not in uuids),
            vfs=tuple(replace(one, mdev_uuid=None) if one.mdev_uuid in uuids else one for one in gpu.vfs),
        )

    def check(self, share: Share, live: LiveGpu) -> str | None:
        """Its own UUID on the right parent is fine: an earlier run made it."""
        for existing in live.vgpus:
            if existing.mdev_uuid is not None and existing.mdev_uuid == share.mdev_uuid:
                if existing.function == share.function and has_type_of(existing, share):
                    return None
                return f"mdev {share.mdev_uuid} exists already, {describe_type(existing)} on {existing.function}"
        return super().check(share, live)

    def release(self, held: Share, gpu: Gpu | None) -> Plan:
        """Delete the mdev if it exists. A share without UUID was never made."""
        if held.mdev_uuid is None:
            return Plan(summary=(f"nothing to release: {held.profile} on {held.function} was never made",))
        if gpu is not None and all(one.mdev_uuid != held.mdev_uuid for one in self.existing(gpu)):
            return Plan(summary=(f"nothing to release: mdev {held.mdev_uuid} does not exist",))
        return Plan(
            steps=(DeleteMdev(held.mdev_uuid),),
            summary=(f"delete mdev {held.mdev_uuid} of {held.profile} on {held.function}",),
        )

    def make(self, vgpu: ExistingVgpu) -> CreateMdev:
        """Create the mdev. Raises ValueError for one without UUID or type."""
        if vgpu.mdev_uuid is None or vgpu.type_id is None:
            raise ValueError(f"the mdev on {vgpu.function} has no UUID or no type id")
        return CreateMdev(vgpu.function, vgpu.type_id, vgpu.mdev_uuid, vgpu.params or None, vgpu.profile)

    def remove(self, vgpu: ExistingVgpu) -> VgpuStep:
        """Delete the mdev."""
        return DeleteMdev(vgpu.vfio_device)

    def describe_make(self, vgpu: ExistingVgpu, profile: str) -> str:
        """Name the mdev, its type and its parent."""
        return f"create mdev {vgpu.mdev_uuid} of {profile} ({vgpu.type_id}) on {vgpu.function}"

    def removal_by_hand(self, vgpu: ExistingVgpu) -> str:
        """The kernel's file of the mdev."""
        return f"write 1 to /sys/bus/mdev/devices/{vgpu.mdev_uuid}/remove"

    def guest_devices(self, share: Share) -> tuple[GuestDevice, ...]:
        """The mdev by its UUID."""
        if share.mdev_uuid is None:
            raise GuestError(f"the {share.profile} lease on GPU {share.gpu} has no mdev UUID")
        return (GuestDevice(mdev_uuid=share.mdev_uuid),)

    def recognise(self, device: str, beside: Sequence[str], gpu: Gpu) -> Share | str | None:
        """An mdev of the GPU."""
        found = next((one for one in self.existing(gpu) if one.mdev_uuid == device), None)
        return None if found is None else self._as_found(gpu, found)


ON_CARD: VgpuKind = MediatedDevice(Sharing.MDEV, is_on_vf=False)
ON_VF: VgpuKind = MediatedDevice(Sharing.MDEV_VF, is_on_vf=True)
