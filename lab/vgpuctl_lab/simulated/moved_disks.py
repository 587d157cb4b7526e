# SPDX-License-Identifier: Apache-2.0
"""What libvirt asks of a domain's disks before it moves: shared or copied, and there on the target."""

from collections.abc import Collection
from dataclasses import dataclass
from xml.etree import ElementTree

from vgpuctl_lab.simulated.libvirt_wire import ErrorCode, Procedure, Reader, Status, text
from vgpuctl_lab.simulated.libvirtd_connection import LibvirtdConnection

# VIR_MIGRATE_NON_SHARED_DISK, _NON_SHARED_INC, _UNSAFE.
_COPIES_DISK, _COPIES_CHANGES, _UNSAFE = 1 << 6, 1 << 7, 1 << 9
_SHARED_POOLS = ("netfs", "gluster", "rbd", "iscsi", "iscsi-direct")
Refusal = tuple[str, ErrorCode]


@dataclass(frozen=True)
class _Disk:
    """A disk with a source. target: how the guest's side names it. pool: None for one that is named by its path."""

    target: str
    is_written: bool
    pool: str | None
    name: str


async def refusal_at_source(libvirtd: LibvirtdConnection, xml: str, flags: int) -> Refusal | None:
    """Why a domain cannot leave without harm to its disks: they are neither shared nor copied."""
    if flags & (_COPIES_DISK | _COPIES_CHANGES | _UNSAFE):
        return None
    for disk in _disks_of(xml):
        if disk.is_written and not await _is_shared(libvirtd, disk):
            return "Unsafe migration: Migration without shared storage is unsafe", ErrorCode.MIGRATE_UNSAFE
    return None


async def volumes_of(libvirtd: LibvirtdConnection, xml: str) -> list[str]:
    """The targets of the disks that are volumes of the host."""
    return [disk.target for disk in _disks_of(xml) if await _pool_of(libvirtd, disk) is not None]


async def refusal_at_target(
    libvirtd: LibvirtdConnection, xml: str, wanted: Collection[str], flags: int
) -> Refusal | None:
    """Why a domain cannot arrive: a disk that is a volume on the source is missing here. wanted: targets of those."""
    for disk in _disks_of(xml):
        if disk.target not in wanted or await _pool_of(libvirtd, disk) is not None:
            continue
        if disk.is_written and flags & _COPIES_CHANGES:
            said = "pre-creation of storage targets for incremental storage migration is not supported"
            return f"Operation not supported: {said}", ErrorCode.OPERATION_UNSUPPORTED
        if not (disk.is_written and flags & _COPIES_DISK):
            return f"Cannot access storage file '{disk.name}': No such file or directory", ErrorCode.SYSTEM_ERROR
    return None


def _disks_of(xml: str) -> list[_Disk]:
    found = []
    for disk in ElementTree.fromstring(xml).iterfind("devices/disk"):
        source, target = disk.find("source"), disk.find("target")
        if source is None or target is None:
            continue
        is_written = disk.get("device", "disk") == "disk" and disk.find("readonly") is None
        pool = source.get("pool")
        name = source.get("volume") if pool else source.get("file")
        if name:
            found.append(_Disk(target.get("dev", ""), is_written, pool, name))
    return found


async def _is_shared(libvirtd: LibvirtdConnection, disk: _Disk) -> bool:
    pool = await _pool_of(libvirtd, disk)
    if pool is None:
        return False
    answer = await libvirtd.call(Procedure.STORAGE_POOL_GET_XML_DESC, pool + bytes(4))
    return ElementTree.fromstring(Reader(answer.body).text()).get("type") in _SHARED_POOLS


async def _pool_of(libvirtd: LibvirtdConnection, disk: _Disk) -> bytes | None:
    """The pool that has a disk's volume, as calls name it; None for a disk that is no volume."""
    if disk.pool is None:
        answer = await libvirtd.call(Procedure.STORAGE_VOL_LOOKUP_BY_PATH, text(disk.name))
        if answer.status != Status.OK:
            return None
        return (await libvirtd.call(Procedure.STORAGE_POOL_LOOKUP_BY_NAME, text(Reader(answer.body).text()))).body
    pool = await libvirtd.call(Procedure.STORAGE_POOL_LOOKUP_BY_NAME, text(disk.pool))
    if pool.status != Status.OK:
        return None
    answer = await libvirtd.call(Procedure.STORAGE_VOL_LOOKUP_BY_NAME, pool.body + text(disk.name))
    return pool.body if answer.status == Status.OK else None
