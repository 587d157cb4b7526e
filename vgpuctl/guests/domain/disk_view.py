# SPDX-License-Identifier: Apache-2.0
"""The disks and media of a domain: on which bus, under which name, and within which limits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase

from vgpuctl.catalog.guest_os import is_windows
from vgpuctl.guests.domain.pci_layout import DISK_BUS, ExtraBuses
from vgpuctl.model.disk import DataDisk, DiskBus, DiskCache, DiskRequest
from vgpuctl.model.image import ImageFormat
from vgpuctl.model.vm import VmRequest

MOST_MEDIA = 4
"""Media are on SATA and named sda to sdd; the two disks that SATA has room for are sde and sdf, SCSI begins after."""
_ON_SATA, _ON_SCSI = ascii_lowercase[MOST_MEDIA:6], ascii_lowercase[6:]
_SEED_TARGET = 1
"""Disks on SCSI are the units of target 0."""
_BYTES_PER_MB = 1_000_000


@dataclass(frozen=True)
class BackingView:
    """The base image under a disk. format: as registered; QEMU opens nothing below it, whatever its header says."""

    path: str
    format: ImageFormat


@dataclass(frozen=True)
class DiskView:
    """One disk: the path of a qcow2 volume on the host. backing: None for an empty disk, or where unknown.

    below: the VM's own volumes under it, highest first, where it has snapshots; the backing is under the last of them.
    target: its name in libvirt. port: the bus behind its root port, on virtio. unit: its number, on SCSI.
    iops, bytes_s: what it may do in a second. boot_order: None where the firmware looks by itself.
    """

    path: str
    backing: BackingView | None = None
    below: tuple[BackingView, ...] = ()
    bus: DiskBus = DiskBus.VIRTIO
    target: str = "vda"
    port: int | None = DISK_BUS
    unit: int | None = None
    serial: str | None = None
    cache: DiskCache | None = None
    iops: int | None = None
    bytes_s: int | None = None
    boot_order: int | None = None

    @property
    def layers(self) -> tuple[BackingView, ...]:
        """All files below, highest first."""
        return self.below if self.backing is None else (*self.below, self.backing)


@dataclass(frozen=True)
class MediumView:
    """One medium in a CD drive. boot_order: None where nothing boots from it. scsi_target: on SCSI, None on SATA."""

    path: str
    target: str
    boot_order: int | None = None
    bus: DiskBus = DiskBus.SATA
    scsi_target: int | None = None


def disk_views(
    request: VmRequest, first: DiskView | None, data_disks: Mapping[str, DiskView], buses: ExtraBuses
) -> tuple[DiskView, ...]:
    """The disks of a VM. first: the files of its first disk. data_disks: of its data disks, by name."""
    ports, units = iter(buses.disks), iter(range(1, 256))
    names = {DiskBus.VIRTIO: iter(ascii_lowercase[1:]), DiskBus.SATA: iter(_ON_SATA), DiskBus.SCSI: iter(_ON_SCSI)}

    def placed(view: DiskView, disk: DiskRequest | DataDisk, serial: str | None) -> DiskView:
        bus = disk.bus or DiskBus.VIRTIO
        is_first = serial is None
        view = replace(
            view,
            bus=bus,
            serial=serial,
            cache=disk.cache,
            iops=disk.iops,
            bytes_s=None if disk.mbps is None else disk.mbps * _BYTES_PER_MB,
        )
        if bus is DiskBus.VIRTIO:
            return view if is_first else replace(view, target=f"vd{next(names[bus])}", port=next(ports))
        unit = None if bus is DiskBus.SATA else 0 if is_first else next(units)
        return replace(view, target=f"sd{next(names[bus])}", port=None, unit=unit)

    views = []
    if first is not None:
        asked = request.disk or DiskRequest()
        boots = 1 if request.install is not None else None
        views.append(replace(placed(first, asked, None), boot_order=boots))
    views += [placed(data_disks[disk.name], disk, disk.name) for disk in request.data_disks]
    return tuple(views)


def has_scsi_seed(request: VmRequest) -> bool:
    """True if the VM's seed is on SCSI: Debian's cloud kernel has no driver for SATA.

    A guest of Windows has none for SCSI while it is installed, and a VM without a profile keeps the drive it had.
    """
    return request.has_seed and request.os is not None and not is_windows(request.os) and request.install is None


def medium_views(
    request: VmRequest, seed_path: str | None, install_paths: Sequence[str], answers_path: str | None = None
) -> Iterator[MediumView]:
    """The media of a VM. install_paths: of its installation medium, from which it boots, and of further ones.

    answers_path: for the installer. Ubuntu's installer reads them as its seed, so that the other seed is left out.
    """
    names = iter(ascii_lowercase)
    seed = f"sd{next(names)}"
    if answers_path is not None and not is_windows(request.os):
        seed_path, answers_path = answers_path, None
    if seed_path is not None:
        if has_scsi_seed(request):
            yield MediumView(seed_path, seed, bus=DiskBus.SCSI, scsi_target=_SEED_TARGET)
        else:
            yield MediumView(seed_path, seed)
    for number, path in enumerate(install_paths):
        yield MediumView(path, f"sd{next(names)}", None if number else 2)
    if answers_path is not None:
        yield MediumView(answers_path, f"sd{next(names)}")
