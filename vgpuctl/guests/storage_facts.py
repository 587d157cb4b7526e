# SPDX-License-Identifier: Apache-2.0
"""What libvirt says about pools and volumes, as typed values."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree

_LISTED = 20


@dataclass(frozen=True)
class VolumeFact:
    """One volume. capacity_bytes: what the guest sees; backing_path: the base image of an overlay."""

    pool: str
    name: str
    path: str
    format: str
    capacity_bytes: int
    backing_path: str | None = None


@dataclass(frozen=True)
class VolumeChange:
    """A volume that was asked for, and whether it had to be made or written."""

    volume: VolumeFact
    changed: bool


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
    root = ElementTree.fromstring(pool.XMLDesc(0))
    is_remote = root.find("source/host") is not None
    return PoolFact(pool.name(), root.findtext("target/path"), bool(pool.isActive()), capacity, available, is_remote)


def volume_fact(volume: Any, pool: str) -> VolumeFact:
    """Read a virStorageVol; pool is the name to give it."""
    root = ElementTree.fromstring(volume.XMLDesc(0))
    target_format = root.find("target/format")
    return VolumeFact(
        pool=pool,
        name=volume.name(),
        path=volume.path(),
        format="raw" if target_format is None else target_format.get("type", "raw"),
        capacity_bytes=volume.info()[1],
        backing_path=root.findtext("backingStore/path") or None,
    )


def backing_format(volume_format: str) -> str:
    """Give QEMU's word for a volume's format: what libvirt recognises as something else is plain bytes to QEMU."""
    return volume_format if volume_format in ("qcow2", "qcow", "qed", "vmdk", "vdi", "vpc") else "raw"


def listed_names(volumes: list[VolumeFact]) -> list[str]:
    """List some of the volumes for an error's context."""
    names = [f"there is {volume.name}" for volume in volumes[:_LISTED]]
    if len(volumes) > _LISTED:
        names.append(f"and {len(volumes) - _LISTED} more")
    return names or ["it holds no volume"]


def split_path(path: str) -> tuple[str, str]:
    """Split a path on the host into its folder and its name."""
    return str(PurePosixPath(path).parent), PurePosixPath(path).name
