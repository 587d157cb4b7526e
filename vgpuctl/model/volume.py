# SPDX-License-Identifier: Apache-2.0
"""A storage volume that the store records for a VM. Only recorded volumes are ever changed or deleted."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.model.vm import Vm

SEED_POOL = "default"
_MIB = 2**20


class VolumeKind(StrEnum):
    """The volumes of a VM."""

    DISK = "disk"
    SEED = "seed"

    def ending(self) -> str:
        """The end of the volume's name."""
        return ".qcow2" if self is VolumeKind.DISK else "-seed.iso"


class VolumeState(StrEnum):
    """`intended` was committed before libvirt was asked to create the volume, `made` after it had done so."""

    INTENDED = "intended"
    MADE = "made"


@dataclass(frozen=True)
class Volume:
    """One row. tenant, vm_name: the owner, also when its VM is gone from the store.

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

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of pool {self.pool} on {self.host}"


def volume_name(vm_uuid: str, kind: VolumeKind) -> str:
    """Name a VM's volume on its host. The UUID is random, so nobody else has a volume of this name."""
    return f"{vm_uuid}{kind.ending()}"


def vm_uuid_of(volume: str) -> str | None:
    """Read the VM's UUID from the name of a volume; None for any other name."""
    for kind in VolumeKind:
        stem = volume.removesuffix(kind.ending())
        if stem != volume and len(stem) == 36 and [len(part) for part in stem.split("-")] == [8, 4, 4, 4, 12]:
            return stem if set(stem) <= set("0123456789abcdef-") else None
    return None


def wanted_volumes(vm: Vm) -> tuple[Volume, ...]:
    """The volumes that a VM needs by its request, disk first; the size of a seed is known when it is written."""
    request = vm.request
    wanted = []
    if request.disk is not None:
        wanted.append(_volume(vm, VolumeKind.DISK, request.disk.pool, request.disk.size_mib * _MIB))
    if request.has_seed:
        wanted.append(_volume(vm, VolumeKind.SEED, SEED_POOL, None))
    return tuple(wanted)


def _volume(vm: Vm, kind: VolumeKind, pool: str, capacity_bytes: int | None) -> Volume:
    name = volume_name(vm.uuid, kind)
    return Volume(vm.uuid, vm.request.tenant, vm.request.name, vm.host, kind, pool, name, capacity_bytes=capacity_bytes)
