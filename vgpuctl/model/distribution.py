# SPDX-License-Identifier: Apache-2.0
"""Families of Linux distributions, and the operator's commands in each: packages, boot arguments, services.

Texts for people; nothing here is run by vgpuctl.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from enum import StrEnum

from vgpuctl.model.guest_memory import format_page_size

HUGE_PAGES_1_GIB = 1 << 20


class Family(StrEnum):
    """Distributions with the same package names and tools. UNKNOWN: commands name every family's form."""

    DEBIAN = "debian"
    EL = "el"
    SUSE = "suse"
    UNKNOWN = "unknown"


class Package(StrEnum):
    """Something that a distribution packages, under a name of its own."""

    QEMU = "qemu"
    LIBVIRT = "libvirt"
    QEMU_IMG = "qemu-img"
    FIRMWARE = "uefi firmware"
    PYTHON = "python"
    SUDO = "sudo"
    OVN_HOST = "ovn host"
    SWTPM = "tpm emulator"
    NVIDIA_MODPROBE = "nvidia-modprobe"


_FAMILIES = {
    "debian": Family.DEBIAN,
    "ubuntu": Family.DEBIAN,
    "rhel": Family.EL,
    "centos": Family.EL,
    "fedora": Family.EL,
    "suse": Family.SUSE,
    "opensuse": Family.SUSE,
    "sles": Family.SUSE,
}
# For Debian 12 and 13, RHEL 8 to 10 and Fedora, SLES 15 and Leap 15. Debian's were installed, the others' not.
_PACKAGES = {
    Package.QEMU: {Family.DEBIAN: "qemu-system-x86", Family.EL: "qemu-kvm", Family.SUSE: "qemu-kvm"},
    Package.LIBVIRT: {
        Family.DEBIAN: "libvirt-daemon-system libvirt-clients",
        Family.EL: "libvirt",
        Family.SUSE: "libvirt-daemon-qemu libvirt-client",
    },
    Package.QEMU_IMG: {Family.DEBIAN: "qemu-utils", Family.EL: "qemu-img", Family.SUSE: "qemu-tools"},
    Package.FIRMWARE: {Family.DEBIAN: "ovmf", Family.EL: "edk2-ovmf", Family.SUSE: "qemu-ovmf-x86_64"},
    # EL 8 and SLES 15 have Python 3.6 as python3; the newer one has its own name.
    Package.PYTHON: {Family.DEBIAN: "python3", Family.EL: "python3.11", Family.SUSE: "python311"},
    Package.SUDO: {Family.DEBIAN: "sudo", Family.EL: "sudo", Family.SUSE: "sudo"},
    Package.OVN_HOST: {
        Family.DEBIAN: "openvswitch-switch ovn-host",
        # RHEL's own packages have the version in their name (openvswitch3.3 ovn24.03-host).
        Family.EL: "openvswitch ovn ovn-host",
        Family.SUSE: "openvswitch ovn ovn-host",
    },
    # Debian's swtpm alone does not bring swtpm_setup.
    Package.SWTPM: {Family.DEBIAN: "swtpm swtpm-tools", Family.EL: "swtpm swtpm-tools", Family.SUSE: "swtpm"},
    # In contrib of Debian, and in NVIDIA's repositories of all families.
    Package.NVIDIA_MODPROBE: dict.fromkeys((Family.DEBIAN, Family.EL, Family.SUSE), "nvidia-modprobe"),
}
# Packages that one release has separately. apt installs them as recommended ones, unless it is told to install none.
_SEPARATE = {"debian 13": {Package.QEMU: "qemu-system-modules-spice"}}
_INSTALL = {
    Family.DEBIAN: "apt-get install -y",
    Family.EL: "dnf install -y",
    Family.SUSE: "zypper --non-interactive install",
}
_NAMES = {Family.DEBIAN: "Debian, Ubuntu", Family.EL: "Fedora, RHEL and its kin", Family.SUSE: "SUSE"}


def family_of(distribution: Sequence[str]) -> Family:
    """Return the family of a distribution. distribution: os-release's ID, then its ID_LIKE."""
    for name in distribution:
        family = _FAMILIES.get(name.lower()) or _FAMILIES.get(name.lower().partition("-")[0])
        if family is not None:
            return family
    return Family.UNKNOWN


def package_names(package: Package, family: Family, release: str = "") -> str:
    """Return what the family calls a package, several names with a blank between them; UNKNOWN has none.

    release: os-release's ID and VERSION_ID, such as `debian 13`; empty for what all releases have.
    """
    separate = _SEPARATE.get(release, {}).get(package, "")
    return f"{_PACKAGES[package].get(family, '')} {separate}".strip()


def install(packages: Iterable[Package], family: Family, release: str = "") -> str:
    """Return the command that installs packages; for an unknown family the names in every family."""
    wanted = list(packages)
    if family is not Family.UNKNOWN:
        return f"{_INSTALL[family]} {' '.join(package_names(one, family, release) for one in wanted)}"
    forms = (f"{' '.join(package_names(one, each) for one in wanted)} ({_NAMES[each]})" for each in _INSTALL)
    return f"install {', or '.join(forms)}"


def fabric_manager_packages(family: Family, driver: str | None) -> str:
    """Return how Fabric Manager and its SDK (libnvfm.so.1) are installed, which must be of the driver's version.

    Names of NVIDIA's repositories (NVIDIA/apt-packaging-fabric-manager, NVIDIA/yum-packaging-fabric-manager) and of
    Ubuntu's; NVIDIA's lost the branch in their names, and a hyphen, with 580. They were not installed here.
    """
    version = driver or "VERSION"
    branch = version.partition(".")[0] if driver else "BRANCH"
    is_new = not branch.isdecimal() or int(branch) >= 580
    manager = f"nvidia-fabricmanager-{version}" if is_new else f"nvidia-fabric-manager-{version}"
    rpm = f"{manager} nvidia-fabric-manager-devel-{version}"
    deb = f"nvidia-fabricmanager-{branch} nvidia-fabricmanager-dev-{branch}"
    deb = f"install {deb} of version {version}" + (f" (without -{branch} in NVIDIA's repository)" if is_new else "")
    if family is Family.DEBIAN:
        return deb
    if family is not Family.UNKNOWN:
        return f"{_INSTALL[family]} {rpm}"
    return f"{deb} ({_NAMES[Family.DEBIAN]}), or {rpm} ({_NAMES[Family.EL]}, {_NAMES[Family.SUSE]})"


def kernel_arguments(arguments: str, family: Family) -> str:
    """Return the command that adds arguments to the kernel's command line; a reboot must follow."""
    if family is Family.EL:
        return f"grubby --update-kernel=ALL --args={shlex.quote(arguments)}"
    if family in (Family.DEBIAN, Family.SUSE):
        update = "update-grub" if family is Family.DEBIAN else "grub2-mkconfig -o /boot/grub2/grub.cfg"
        escaped = re.sub(r'[|&\\"]', r"\\\g<0>", arguments)
        expression = f's|^GRUB_CMDLINE_LINUX="|&{escaped} |'
        return f"sed -i {shlex.quote(expression)} /etc/default/grub && {update}"
    return f"add {arguments} to the kernel's arguments in the boot loader's configuration"


def rebuild_initramfs(family: Family) -> str:
    """Return the command that rebuilds the initramfs with the modules' configuration."""
    if family is Family.DEBIAN:
        return "update-initramfs -u"
    if family in (Family.EL, Family.SUSE):
        return "dracut --force"
    return "rebuild the initramfs"


def start_open_vswitch(family: Family) -> str:
    """Return the command that starts Open vSwitch, whose service has another name on Debian and Ubuntu."""
    names = {Family.DEBIAN: "openvswitch-switch", Family.EL: "openvswitch", Family.SUSE: "openvswitch"}
    if family in names:
        return f"`systemctl start {names[family]}`"
    return "`systemctl start openvswitch` (`openvswitch-switch` on Debian and Ubuntu)"


def mount_huge_pages(size_kib: int) -> str:
    """Return the command that mounts a hugetlbfs of a page size; libvirt looks for mounts when it starts."""
    if size_kib == HUGE_PAGES_1_GIB:
        folder, size = "/dev/hugepages1G", "1G"
    else:
        folder, size = f"/dev/hugepages{size_kib // 1024}M", f"{size_kib // 1024}M"
    return (
        f"mkdir -p {folder} && mount -t hugetlbfs -o pagesize={size} hugetlbfs {folder}, then restart libvirtd or"
        f" virtqemud; `hugetlbfs {folder} hugetlbfs pagesize={size},x-mount.mkdir 0 0` in /etc/fstab keeps it"
    )


def describe_missing_mount(size_kib: int) -> str:
    """Return the sentence that names a missing hugetlbfs."""
    return f"no hugetlbfs of {format_page_size(size_kib)} pages is mounted, so libvirt cannot give them to a guest"
