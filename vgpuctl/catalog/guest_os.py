# SPDX-License-Identifier: Apache-2.0
"""Profiles of guest operating systems: what each needs of its virtual machine (reference vdi-guests, 0.1 and 4.2)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vgpuctl.catalog.guest_display import with_display_defaults
from vgpuctl.errors import UsageError
from vgpuctl.model.disk import DiskBus
from vgpuctl.model.nic import NicModel
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Firmware, VmRequest


@dataclass(frozen=True)
class GuestOs:
    """One profile. osinfo: its short id in libosinfo's database. is_windows: Hyper-V enlightenments, local time, a
    tablet, and a seed for cloudbase-init. memory_mib, disk_mib: the least that its maker asks for.
    """

    name: str
    osinfo: str
    is_windows: bool = False
    firmware: Firmware = Firmware.UEFI
    secure_boot: Switch = Switch.OFF
    tpm: Switch = Switch.OFF
    disk_bus: DiskBus = DiskBus.VIRTIO
    nic_model: NicModel = NicModel.VIRTIO
    memory_mib: int = 2048
    vcpus: int = 1
    disk_mib: int = 20480


def _windows(name: str, osinfo: str, *, memory_mib: int, disk_mib: int, vcpus: int = 1) -> GuestOs:
    return GuestOs(
        name,
        osinfo,
        is_windows=True,
        secure_boot=Switch.ON,
        tpm=Switch.ON,
        disk_bus=DiskBus.SCSI,
        memory_mib=memory_mib,
        disk_mib=disk_mib,
        vcpus=vcpus,
    )


_ALL = (
    GuestOs("debian-12", "debian12", memory_mib=1024),
    GuestOs("debian-13", "debian13", memory_mib=1024),
    GuestOs("ubuntu-22.04", "ubuntu22.04", memory_mib=2048, disk_mib=25600),
    GuestOs("ubuntu-24.04", "ubuntu24.04", memory_mib=3072, disk_mib=25600),
    GuestOs("rhel-9", "rhel9.0", memory_mib=1536),
    GuestOs("rhel-10", "rhel10.0", memory_mib=1536),
    replace(_windows("win10", "win10", memory_mib=2048, disk_mib=20480), secure_boot=Switch.ON, tpm=Switch.OFF),
    _windows("win11", "win11", memory_mib=4096, disk_mib=65536, vcpus=2),
    replace(_windows("windows-server-2019", "win2k19", memory_mib=2048, disk_mib=40960), tpm=Switch.OFF),
    _windows("windows-server-2022", "win2k22", memory_mib=2048, disk_mib=40960),
    _windows("windows-server-2025", "win2k25", memory_mib=4096, disk_mib=40960),
)
GUEST_OSES: Mapping[str, GuestOs] = {one.name: one for one in _ALL}


def parse_guest_os(text: str, /, *, what: str = "os") -> str:
    """Accept the name of a profile. Raises UsageError that lists them."""
    if text not in GUEST_OSES:
        raise UsageError(f"{what}: there is no profile {text[:80]!a}", hint=f"one of {', '.join(sorted(GUEST_OSES))}")
    return text


def is_windows(name: str | None) -> bool:
    """True if the profile of this name is one of Windows; False for None."""
    return name is not None and name in GUEST_OSES and GUEST_OSES[name].is_windows


def with_os_defaults(request: VmRequest) -> VmRequest:
    """The request with everything decided that its profile decides and the user did not. It may be repeated.

    Raises UsageError for a display that contradicts itself.
    """
    profile = GUEST_OSES.get(request.os or "")
    if profile is None:
        decided = replace(request, firmware=request.firmware or Firmware.BIOS)
        return with_display_defaults(decided, is_windows=False)
    decided = replace(
        request,
        firmware=request.firmware or profile.firmware,
        secure_boot=request.secure_boot or profile.secure_boot,
        tpm=request.tpm or profile.tpm,
        nic_model=request.nic_model or profile.nic_model,
        disk=None if request.disk is None else replace(request.disk, bus=request.disk.bus or profile.disk_bus),
        data_disks=tuple(replace(disk, bus=disk.bus or profile.disk_bus) for disk in request.data_disks),
        nics=tuple(replace(nic, model=nic.model or profile.nic_model) for nic in request.nics),
    )
    return with_display_defaults(decided, is_windows=profile.is_windows)
