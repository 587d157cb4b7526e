# SPDX-License-Identifier: Apache-2.0
"""A storage volume that the store records for a VM. Only recorded volumes are ever changed or deleted."""

import re
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.model.units import MIB
from vgpuctl.model.vm import Vm

SEED_POOL = "default"
KEPT = "kept:"
"""Before the tenant's name, in the place of a VM's UUID, of a disk that outlived its VM."""
_DATA = "-data-"
_OWN_NAME = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:\.qcow2|-seed\.iso|-answers\.iso|-data-.*\.qcow2)"
)


class VolumeKind(StrEnum):
    """The volumes of a VM. data: one more disk. overlay: what was written to a disk since a snapshot of it.

    answers: those of an unattended installation, for the first run of the VM alone.
    """

    DISK = "disk"
    DATA = "data"
    OVERLAY = "overlay"
    SEED = "seed"
    ANSWERS = "answers"

    def ending(self) -> str:
        """The end of the volume's name."""
        return f"-{self.value}.iso" if self.is_written() else ".qcow2"

    def is_written(self) -> bool:
        """True for a medium that vgpuctl writes itself, of the size that it has then; False for a disk."""
        return self in (VolumeKind.SEED, VolumeKind.ANSWERS)


class VolumeState(StrEnum):
    """`intended` was committed before libvirt was asked to create the volume, `made` after it had done so.

    `detaching`: a data disk that left its VM, whose running domain may still have it, or an overlay that is dropped.
    `merging`: an overlay whose content goes into the disk below it; it is in use while its domain has it.
    """

    INTENDED = "intended"
    MADE = "made"
    DETACHING = "detaching"
    MERGING = "merging"


@dataclass(frozen=True)
class Volume:
    """One row. tenant, vm_name: the owner, also when its VM is gone from the store. vm_uuid: or KEPT and the
    tenant, of a disk that outlived its VM.

    key, path: libvirt's, None before the volume is made and for volumes of a store from before this table.
    capacity_bytes: the size that was asked for, None where that is not known. format, backing_path: what libvirt showed
    when it had made the volume; format is None before that, and for volumes that an older vgpuctl made.
    label: name of a data disk, empty for the first disk and the seed. keep: a data disk that outlives its VM.
    """

    vm_uuid: str
    tenant: str
    vm_name: str
    host: str
    kind: VolumeKind
    pool: str
    name: str
    state: VolumeState = VolumeState.INTENDED
    capacity_bytes: int | None = None
    key: str | None = None
    path: str | None = None
    format: str | None = None
    backing_path: str | None = None
    label: str = ""
    keep: bool | None = None

    @property
    def is_made(self) -> bool:
        """True if libvirt has made it, whatever happens to it now."""
        return self.state is not VolumeState.INTENDED

    @property
    def is_kept(self) -> bool:
        """True if it is a tenant's disk that no VM has."""
        return self.vm_uuid.startswith(KEPT)

    def __str__(self) -> str:
        return f"{self.kind} {self.label or self.name} of pool {self.pool} on {self.host}"


def volume_name(vm_uuid: str, kind: VolumeKind, label: str = "") -> str:
    """Name a VM's volume on its host. The UUID is random, so nobody else has a volume of this name."""
    return f"{vm_uuid}{_DATA}{label}{kind.ending()}" if kind is VolumeKind.DATA else f"{vm_uuid}{kind.ending()}"


def vm_uuid_of(volume: str) -> str | None:
    """Read the VM's UUID from the name of a volume; None for any other name."""
    found = _OWN_NAME.fullmatch(volume)
    return None if found is None else found[1]


def read_volume_name(name: str, vm_uuid: str) -> tuple[VolumeKind, str] | None:
    """The kind and label of a VM's volume by its name, as `volume_name` writes it; None for any other name."""
    if vm_uuid_of(name) != vm_uuid:
        return None
    rest = name.removeprefix(vm_uuid)
    if rest.startswith(_DATA):
        return VolumeKind.DATA, rest.removeprefix(_DATA).removesuffix(VolumeKind.DATA.ending())
    return next((kind, "") for kind in (VolumeKind.DISK, VolumeKind.SEED, VolumeKind.ANSWERS) if rest == kind.ending())


def wanted_volumes(vm: Vm) -> tuple[Volume, ...]:
    """The volumes to be made for a VM, its disk first; the size of a seed or of answers is known when it is written.

    A disk that the tenant kept from an earlier VM is not among them.
    """
    request = vm.request
    wanted = []
    if request.disk is not None:
        wanted.append(_volume(vm, VolumeKind.DISK, request.disk.pool, request.disk.size_mib * MIB))
    for disk in request.data_disks:
        if disk.size_mib is not None:
            wanted.append(_volume(vm, VolumeKind.DATA, disk.pool, disk.size_mib * MIB, disk.name, keep=disk.keep))
    if request.has_seed:
        wanted.append(_volume(vm, VolumeKind.SEED, SEED_POOL, None))
    if request.install is not None and request.install.unattended:
        wanted.append(_volume(vm, VolumeKind.ANSWERS, SEED_POOL, None))
    return tuple(wanted)


def _volume(
    vm: Vm, kind: VolumeKind, pool: str, capacity_bytes: int | None, label: str = "", *, keep: bool | None = None
) -> Volume:
    return Volume(
        vm.uuid,
        vm.request.tenant,
        vm.request.name,
        vm.host,
        kind,
        pool,
        volume_name(vm.uuid, kind, label),
        capacity_bytes=capacity_bytes,
        label=label,
        keep=keep,
    )
