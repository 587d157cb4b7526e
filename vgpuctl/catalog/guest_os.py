# SPDX-License-Identifier: Apache-2.0
"""Profiles of guest operating systems: what each needs of its virtual machine (reference vdi-guests, 0.1 and 4.2)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vgpuctl.catalog.guest_display import with_display_defaults
from vgpuctl.catalog.osinfo import OsSizes, read_resources
from vgpuctl.errors import UsageError
from vgpuctl.model.disk import DiskBus
from vgpuctl.model.nic import NicModel
from vgpuctl.model.switch import Switch
from vgpuctl.model.units import format_mib
from vgpuctl.model.vm import Firmware, VmRequest


@dataclass(frozen=True)
class GuestOs:
    """One profile. osinfo: `VENDOR/SYSTEM` in libosinfo's database, None for none.

    is_windows: Hyper-V enlightenments, local time, one socket, a tablet, and a seed for cloudbase-init. memory_mib,
    vcpus, disk_mib: the least that its maker asks for, where the operator's machine has no database of libosinfo.
    """

    name: str
    osinfo: str | None
    is_windows: bool = False
    firmware: Firmware = Firmware.UEFI
    secure_boot: Switch = Switch.OFF
    tpm: Switch = Switch.OFF
    disk_bus: DiskBus = DiskBus.VIRTIO
    nic_model: NicModel = NicModel.VIRTIO
    memory_mib: int = 2048
    vcpus: int = 1
    disk_mib: int = 20480


def _windows(
    name: str, osinfo: str, *, memory_mib: int, disk_mib: int, vcpus: int = 1, tpm: Switch = Switch.ON
) -> GuestOs:
    return GuestOs(
        name,
        osinfo,
        is_windows=True,
        secure_boot=Switch.ON,
        tpm=tpm,
        disk_bus=DiskBus.SCSI,
        memory_mib=memory_mib,
        disk_mib=disk_mib,
        vcpus=vcpus,
    )


# Sizes: osinfo-db 20250606 (os/*), Microsoft's system requirements for Windows. The installers of RHEL and its kin ask
# for 1.5 GiB. NVIDIA's driver for Linux is not signed with a key that Secure Boot knows, hence it is off there.
_ALL = (
    GuestOs("linux", None, memory_mib=512, disk_mib=4096),
    GuestOs("debian-12", "debian.org/debian-12", memory_mib=1024, disk_mib=10240),
    GuestOs("debian-13", "debian.org/debian-13", memory_mib=1024, disk_mib=10240),
    GuestOs("ubuntu-22.04", "ubuntu.com/ubuntu-22.04", memory_mib=2048, disk_mib=25600),
    GuestOs("ubuntu-24.04", "ubuntu.com/ubuntu-24.04", memory_mib=3072, disk_mib=25600),
    GuestOs("rhel-8", "redhat.com/rhel-8-unknown", memory_mib=1536, disk_mib=10240),
    GuestOs("rhel-9", "redhat.com/rhel-9-unknown", memory_mib=1536, disk_mib=10240),
    GuestOs("rhel-10", "redhat.com/rhel-10-unknown", memory_mib=1536, disk_mib=10240),
    GuestOs("rocky-9", "rockylinux.org/rocky-9", memory_mib=1536, disk_mib=10240),
    GuestOs("rocky-10", "rockylinux.org/rocky-10", memory_mib=1536, disk_mib=10240),
    GuestOs("almalinux-9", "almalinux.org/almalinux-9", memory_mib=1536, disk_mib=10240),
    GuestOs("almalinux-10", "almalinux.org/almalinux-10", memory_mib=1536, disk_mib=10240),
    GuestOs("centos-stream-9", "centos.org/centos-stream-9", memory_mib=1536, disk_mib=10240),
    GuestOs("centos-stream-10", "centos.org/centos-stream-10", memory_mib=1536, disk_mib=10240),
    GuestOs("sles-15", "suse.com/sle-15", memory_mib=1024, disk_mib=15360),
    GuestOs("opensuse-leap-15", "opensuse.org/opensuse-15.6", memory_mib=1024, disk_mib=10240),
    _windows("win10", "microsoft.com/win-10", memory_mib=2048, disk_mib=20480, tpm=Switch.OFF),
    _windows("win11", "microsoft.com/win-11", memory_mib=4096, disk_mib=65536, vcpus=2),
    _windows("windows-server-2019", "microsoft.com/win-2k19", memory_mib=2048, disk_mib=32768, tpm=Switch.OFF),
    _windows("windows-server-2022", "microsoft.com/win-2k22", memory_mib=2048, disk_mib=32768),
    _windows("windows-server-2025", "microsoft.com/win-2k25", memory_mib=2048, disk_mib=32768),
)
GUEST_OSES: Mapping[str, GuestOs] = {one.name: one for one in _ALL}
# Its installer ends without them (Microsoft, "Windows 11 requirements").
_NEEDS_SECURE_BOOT_AND_TPM = "win11"


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

    Raises UsageError for Secure Boot with a firmware that has none, and for a display that contradicts itself.
    """
    profile = GUEST_OSES.get(request.os or "")
    if profile is None:
        uefi = request.secure_boot is Switch.ON
        decided = replace(request, firmware=request.firmware or (Firmware.UEFI if uefi else Firmware.BIOS))
    else:
        decided = _with_profile(request, profile)
    if decided.secure_boot is Switch.ON and decided.firmware is not Firmware.UEFI:
        raise UsageError("Secure Boot needs the firmware uefi", hint="give --firmware uefi, or --secure-boot off")
    return with_display_defaults(decided, is_windows=is_windows(request.os))


def _with_profile(request: VmRequest, profile: GuestOs) -> VmRequest:
    firmware = request.firmware or profile.firmware
    secure_boot = profile.secure_boot if firmware is Firmware.UEFI else Switch.OFF
    return replace(
        request,
        firmware=firmware,
        secure_boot=request.secure_boot or secure_boot,
        tpm=request.tpm or profile.tpm,
        nic_model=request.nic_model or profile.nic_model,
        disk=None if request.disk is None else replace(request.disk, bus=request.disk.bus or profile.disk_bus),
        data_disks=tuple(replace(disk, bus=disk.bus or profile.disk_bus) for disk in request.data_disks),
        nics=tuple(replace(nic, model=nic.model or profile.nic_model) for nic in request.nics),
    )


def smallest_sizes(profile: GuestOs, folders: tuple[str, ...] | None = None) -> OsSizes:
    """The least sizes that a system asks for: libosinfo's where its database has them, else our table's."""
    found = None
    if profile.osinfo is not None:
        found = read_resources(profile.osinfo) if folders is None else read_resources(profile.osinfo, folders)
    least = OsSizes() if found is None else found.minimum
    return OsSizes(
        least.memory_mib or profile.memory_mib, least.vcpus or profile.vcpus, least.disk_mib or profile.disk_mib
    )


def list_warnings(request: VmRequest) -> list[str]:
    """Say where a VM has less than its operating system asks for, and that it has no system at all, one line each.

    It is a warning only: images of a cloud run with less than the installer wants.
    """
    profile = GUEST_OSES.get(request.os or "")
    return [*_without_system(request), *([] if profile is None else _warnings(request, profile))]


def _without_system(request: VmRequest) -> Iterator[str]:
    """A guest driver is set up by a system, and an empty disk has none."""
    is_booted = request.install is not None or request.direct_kernel is not None
    base = None if request.disk is None else request.disk.base_image
    if request.guest_driver.is_wanted() and not is_booted and base is None:
        yield (
            f"{request.name}: nothing sets up its guest driver, for it has no system: neither an image (--base-image)"
            " nor an installation medium (--iso)"
        )


def _warnings(request: VmRequest, profile: GuestOs) -> Iterator[str]:
    least = smallest_sizes(profile)
    if request.memory_mib < (least.memory_mib or 0):
        yield _less(request, profile, f"{format_mib(least.memory_mib or 0)} of memory", format_mib(request.memory_mib))
    if request.vcpus < (least.vcpus or 0):
        yield _less(request, profile, f"{least.vcpus} vCPUs", str(request.vcpus))
    if request.disk is not None and request.disk.base_image is None and request.disk.size_mib < (least.disk_mib or 0):
        yield _less(request, profile, f"a disk of {format_mib(least.disk_mib or 0)}", format_mib(request.disk.size_mib))
    if profile.name == _NEEDS_SECURE_BOOT_AND_TPM:
        missing = [
            name
            for name, switch in (("Secure Boot", request.secure_boot), ("a TPM", request.tpm))
            if switch is not Switch.ON
        ]
        if missing:
            yield f"{request.name}: {profile.name} asks for {' and '.join(missing)}; its installer refuses without"


def refuse_too_small(request: VmRequest) -> None:
    """Raise UsageError for a VM that is installed from a medium and too small for the installer of Windows."""
    profile = GUEST_OSES.get(request.os or "")
    if profile is None or not profile.is_windows or request.install is None:
        return
    found = list_warnings(request)
    if found:
        raise UsageError(found[0], context=found[1:], hint="the installer would stop; see docs/guest-systems.md")


def _less(request: VmRequest, profile: GuestOs, asked: str, given: str) -> str:
    return f"{request.name}: {profile.name} asks for {asked}, the VM has {given}"
