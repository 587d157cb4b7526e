# SPDX-License-Identifier: Apache-2.0
"""Prerequisites of giving devices to guests: processor, IOMMU, firmware settings, drivers."""

from collections.abc import Iterator

from vgpuctl import catalog
from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.catalog.entries import Board
from vgpuctl.model.distribution import Family, fabric_manager_packages, kernel_arguments, rebuild_initramfs
from vgpuctl.model.layout import HostLayout, LayoutKind
from vgpuctl.model.preparation import ProbedCard
from vgpuctl.planner.doctor.examined import NVIDIA
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.gpu_checks import FOREIGN
from vgpuctl.planner.doctor.prerequisites import HOST, Newcomer
from vgpuctl.planner.layout.vgpu_boards import FIRMWARE
from vgpuctl.sharing.fabric import board_has_nvswitch

_VGPU_KINDS = (LayoutKind.VGPU, LayoutKind.MIG_VGPU)
_INTEL, _AMD = "vmx", "svm"


def kvm(host: Newcomer) -> Iterator[Finding]:
    """The processor's virtualisation is off, or KVM is not loaded."""
    if host.there.has_kvm:
        return
    if not host.there.cpu_virtualisation:
        read = "the processor shows neither vmx nor svm"
        yield Finding(CheckId.KVM, Severity.ERROR, HOST, read, "enable VT-x (Intel) or SVM (AMD) in the firmware")
        return
    command = f"modprobe {'kvm_intel' if host.there.cpu_virtualisation == _INTEL else 'kvm_amd'}"
    yield Finding(CheckId.KVM, Severity.ERROR, HOST, "there is no /dev/kvm", command, command)


def iommu_off(host: Newcomer) -> Iterator[Finding]:
    """No IOMMU is active, so no device can be given to a VM."""
    if host.there.has_iommu:
        return
    setting = {_INTEL: "VT-d", _AMD: "AMD-Vi (IOMMU)"}.get(host.there.cpu_virtualisation, "VT-d or AMD-Vi")
    # AMD's is on unless switched off; its driver ignores Intel's argument.
    wanted = ("iommu=pt",) if host.there.cpu_virtualisation == _AMD else ("intel_iommu=on", "iommu=pt")
    missing = [one for one in wanted if one not in host.there.command_line.split()]
    firmware = f"enable {setting} in the firmware"
    command = kernel_arguments(" ".join(missing), host.family) if missing else None
    fix = f"{firmware}; {command}; reboot" if command else f"{firmware}; reboot"
    yield Finding(CheckId.IOMMU_OFF, Severity.ERROR, HOST, "/sys/class/iommu is empty", fix, _runnable(command, host))


def declared_arguments(host: Newcomer) -> Iterator[Finding]:
    """The kernel was started without arguments that the host's layout declares."""
    there = host.there.command_line.split()
    missing = [one for one in host.layout.kernel_arguments if one not in there] if host.layout else []
    if missing:
        command = kernel_arguments(" ".join(missing), host.family)
        read = f"the kernel's arguments lack {' '.join(missing)}, which the layout declares"
        fix = f"{command}; reboot"
        yield Finding(CheckId.KERNEL_ARGUMENTS, Severity.ERROR, HOST, read, fix, _runnable(command, host))


def gpus(host: Newcomer) -> Iterator[Finding]:
    """No GPU shows on the PCI bus."""
    if not host.there.cards:
        fix = "see `lspci -nn`; a card that is seated and powered may need Above 4G decoding in the firmware"
        yield Finding(CheckId.GPUS, Severity.WARNING, HOST, "no GPU shows on the PCI bus", fix)


def sriov_resources(host: Newcomer) -> Iterator[Finding]:
    """The firmware reserves no address space for VFs or BARs."""
    for card in host.there.cards:
        board = _board_of(card)
        if card.has_unassigned_memory:
            read = "the firmware gave one of its memory BARs no address"
            yield Finding(CheckId.SRIOV_RESOURCES, Severity.ERROR, card.address, read, FIRMWARE)
        elif board is not None and board.interface == "sriov-vf" and not card.total_vfs:
            severity = Severity.ERROR if _wants(host.layout, (*_VGPU_KINDS, LayoutKind.VF)) else Severity.WARNING
            read = f"{board.name} shows no VFs (sriov_totalvfs is {'missing' if card.total_vfs is None else 0})"
            yield Finding(CheckId.SRIOV_RESOURCES, severity, card.address, read, FIRMWARE)


def foreign_driver(host: Newcomer) -> Iterator[Finding]:
    """The kernel's own driver has an NVIDIA card."""
    for driver in sorted({card.driver or "" for card in _nvidia(host)} & set(FOREIGN)):
        on = ", ".join(card.address for card in _nvidia(host) if card.driver == driver)
        file = f"/etc/modprobe.d/vgpuctl-{driver}.conf"
        command = f"echo 'blacklist {driver}' > {file} && {rebuild_initramfs(host.family)}"
        read, fix = f"{on} is on {driver}", f"{command}; reboot"
        yield Finding(CheckId.FOREIGN_DRIVER, Severity.ERROR, HOST, read, fix, _runnable(command, host))


def vgpu_driver(host: Newcomer) -> Iterator[Finding]:
    """NVIDIA's driver is missing, or is the guest or data centre edition instead of the vGPU Manager for KVM."""
    there = host.there
    cards = [card for card in _nvidia(host) if card.driver not in FOREIGN]
    declared = _wants(host.layout, _VGPU_KINDS)
    if not cards or not (declared or host.layout is None):
        return
    severity = Severity.ERROR if declared else Severity.NOTE
    fix = "install NVIDIA's vGPU Manager for KVM (the file named vgpu-kvm, of the licensing portal) and reboot"
    if there.nvidia_driver is None:
        read = "NVIDIA's driver is not loaded; passthrough needs none, vGPUs need the vGPU Manager"
        yield Finding(CheckId.DRIVER_WITHOUT_VGPU, severity, HOST, read, fix)
    elif "nvidia-gridd" in there.processes or "nvidia-gridd.service" in there.units:
        read = f"driver {there.nvidia_driver} is the edition for guests (it brings nvidia-gridd)"
        yield Finding(CheckId.DRIVER_WITHOUT_VGPU, severity, HOST, read, fix)
    elif not any(card.is_vgpu_host for card in cards) and any(card.driver == "nvidia" for card in cards):
        read = f"driver {there.nvidia_driver} has no unbindLock, so it is not the vGPU edition"
        yield Finding(CheckId.DRIVER_WITHOUT_VGPU, severity, HOST, read, fix)


def fabric_manager(host: Newcomer) -> Iterator[Finding]:
    """GPUs are of boards with NVSwitches, and Fabric Manager or its SDK is missing."""
    declared = host.layout.fabric if host.layout else None
    boards = {board.name for card in _nvidia(host) if (board := _board_of(card)) and board_has_nvswitch(board)}
    if not boards or (declared is None and not any(card.driver == "nvidia" for card in _nvidia(host))):
        return
    has_manager = "nv-fabricmanager" in host.there.programs
    needs_sdk = declared is not None and declared.mode.has_partitions
    if not has_manager or (needs_sdk and not host.there.has_fabric_sdk):
        missing = "libnvfm.so.1, by which its partitions are activated," if has_manager else "Fabric Manager"
        # Boards of four GPUs have the same names, and no NVSwitch.
        severity = Severity.WARNING if declared is None else Severity.ERROR
        read = f"{missing} is not installed, which the NVSwitches of {', '.join(sorted(boards))} need"
        fix = fabric_manager_packages(host.family, host.there.nvidia_driver)
        yield Finding(CheckId.FABRIC_MANAGER, severity, HOST, read, fix)


def secure_boot(host: Newcomer) -> Iterator[Finding]:
    """Secure Boot is on, and NVIDIA's driver is not loaded."""
    if host.there.has_secure_boot and host.there.nvidia_driver is None and any(True for _ in _nvidia(host)):
        fix = "sign NVIDIA's modules and enrol the key (mokutil --import), or switch Secure Boot off"
        yield Finding(
            CheckId.SECURE_BOOT, Severity.WARNING, HOST, "Secure Boot is on and no NVIDIA driver is loaded", fix
        )


def vfio_module(host: Newcomer) -> Iterator[Finding]:
    """The running kernel has no vfio-pci."""
    if host.there.has_modules_list and "vfio-pci" not in host.there.modules:
        read = f"the kernel {host.there.kernel} has no module vfio-pci"
        fix = "boot the distribution's standard kernel; on Ubuntu's cloud kernels install linux-modules-extra"
        yield Finding(CheckId.VFIO_MODULE, Severity.ERROR, HOST, read, fix)


def _runnable(command: str | None, host: Newcomer) -> str | None:
    return None if host.family is Family.UNKNOWN else command


def _board_of(card: ProbedCard) -> Board | None:
    return catalog.board_by_pci(card.vendor, card.device, card.subsystem)


def _nvidia(host: Newcomer) -> Iterator[ProbedCard]:
    return (card for card in host.there.cards if card.vendor == NVIDIA)


def _wants(layout: HostLayout | None, kinds: tuple[LayoutKind, ...]) -> bool:
    return layout is not None and any(one.layout.kind in kinds for one in layout.gpus)
