# SPDX-License-Identifier: Apache-2.0
"""libvirt's facts about pools and volumes, as typed values."""

import struct
from dataclasses import dataclass
from typing import Any

from vgpuctl.guests.xml_reader import read_xml

QCOW2_HEADER_BYTES = 72
_MOST_L1_ENTRIES = 2**22  # QEMU's own limit, QCOW_MAX_L1_SIZE of 32 MiB


@dataclass(frozen=True)
class VolumeFact:
    """One volume. capacity_bytes: what the guest sees; backing_path: the base image of an overlay; key: libvirt's."""

    pool: str
    name: str
    path: str
    format: str
    capacity_bytes: int
    backing_path: str | None = None
    key: str = ""


@dataclass(frozen=True)
class PoolFact:
    """One storage pool. is_remote: it is reached over a network, so that other hosts may have it too."""

    name: str
    path: str | None
    is_active: bool
    capacity_bytes: int
    available_bytes: int
    is_remote: bool = False


def pool_fact(pool: Any) -> PoolFact:
    """Read a virStoragePool."""
    _, capacity, _, available = pool.info()
    root = read_xml(pool.XMLDesc(0))
    is_remote = root.find("source/host") is not None
    return PoolFact(pool.name(), root.findtext("target/path"), bool(pool.isActive()), capacity, available, is_remote)


def volume_fact(volume: Any, pool: str) -> VolumeFact:
    """Read a virStorageVol; pool is the name to give it."""
    root = read_xml(volume.XMLDesc(0))
    target_format = root.find("target/format")
    return VolumeFact(
        pool=pool,
        name=volume.name(),
        path=volume.path(),
        format="raw" if target_format is None else target_format.get("type", "raw"),
        capacity_bytes=volume.info()[1],
        backing_path=root.findtext("backingStore/path") or None,
        key=volume.key(),
    )


def is_refused_as_existing(answer: str) -> bool:
    """Recognise libvirt's answer that a volume exists; its code is another in each driver and kind of pool."""
    return any(part in answer.lower() for part in ("already exists", "already in use", "file exists"))


def qcow2_l1_table(header: bytes) -> tuple[int, int] | None:
    """Read offset and length in bytes of the L1 table from a qcow2 header; None when it is not qcow2, or damaged."""
    if len(header) < QCOW2_HEADER_BYTES or header[:4] != b"QFI\xfb":
        return None
    entries, offset = struct.unpack(">IQ", header[36:48])
    return (offset, entries * 8) if 0 < entries <= _MOST_L1_ENTRIES else None
