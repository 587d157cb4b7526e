# SPDX-License-Identifier: Apache-2.0
"""Checks of the host around its GPUs: IOMMU, kernel, modules, services, access."""

from collections.abc import Iterator

from vgpuctl.agent.wire.boot import UNIT_NAME
from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.model.distribution import family_of, kernel_arguments
from vgpuctl.planner.doctor.examined import Examined, board_of, name_of
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.sharing.kinds import KINDS

HOST = "host"
MANAGER = "nvidia-vgpu-mgr.service"
# Blackwell runs on the open kernel modules alone; those do not know boards before Turing.
_NEWEST, _BEFORE_OPEN_MODULES = ("Blackwell", "Blackwell Ultra"), ("Maxwell", "Pascal", "Volta")


def iommu_off(seen: Examined) -> Iterator[Finding]:
    """Row 1: without an IOMMU no device can be given to a VM."""
    arguments = kernel_arguments("intel_iommu=on iommu=pt", family_of(seen.facts.distribution))
    fix = f"enable VT-d or AMD-Vi in the firmware; {arguments}; reboot"
    if not seen.facts.iommu_active and seen.facts.why_unread("iommu_active") is None:
        yield Finding(CheckId.IOMMU_OFF, Severity.ERROR, HOST, "/sys/class/iommu is empty", fix)
    for text in seen.said(CheckId.IOMMU_OFF):
        yield Finding(CheckId.IOMMU_OFF, Severity.ERROR, HOST, text, fix)


def access_denied(seen: Examined) -> Iterator[Finding]:
    """Row 16: SELinux or AppArmor keep QEMU from a device."""
    fix = "let libvirt label the device (no QEMU started by hand), or add the path to the profile"
    for text in seen.said(CheckId.ACCESS_DENIED):
        yield Finding(CheckId.ACCESS_DENIED, Severity.ERROR, HOST, text, fix)


def memory_lock(seen: Examined) -> Iterator[Finding]:
    """Row 17: a guest's memory cannot be pinned."""
    fix = "raise the domain's memtune hard_limit (its memory and 1 GiB), or free memory; such guests cannot balloon"
    for text in seen.said(CheckId.MEMORY_LOCK):
        yield Finding(CheckId.MEMORY_LOCK, Severity.ERROR, HOST, text, fix)


def kernel_module(seen: Examined) -> Iterator[Finding]:
    """Row 18: the running kernel has no NVIDIA module, or library and module are of two versions."""
    gpus = [gpu for gpu in seen.nvidia_gpus() if gpu.driver is None or gpu.driver == "nvidia"]
    fix = f"build the module for {seen.facts.kernel} (dkms autoinstall) and reboot; VFs are lost with it"
    if gpus and seen.diagnostics.nvidia_module is False and not any(gpu.driver == "nvidia" for gpu in gpus):
        read = f"/lib/modules/{seen.facts.kernel}/modules.dep lists no nvidia.ko"
        yield Finding(CheckId.KERNEL_MODULE, Severity.ERROR, HOST, read, fix)
    problem = seen.facts.nvml_problem or ""
    if "ersion mismatch" in problem or "Driver Not Loaded" in problem:
        yield Finding(CheckId.KERNEL_MODULE, Severity.ERROR, HOST, problem, "reboot after an upgrade of the driver")
    for text in seen.said(CheckId.KERNEL_MODULE):
        if seen.facts.nvml_problem is not None and any(gpu.driver == "nvidia" for gpu in gpus):
            yield Finding(CheckId.KERNEL_MODULE, Severity.ERROR, HOST, text, "reboot after an upgrade of the driver")
        else:
            fix = "none for the host's cards; the program that asked has a library of another version"
            yield Finding(CheckId.KERNEL_MODULE, Severity.NOTE, HOST, text, fix)


def secure_boot(seen: Examined) -> Iterator[Finding]:
    """Row 19: Secure Boot refuses a module that is not signed."""
    fix = "sign the module and enrol the key (mokutil --import), or switch Secure Boot off"
    # The kernel does not say which module it refused: where no card lacks its driver, it was one for something else.
    lacks_driver = any(gpu.driver is None for gpu in seen.facts.gpus)
    worst = Severity.ERROR if seen.diagnostics.secure_boot is not False else Severity.WARNING
    for text in seen.said(CheckId.SECURE_BOOT):
        yield Finding(CheckId.SECURE_BOOT, worst if lacks_driver else Severity.NOTE, HOST, text, fix)


def vgpu_manager(seen: Examined) -> Iterator[Finding]:
    """Row 20: NVIDIA's vGPU manager does not run; nvidia-vgpud ends by itself, which is normal."""
    unit = seen.unit(MANAGER)
    is_down = unit is not None and unit.load == "loaded" and unit.active != "active"
    if unit is not None and is_down and any(seen.is_for_vgpus(gpu) for gpu in seen.nvidia_gpus()):
        read = f"{MANAGER} is {unit.active} ({unit.result or 'no result'})"
        fix = f"systemctl start {MANAGER}; journalctl -u nvidia-vgpu-mgr tells why it ended"
        yield Finding(CheckId.VGPU_MANAGER, Severity.ERROR, HOST, read, fix)
    daemon = seen.unit("nvidia-vgpud.service")
    if daemon is not None and daemon.load == "loaded" and daemon.result not in ("success", ""):
        read = f"nvidia-vgpud.service ended with {daemon.result}"
        fix = "journalctl -u nvidia-vgpud; without it the driver knows no vGPU types"
        yield Finding(CheckId.VGPU_MANAGER, Severity.ERROR, HOST, read, fix)
    for text in seen.said(CheckId.VGPU_MANAGER):
        fix = "journalctl -u nvidia-vgpu-mgr, lines vmiop_log, tells why the VM did not start"
        yield Finding(CheckId.VGPU_MANAGER, Severity.WARNING, HOST, text, fix)


def libvirt_too_old(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: the host's libvirt is too old for the kind of shares that its GPUs offer."""
    for kind in KINDS:
        refusal = kind.refuse_host(seen.facts)
        if refusal is not None and any(kind.sharing in gpu.sharing for gpu in seen.nvidia_gpus()):
            yield Finding(CheckId.LIBVIRT_TOO_OLD, Severity.ERROR, HOST, refusal.reason, refusal.remedy or "")


def mixed_generations(seen: Examined) -> Iterator[Finding]:
    """Row 22: the newest and very old boards need drivers that do not go together."""
    found = {gpu.address: board_of(gpu) for gpu in seen.nvidia_gpus()}
    new = sorted(address for address, board in found.items() if board and board.architecture in _NEWEST)
    old = sorted(address for address, board in found.items() if board and board.architecture in _BEFORE_OPEN_MODULES)
    fix = "see the driver's release notes; put the old boards into another host"
    if new and old:
        gpus = {gpu.address: name_of(gpu) for gpu in seen.facts.gpus}
        read = ", ".join(f"{gpus[address]} at {address}" for address in (*new, *old))
        yield Finding(CheckId.MIXED_GENERATIONS, Severity.WARNING, HOST, read, fix)
    # A card that no VM of vGPUs needs may be on vfio-pci, where its driver is the guest's matter.
    is_unserved = any(gpu.driver not in ("nvidia", "vfio-pci") for gpu in seen.nvidia_gpus())
    for text in seen.said(CheckId.MIXED_GENERATIONS) if is_unserved else ():
        yield Finding(CheckId.MIXED_GENERATIONS, Severity.ERROR, HOST, text, fix)


def group_open(seen: Examined) -> Iterator[Finding]:
    """Row 23: QEMU could not open a VFIO group at the VM's last start."""
    for text in seen.said(CheckId.GROUP_OPEN):
        fix = "journalctl -u nvidia-vgpu-mgr has the driver's reason; `vgpuctl repair` where the share is gone"
        yield Finding(CheckId.GROUP_OPEN, Severity.ERROR, HOST, text, fix)


def boot_contract(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: the unit that restores the layout at boot did not run, or did not restore everything."""
    boot = seen.facts.boot
    if boot is None:
        return
    fix = f"journalctl -u {UNIT_NAME} on the host; `vgpuctl apply-hosts` brings the layout back and installs it anew"
    failed = f"journalctl -u {UNIT_NAME} on the host; `vgpuctl apply-hosts` brings the layout back, and this stays"
    failed += " until the next boot"
    for text in boot.problems:
        yield Finding(CheckId.BOOT_CONTRACT, Severity.ERROR, HOST, text, failed)
    if boot.restored_boot_id != seen.facts.boot_id:
        read = f"{UNIT_NAME} left no result in this boot"
        yield Finding(CheckId.BOOT_CONTRACT, Severity.ERROR, HOST, read, fix)
    if boot.missing_python is not None:
        read = f"{UNIT_NAME} starts {boot.missing_python}, which is not on the host any more"
        fix = "`vgpuctl apply-hosts` names the present one; a distribution upgrade can remove the old one"
        yield Finding(CheckId.BOOT_CONTRACT, Severity.ERROR, HOST, read, fix)
    if boot.unnamed:
        read = f"{UNIT_NAME} knows the vGPU type of {', '.join(boot.unnamed)} by its id alone"
        fix = "`vgpuctl apply-hosts` writes the names too; an update of the driver may give the ids to other types"
        yield Finding(CheckId.BOOT_CONTRACT, Severity.WARNING, HOST, read, fix)
    if not boot.is_enabled:
        read = f"{UNIT_NAME} is not enabled"
        yield Finding(CheckId.BOOT_CONTRACT, Severity.ERROR, HOST, read, "`vgpuctl apply-hosts` enables it")
