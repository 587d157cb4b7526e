# SPDX-License-Identifier: Apache-2.0
"""The only entry point to libvirt-python: loads it on first use, silences it and translates its exceptions."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from vgpuctl.errors import GuestError, LibvirtMissing, VgpuctlError
from vgpuctl.logs import timed
from vgpuctl.model.distribution import Family, Package, install
from vgpuctl.model.libvirt_units import hint_of

_DETACHED_HINT = (
    "libvirt before 9.7 accepts an unmanaged device only when its driver is vfio-pci; a vendor's VFIO driver "
    "(managed='no') needs libvirt 9.7 or newer on the host"
)
_KVM_HINT = "/dev/kvm is missing or refused: enable virtualisation in the firmware, load kvm_intel or kvm_amd"
_MEMORY_HINT = "a guest with a GPU pins all its memory: free memory on the host or ask for less with --memory"
_FIRMWARE_HINT = (
    "the host has no UEFI build that starts a guest without Secure Boot's keys: "
    f"{install([Package.FIRMWARE], Family.UNKNOWN)}"
)
_SPICE_HINT = (
    "the host's QEMU has no SPICE: Debian 13 has it in qemu-system-modules-spice, RHEL 9 and newer do not have it; or "
    "create the VM with --display vnc"
)

# A part of libvirt's message (lower case) and its remedy. The first match wins.
_HINTS = (
    ("must be manually detached", _DETACHED_HINT),
    (
        "in use by domain",
        "another domain holds the device; `vgpuctl list-vms` shows ours, `virsh list --all` the others, "
        "and `vgpuctl repair` rolls back what a killed run left",
    ),
    (
        "in use by driver",
        "another domain or program holds the device; `vgpuctl inspect-host HOST` names its holder",
    ),
    (
        "memlock",
        "libvirt raises the limit of locked memory itself; in a container libvirtd needs CAP_SYS_RESOURCE",
    ),
    (
        "vfio_map_dma failed",
        "the guest's memory could not be pinned: check free memory on the host and the memlock limit of libvirtd",
    ),
    (
        "cannot allocate memory",
        _MEMORY_HINT,
    ),
    (
        "cannot set up guest memory",
        _MEMORY_HINT,
    ),
    ("network not found", "`virsh net-list --all` on the host lists its networks; choose one with --network"),
    ("network '", "`virsh net-start NETWORK` and `virsh net-autostart NETWORK` on the host bring a network up"),
    (
        "no space left on device",
        "a disk of the host is full: `df -h` there shows which, `virsh pool-info POOL` what a storage pool has left",
    ),
    (
        "could not access kvm kernel module",
        _KVM_HINT,
    ),
    (
        "failed to initialize kvm",
        _KVM_HINT,
    ),
    (
        "does not support virt type 'kvm'",
        _KVM_HINT,
    ),
    (
        "requires vfio support",
        "VFIO is not loaded on the host: `modprobe vfio-pci`, and the IOMMU must be on (intel_iommu=on, amd_iommu=on)",
    ),
    (
        "apparmor",
        "AppArmor stands in the way: `journalctl -k | grep DENIED` on the host names the path; base images belong "
        "into a libvirt pool or /var/lib/libvirt/images",
    ),
    ("unable to find any firmware", _FIRMWARE_HINT),
    ("unable to find 'efi' firmware", _FIRMWARE_HINT),
    (
        "does not support sga",
        "this QEMU has no serial console for its BIOS, as on RHEL 9 and its kin: create the VM with --firmware uefi",
    ),
    (
        "hugetlbfs",
        "libvirt finds no hugetlbfs of the guest's page size: `vgpuctl check-hosts` names the command that mounts it",
    ),
    ("spice graphics are not supported", _SPICE_HINT),
    ("does not support video model 'qxl'", _SPICE_HINT),
    ("phys-bits too low", "the GPUs' memory windows do not fit the CPU's address width; give the VM fewer GPUs"),
    (
        "input/output error",
        "the vendor's driver refused the device: `journalctl -u nvidia-vgpu-mgr` and dmesg on the host say why",
    ),
    (
        "permission denied",
        "look at the file's owner and mode, and at its folders'; where `getenforce` says Enforcing, a folder other than"
        " /var/lib/libvirt/images needs a label: `semanage fcontext -a -t virt_image_t 'FOLDER(/.*)?'`, then"
        " `restorecon -R FOLDER`",
    ),
    (
        "swtpm",
        "the emulator of its TPM fails: `/var/log/swtpm/libvirt/qemu/` on the host says why; swtpm_setup must be"
        " installed, and the folder of its certificates, /var/lib/swtpm-localca, writable for its user",
    ),
    ("virtlogd", "libvirt's log daemon does not run on the host: `systemctl start virtlogd.socket`"),
)


@functools.cache
def libvirt_module() -> Any:
    """Import libvirt-python and stop libvirt from printing errors on stderr: they travel as exceptions."""
    import libvirt

    libvirt.registerErrorHandler(_swallow, None)
    return libvirt


@contextlib.contextmanager
def translated(action: str, error: type[GuestError] = GuestError) -> Iterator[None]:
    """Turn libvirt's exceptions within into `error`: "cannot ACTION: message (libvirt error CODE)" and a hint."""
    library = libvirt_module()
    with timed("libvirt-call", action=action):
        try:
            yield
        except library.libvirtError as refused:
            raise translate(refused, action, error) from refused


def translate(refused: Any, action: str, error: type[GuestError] = GuestError) -> VgpuctlError:
    """Make a GuestError of a libvirtError, or LibvirtMissing when the connection to libvirt broke."""
    answer = answer_of(refused)
    if refused.get_error_domain() == libvirt_module().VIR_FROM_RPC:
        return LibvirtMissing(
            f"cannot {action}: the connection to libvirt was lost: {answer}",
            hint=hint_of(answer),
        )
    return error(f"cannot {action}: {answer} (libvirt error {refused.get_error_code()})", hint=hint_for(answer))


def answer_of(refused: Any) -> str:
    """Give a libvirtError's message in one line."""
    return "; ".join(line.strip() for line in (refused.get_error_message() or str(refused)).strip().splitlines())


def hint_for(answer: str) -> str | None:
    """Give what helps against a message of libvirt or QEMU, None when nothing is known."""
    lowered = answer.lower()
    known = next((hint for part, hint in _HINTS if part in lowered), None)
    return known or (hint_of(answer) if "-sock'" in answer else None)


def error_code(refused: Any) -> int:
    """Give libvirt's error number (VIR_ERR_*), -1 when there is none."""
    code = refused.get_error_code()
    return code if isinstance(code, int) else -1


def _swallow(_context: object, _error: object) -> None:
    """Take the place of libvirt's handler that prints to stderr."""
