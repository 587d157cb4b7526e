# SPDX-License-Identifier: Apache-2.0
"""Rules about a guest's driver and installation that no guest could keep, refused before anything is placed."""

from collections.abc import Iterator

from vgpuctl.catalog import is_mig_backed
from vgpuctl.catalog.guest_os import GUEST_OSES, GuestOs
from vgpuctl.catalog.vgpu_terms import terms_of
from vgpuctl.errors import UsageError
from vgpuctl.model.disk import DiskBus
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.mps import MOST_CLIENTS_BEFORE
from vgpuctl.model.switch import Switch
from vgpuctl.model.vgpu_params import VfParam, VgpuParam
from vgpuctl.model.vm import Firmware, VmRequest
from vgpuctl.sharing.kinds import asks_for_function
from vgpuctl.sharing.mps import refuse_clients, refuse_mps_of_type
from vgpuctl.sharing.params import refuse_unified_memory

_OF_PACKAGES = ("key", "package")
_OF_INSTALLERS = ("url", "sha256")
_APT = ("debian-", "ubuntu-")
_DNF = ("rhel-", "rocky-", "almalinux-", "centos-stream-")
_ZYPPER = ("sles-", "opensuse-")


def refuse_impossible_guest(request: VmRequest) -> None:
    """Raise UsageError for a driver or an installation that cannot work. The profile's defaults are filled in."""
    profile = GUEST_OSES.get(request.os or "")
    for message, hint in (
        *_driver_refusals(request, profile),
        *_install_refusals(request, profile),
        *_param_refusals(request),
        *_mps_refusals(request, profile),
    ):
        raise UsageError(f"VM {request.name}: {message}", hint=hint)
    _check_documents(request, is_windows=profile is not None and profile.is_windows)


def _check_documents(request: VmRequest, *, is_windows: bool) -> None:
    """Refuse documents that the guest would ignore. Of those that the store keeps no content of, nothing is known."""
    user_data, network_config = request.cloud_init.user_data, request.cloud_init.network_config
    given = [one for one in (user_data, network_config) if one is not None and one.has_content()]
    if not given:
        return
    from vgpuctl.specs.user_data import check_network_config, check_user_data, check_windows_user_data

    if user_data is not None and user_data.has_content():
        (check_windows_user_data if is_windows else check_user_data)(user_data.reveal())
    if network_config is not None and network_config.has_content():
        check_network_config(network_config.reveal())


def fits_system(driver: GuestDriver, request: VmRequest) -> bool:
    """True if a tenant's default driver is for this VM: it has a GPU, and the driver is for its system."""
    profile = GUEST_OSES.get(request.os or "")
    is_windows = profile is not None and profile.is_windows
    return bool(request.gpus) and is_windows == (driver.source is DriverSource.WINDOWS)


def _driver_refusals(request: VmRequest, profile: GuestOs | None) -> Iterator[tuple[str, str]]:
    driver = request.guest_driver
    source, is_windows = driver.source, profile is not None and profile.is_windows
    if source is DriverSource.NONE:
        given = [name for name in ("repository", *_OF_PACKAGES, *_OF_INSTALLERS) if getattr(driver, name) is not None]
        if given or driver.toolkit:
            yield (
                f"guest_driver has {', '.join(given or ['toolkit'])} and no source",
                f"say `source: {DriverSource.RUN_FILE if 'url' in given else DriverSource.PACKAGES}`",
            )
        return
    if is_windows and source in (DriverSource.PACKAGES, DriverSource.RUN_FILE):
        yield (
            f"the driver's source {source} is for Linux, and {request.os} is Windows",
            "say `source: windows`, with the address of the Windows installer",
        )
    if source is DriverSource.WINDOWS and not is_windows:
        yield (
            f"the driver's source windows is for Windows, and the guest's system is {request.os or 'not said'}",
            "name a Windows profile with `os:`, or another source",
        )
    if is_windows and driver.toolkit:
        yield f"the container toolkit is for Linux, and {request.os} is Windows", "leave `toolkit` out"
    yield from _missing_parts(driver)
    if source is DriverSource.RUN_FILE and request.secure_boot is Switch.ON:
        yield (
            "a driver from a run-file cannot load with Secure Boot: its module is signed by nobody that the firmware"
            " knows, and to enrol a key somebody has to press keys at the console",
            "use packages with signed modules, or `secure_boot: off`",
        )
    yield from _packaging_refusals(driver, profile)


def _param_refusals(request: VmRequest) -> Iterator[tuple[str, str]]:
    """Parameters that no host could give; what its layout adds is judged when it is placed."""
    params = request.vgpu_params
    if not params:
        return
    names = [name for name, _ in params]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        yield f"vgpu_params has {twice} with two values", "leave out one of them"
    vgpus = [one for one in request.gpus if one.sharing is None]
    wants_vf = any(map(asks_for_function, request.gpus))
    unused = [name for name in names if not (wants_vf if name in tuple(VfParam) else vgpus)]
    if unused:
        kind = "VFs" if unused[0] in tuple(VfParam) else "vGPUs"
        yield (
            f"{', '.join(unused)} of vgpu_params is for {kind}, and the VM asks for none",
            "leave it out (of a VM that is there: `resize-vm --vgpu-param none`), or ask for such a share",
        )
    timed = [name for name in names if name in tuple(VfParam)]
    if timed and any(one.wants_compute for one in request.gpus if asks_for_function(one)):
        yield (
            f"{', '.join(timed)} of vgpu_params contradicts the compute time that its VF is asked for",
            "leave one of them out: a VF with compute time has the time slices of its card's layout",
        )
    if (VgpuParam.ENABLE_UVM, "1") not in params:
        return
    if terms_of(request).is_linux is False:
        yield f"enable_uvm=1 is for Linux guests, and {request.os} is Windows", "leave it out"
    for profile in (one.profile for one in vgpus if one.profile is not None):
        refusal = refuse_unified_memory(profile)
        if refusal is not None:
            yield refusal, "ask for the type that takes the whole GPU or GPU instance (docs/vgpu-parameters.md)"


def _mps_refusals(request: VmRequest, profile: GuestOs | None) -> Iterator[tuple[str, str]]:
    """MPS that no guest could have. Rules of a GPU's model are checked again when the VM is placed."""
    mps = request.guest.mps
    if mps is None:
        return
    out = "leave `guest: {mps: …}` out"
    if profile is not None and profile.is_windows:
        yield f"MPS is for Linux guests, and {request.os} is Windows", out
    if not request.gpus:
        yield "MPS is for a guest with a GPU, and the VM asks for none", "ask for one with `gpus:`, or " + out
    if request.guest_driver.source is DriverSource.NONE:
        yield (
            "MPS is part of the GPU's driver, and the guest is set up with none",
            "say `guest_driver: {source: image}` for an image with the driver, or let it be installed",
        )
    has_image = request.disk is not None and request.disk.base_image is not None
    if not has_image and (request.install is None or not request.install.unattended):
        which = "an empty disk" if request.install is None else "a system that is installed by hand"
        yield (
            f"cloud-init sets MPS up, and {which} has none",
            "name a base image with cloud-init as `disk: {base_image: …}`, or install with --unattended",
        )
    if any(map(asks_for_function, request.gpus)):
        yield "MPS is NVIDIA's, and the VM asks for a VF of another vendor", out
    profiles = [one.profile for one in request.gpus if one.profile is not None]
    in_mig = sum(one.count for one in request.gpus if one.profile is not None and is_mig_backed(one.profile))
    if in_mig > 1:
        yield (
            f"CUDA uses one MIG instance in a program, and the VM asks for {in_mig} of them",
            "ask for one MIG-backed share, or for types that are not MIG-backed",
        )
    for reason in (refuse_mps_of_type(mps, one) for one in profiles):
        if reason is not None:
            yield reason, "change it, or take another type (docs/guest-mps.md)"
    reason = None if request.guest_driver.version is None else refuse_clients(mps, request.guest_driver.version)
    if reason is not None:
        yield reason, f"ask for {MOST_CLIENTS_BEFORE} clients, or a newer driver"


def _missing_parts(driver: GuestDriver) -> Iterator[tuple[str, str]]:
    source = driver.source
    if driver.url is not None and driver.sha256 is None:
        yield "guest_driver.url has no sha256", "give the checksum that `sha256sum FILE` prints"
    if source.is_fetched() and driver.url is None:
        yield f"the driver's source {source} has no url", "give the address where you keep NVIDIA's installer"
    if source is DriverSource.PACKAGES and driver.package is None:
        yield "the driver's source packages has no package", "name the driver's package, for example nvidia-driver"
    if not source.is_fetched():
        unused = [name for name in _OF_INSTALLERS if getattr(driver, name) is not None]
    else:
        unused = ["package"] if driver.package is not None else []
    if unused:
        yield f"guest_driver.{unused[0]} has no use with the source {source}", "leave it out, or change the source"
    if driver.repository is not None and source is not DriverSource.PACKAGES and not driver.toolkit:
        yield f"guest_driver.repository has no use with the source {source}", "it is for packages and for the toolkit"
    if driver.key is not None and driver.repository is None:
        yield "guest_driver.key has no repository", "give the repository that the key signs"


def _packaging_refusals(driver: GuestDriver, profile: GuestOs | None) -> Iterator[tuple[str, str]]:
    """Name each wish that the profile's package manager cannot fulfil; none is known without one, and of `linux`."""
    if profile is None or profile.is_windows:
        return
    uses_apt, uses_dnf = profile.name.startswith(_APT), profile.name.startswith(_DNF)
    is_for_apt = (driver.repository or "").startswith("deb ")
    if driver.repository is not None and is_for_apt and uses_dnf:
        yield f"the repository is a line for APT, and {profile.name} uses DNF", "give the address of a DNF repository"
    if driver.repository is not None and not is_for_apt and uses_apt:
        yield f"the repository is no line for APT, which {profile.name} uses", "write `deb URI SUITE COMPONENT`"
    if profile.name.startswith(_ZYPPER) and (driver.source is not DriverSource.IMAGE or driver.toolkit):
        yield (
            f"nothing can be installed in {profile.name}, whose packages are zypper's",
            "make an image with the driver and say `source: image`",
        )


def _install_refusals(request: VmRequest, profile: GuestOs | None) -> Iterator[tuple[str, str]]:
    install = request.install
    if install is None or not install.unattended:
        return
    if profile is None or not (profile.is_windows or profile.name.startswith("ubuntu-")):
        yield (
            f"there are no answers for the installer of {request.os or 'a system that is not said'}",
            "--unattended is for Windows and Ubuntu: name such a profile with --os, or install by hand",
        )
        return
    if request.disk is None or request.disk.base_image is not None:
        yield "an unattended installation needs an empty disk", "give --disk SIZE and no base image"
    if request.data_disks:
        yield (
            f"an unattended installation wipes a disk, and could take data disk {request.data_disks[0].name} for it",
            "leave the data disks out, and attach them by `vgpuctl attach-disk` after the installation",
        )
    if request.cloud_init.user_data is not None:
        yield (
            "the answers of --unattended and user-data exclude each other",
            "write the answers into your user-data, and leave --unattended out",
        )
    needs_drivers = request.disk is not None and request.disk.bus is not DiskBus.SATA
    if profile.is_windows and install.drivers is None and needs_drivers:
        yield (
            f"the installer of {profile.name} has no driver for a disk on the bus"
            f" {request.disk.bus if request.disk else ''}",
            "give --drivers-iso with the virtio drivers, or --disk-bus sata",
        )
    if profile.is_windows and request.firmware is Firmware.BIOS:
        yield "the answers for Windows are for a disk that UEFI boots", "leave `firmware: bios` out"
    if profile.is_windows and request.cloud_init.network_config is not None:
        yield (
            "an unattended Windows reads no network-config",
            "leave it out: it has the address of its port, or asks DHCP",
        )
