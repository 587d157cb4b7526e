# SPDX-License-Identifier: Apache-2.0
"""The disks and install media that a VM is asked to have."""

from dataclasses import dataclass
from enum import StrEnum


class DiskBus(StrEnum):
    """How the guest sees a disk (reference vdi-guests 1.7): virtio-blk, virtio-scsi, or SATA, which needs no driver."""

    VIRTIO = "virtio"
    SCSI = "scsi"
    SATA = "sata"


class DiskCache(StrEnum):
    """QEMU's cache mode of a disk (libvirt, formatdomain: the attribute `cache` of `driver`)."""

    NONE = "none"
    WRITETHROUGH = "writethrough"
    WRITEBACK = "writeback"
    DIRECTSYNC = "directsync"


@dataclass(frozen=True)
class DiskRequest:
    """The VM's first disk. base_image: a name of the catalogue of images; None for an empty disk.

    bus: None as the operating system's profile says. cache: None for QEMU's default. iops, mbps: the most operations
    and megabytes (10^6 bytes) a second, reads and writes together; None for no limit.
    """

    size_mib: int = 10240
    base_image: str | None = None
    pool: str = "default"
    bus: DiskBus | None = None
    cache: DiskCache | None = None
    iops: int | None = None
    mbps: int | None = None


@dataclass(frozen=True)
class DataDisk:
    """One more disk. name: unique within the tenant, and the disk's serial number in the guest.

    size_mib: None for a disk that the tenant kept from an earlier VM. keep: it outlives its VM. The other fields are
    those of DiskRequest.
    """

    name: str
    size_mib: int | None = None
    pool: str = "default"
    bus: DiskBus | None = None
    cache: DiskCache | None = None
    iops: int | None = None
    mbps: int | None = None
    keep: bool = False


@dataclass(frozen=True)
class InstallRequest:
    """Install the operating system from media. All are names of the catalogue of images, of the kind `iso`.

    drivers: the medium with virtio drivers that Windows needs. unattended: answer the installer's questions.
    """

    iso: str
    drivers: str | None = None
    unattended: bool = False
