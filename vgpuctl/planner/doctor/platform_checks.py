# SPDX-License-Identifier: Apache-2.0
"""Checks of the distribution's parts: UEFI builds, mounts of huge pages, the end of guests, Proxmox, containers."""

from collections.abc import Iterator

from vgpuctl.agent.wire.cdi import FILE, MODPROBE, STATE
from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.model.distribution import (
    Package,
    describe_missing_mount,
    family_of,
    install,
    mount_huge_pages,
)
from vgpuctl.model.guest_firmware import has_secure_build
from vgpuctl.model.host_parts import missing_tpm, missing_uefi
from vgpuctl.planner.doctor.examined import Examined
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.host_checks import HOST

_SETTINGS = "/etc/default/libvirt-guests or /etc/sysconfig/libvirt-guests"


def guest_firmware(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: no UEFI build starts a guest without Secure Boot's keys, so `--firmware uefi` cannot work."""
    for one in missing_uefi(seen.facts):
        yield Finding(CheckId.GUEST_FIRMWARE, Severity.WARNING, HOST, one.read, one.fix)


def guest_secure_boot(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: there are UEFI builds, and none has Secure Boot with enrolled keys, which Windows 11 needs."""
    if seen.facts.guest_firmwares and not has_secure_build(seen.facts):
        read = "no UEFI build has Secure Boot with enrolled keys; VMs with --secure-boot on are not placed here"
        fix = install([Package.FIRMWARE], family_of(seen.facts.distribution))
        yield Finding(CheckId.GUEST_SECURE_BOOT, Severity.NOTE, HOST, read, fix)


def guest_tpm(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: a program of the TPM emulator is missing, which Windows 11 needs."""
    for one in missing_tpm(seen.facts):
        read = f"{one.read}; VMs with --tpm on are not placed here"
        yield Finding(CheckId.GUEST_TPM, Severity.NOTE, HOST, read, one.fix)


def hugepages_mount(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: huge pages are kept or declared, and no hugetlbfs of their size is mounted."""
    declared = {size_kib for size_kib, count in seen.layout.hugepages if count} if seen.layout else set()
    for pool in seen.facts.hugepages or ():
        if pool.is_mounted is False and (pool.total or pool.size_kib in declared):
            read, fix = describe_missing_mount(pool.size_kib), mount_huge_pages(pool.size_kib)
            severity = Severity.ERROR if pool.size_kib in declared else Severity.WARNING
            yield Finding(CheckId.HUGEPAGES_MOUNT, severity, HOST, read, fix)


def guests_at_shutdown(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: libvirt-guests would save guests at shutdown, which fails for guests with VFIO devices."""
    if seen.diagnostics.guests_at_shutdown == "suspend":
        read = "libvirt-guests has ON_SHUTDOWN=suspend; a guest with a GPU cannot be saved and is forced off instead"
        fix = f"set ON_SHUTDOWN=shutdown in {_SETTINGS}"
        yield Finding(CheckId.GUESTS_AT_SHUTDOWN, Severity.WARNING, HOST, read, fix)


def proxmox(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: Proxmox VE runs its VMs without libvirt and sets up vGPUs with its own service."""
    if seen.diagnostics.is_proxmox:
        read = "this is a host of Proxmox VE: its VMs are not in libvirt, so vgpuctl sees only the devices they hold"
        fix = "use a separate host for vgpuctl, and disable pve-nvidia-sriov@ there; not tried on Proxmox"
        yield Finding(CheckId.PROXMOX, Severity.WARNING, HOST, read, fix)


def container_gpus(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: containers take GPUs by vgpuctl.json without a layout, a record, or the driver's nodes."""
    found = seen.facts.cdi
    if found is None:
        return
    if found.unknown is not None:
        fix = f"look whose {FILE} is; remove it and {STATE}, then `vgpuctl apply-hosts`; no VM is placed until then"
        yield Finding(CheckId.CONTAINER_GPUS, Severity.ERROR, HOST, found.unknown, fix)
    elif FILE in found.others:
        read = f"{FILE} is there, and vgpuctl has no record of it"
        fix = "look whose it is, and move it away; a vgpuctl that was taken off the host may have left it"
        yield Finding(CheckId.CONTAINER_GPUS, Severity.WARNING, HOST, read, fix)
    elif seen.layout is None and found.gpus:
        read = f"{FILE} gives {', '.join(found.gpus)} to containers, and no layout says so"
        fix = "declare `vgpu:` of the host (`version: 1` is enough), then `vgpuctl apply-hosts` removes the file"
        yield Finding(CheckId.CONTAINER_GPUS, Severity.WARNING, HOST, read, fix)
    elif found.gpus and found.missing_nodes:
        read = f"{FILE} is without {', '.join(found.missing_nodes)}, so no program in a container can compute"
        make = install([Package.NVIDIA_MODPROBE], family_of(seen.facts.distribution))
        if found.has_modprobe:
            make = f"run `{MODPROBE} -u -c 0` there (the vGPU manager has no such module)"
        yield Finding(CheckId.CONTAINER_GPUS, Severity.WARNING, HOST, read, f"{make}, then `vgpuctl apply-hosts`")
