# SPDX-License-Identifier: Apache-2.0
"""Diagnostics of a host, beside its facts (reference 9). Python 3.9, standard library only.

They cost more to read than facts and nobody places a VM by them, so they are asked for by themselves.
"""

from typing import Optional, Tuple

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.agent.wire.memory import PoolSpace
from vgpuctl.agent.wire.ovn import OvnDiagnostics
from vgpuctl.agent.wire.values import dataclass

KERNEL, AUDIT, MANAGER, QEMU = "kernel", "audit", "nvidia-vgpu-mgr", "qemu"


@dataclass(frozen=True)
class LogPattern:
    """Lines of logs that are a sign for a check, and what takes the sign away again.

    logs: that can have such a line; none of them contains a guest's output. pattern: finds the line; its group `what`
    names a part of the device, where a device has several. ended_by: finds a later line about the same device and part
    after which the sign is history. of_any_device: True for the kernel's own words, which it says of every PCI device;
    the line then counts where the device is a GPU's.
    """

    check: CheckId
    logs: Tuple[str, ...]
    pattern: str
    ended_by: Optional[str] = None
    of_any_device: bool = False


# A BAR as kernels name it: `BAR 7: no space for [mem …]`, since 6.9 `VF BAR 0 [mem …]: can't assign; no space`. Without
# BAR 6, the ROM, which no guest needs assigned. Source: Linux drivers/pci/setup-res.c.
_BAR = r"(?P<what>(?:VF )?BAR (?!6\b)\d+)"
# Who is kept from a device: the profile or the domain of a VM or of libvirt; where the line has neither, the program.
_OF_VMS_PROFILE = r'profile="[^"]*(?:libvirt|virt-aa-helper|virt\w+d\b|qemu)[^"]*"'
_OF_VMS_DOMAIN = r"(?:scontext=\S*:(?:s?virt\w*|qemu\w*)_t\b|comm=\"(?:qemu|kvm|libvirt|virt\w+d\b))"
# SXids that NVIDIA calls not fatal are for information, but for a wrong partition and a broken link (telemetry 8).
_SXID = r"nvidia-nvswitch\S*: SXid \([^)]*\): (?:(?:11004|20012),|\d+, Fatal)"
LOG_PATTERNS: Tuple[LogPattern, ...] = (
    LogPattern(CheckId.IOMMU_OFF, (KERNEL,), r"NVRM: .*IOMMU is not present"),
    LogPattern(CheckId.SRIOV_RESOURCES, (KERNEL,), r"not enough MMIO resources for SR-IOV", of_any_device=True),
    LogPattern(
        CheckId.SRIOV_RESOURCES,
        (KERNEL,),
        _BAR
        + r"(?: \[mem [^\]]*\]: (?:can't assign; no space|failed to assign)|: (?:no space for|failed to assign) \[mem)",
        ended_by=_BAR + r"(?: \[mem [^\]]*\]: assigned|: assigned \[mem)",
        of_any_device=True,
    ),
    LogPattern(CheckId.FOREIGN_DRIVER, (KERNEL,), r"NVIDIA probe routine was not called"),
    LogPattern(CheckId.DRIVER_WITHOUT_VGPU, (KERNEL,), r"vGPU is supported only on VGX capable boards"),
    LogPattern(
        CheckId.GPU_IN_USE,
        (KERNEL,),
        r"Could not acquire UnbindLock|Cannot obtain unbindLock",
        ended_by=r"UnbindLock acquired",
    ),
    LogPattern(CheckId.MIG_WITHOUT_INSTANCE, (KERNEL,), r"vgpu create request: 0x(?:38|40)\b"),
    LogPattern(CheckId.SIZE_CONFLICT, (KERNEL,), r"vgpu create request: 0x56\b"),
    LogPattern(CheckId.FABRIC, (KERNEL,), _SXID),
    LogPattern(
        CheckId.FABRIC,
        (KERNEL,),
        r"(?:nvidia-nvswitch\S*: (?!SXid).*\bfailed\b|fabric manager.*\b(?:fail(?:ed|ure)|mismatch)\b)",
    ),
    LogPattern(
        CheckId.NO_RESET,
        (KERNEL,),
        r"\bnot ready \d+ms after",
        ended_by=r"(?<!not )\bready \d+ms after",
        of_any_device=True,
    ),
    LogPattern(
        CheckId.NO_RESET,
        (KERNEL,),
        r"(?:Unable to|can't) change power state from D3\w* to D0|Refused to change power state|stuck in D3",
        ended_by=r"(?<!not )\bready \d+ms after",
        of_any_device=True,
    ),
    LogPattern(
        CheckId.ACCESS_DENIED,
        (KERNEL, AUDIT),
        r'apparmor="DENIED".* ' + _OF_VMS_PROFILE + r'.* name="(?:/(?:dev|sys)/[^"]*(?:vfio|nvidia|mdev)|[^"]*vgpuctl)',
    ),
    LogPattern(
        CheckId.ACCESS_DENIED,
        (KERNEL, AUDIT),
        rf"avc:\s+denied(?!.* permissive=1)(?=.*(?:{_OF_VMS_DOMAIN}|vgpuctl)).*(?:vfio|nvidia|mdev|vgpuctl)",
    ),
    LogPattern(
        CheckId.MEMORY_LOCK, (KERNEL, QEMU), r"vfio_pin\S*.*RLIMIT_MEMLOCK|VFIO_MAP_DMA.*Cannot allocate memory"
    ),
    # QEMU resets a device whose state could not be loaded, and goes on as if all were well. Source: QEMU
    # hw/vfio/migration.c, vfio_migration_set_state; seen with QEMU 10.0 (moves 3.1, row 9).
    LogPattern(CheckId.VGPU_STATE_LOST, (QEMU,), r"Failed setting device state to .*Resetting device"),
    LogPattern(CheckId.KERNEL_MODULE, (KERNEL,), r"NVRM: API mismatch"),
    # After `module verification failed … tainting kernel` the module is loaded, so the pattern leaves it out.
    LogPattern(
        CheckId.SECURE_BOOT,
        (KERNEL,),
        r"Key was rejected by service|Loading of .*(?:module|key|crypto) is rejected"
        r"|unsigned module loading is restricted",
    ),
    # The level is the manager's own word; what follows can quote the guest's driver.
    LogPattern(CheckId.VGPU_MANAGER, (MANAGER,), r"^error: vmiop_log: "),
    LogPattern(
        CheckId.MIXED_GENERATIONS,
        (KERNEL,),
        r"NVRM: .*(?:requires use of the NVIDIA open kernel modules|legacy .*drivers?)",
    ),
    LogPattern(CheckId.GROUP_OPEN, (QEMU,), r"error getting device from group"),
    LogPattern(CheckId.STOP_RACE, (KERNEL,), r"vgpu delete request: 0x"),
)


# libvirt's daemons: one for all, or one for each kind of object; each answers by its service or by its socket's.
MONOLITHIC_DAEMON, LOG_DAEMON = "libvirtd", "virtlogd"
MODULAR_DAEMONS = ("virtqemud", "virtstoraged", "virtnetworkd", "virtnwfilterd", "virtnodedevd")
LIBVIRT_DAEMONS = (MONOLITHIC_DAEMON, LOG_DAEMON, *MODULAR_DAEMONS)


@dataclass(frozen=True)
class LogLine:
    """One line of a log. check: the check that it belongs to. source: `kernel`, `nvidia-vgpu-mgr`, or a VM's name.

    device: the PCI function that it speaks of, where the kernel says the same of every device; else None.
    """

    check: CheckId
    source: str
    text: str
    device: Optional[str] = None


@dataclass(frozen=True)
class UnitDiagnostics:
    """systemd's state of one unit, in its own words: LoadState, ActiveState, Result."""

    name: str
    load: str
    active: str
    result: str


@dataclass(frozen=True)
class GpuDiagnostics:
    """Diagnostics of one GPU. None: the host or the driver does not say.

    strangers: endpoints in its IOMMU group that are not of the card. unbind_lock: whether the driver has the file that
    only its vGPU edition has.
    """

    address: str
    strangers: Tuple[str, ...] = ()
    unbind_lock: Optional[bool] = None
    ecc_current: Optional[bool] = None
    ecc_pending: Optional[bool] = None


@dataclass(frozen=True)
class PoolLabel:
    """The folder of a storage pool of libvirt, and the type in its SELinux label, None for a folder without label."""

    pool: str
    path: str
    type: Optional[str]


@dataclass(frozen=True)
class HostDiagnostics:
    """Diagnostics of the whole host.

    lines: of the kernel's log since the boot, of the vGPU manager's since the boot, of VMs' logs since their last
    start. qemu_logs: the VMs whose logs have that start. nvidia_module: whether the running kernel has a module nvidia,
    None where it brings no modules' list.
    fabric_mode: FABRIC_MODE of Fabric Manager's configuration. fabric_version: of its program. address_bits: of a
    physical address of the CPU.
    unread: what could not be read, as sentences. ovn: None where no ovn-controller runs.
    guests_at_shutdown: ON_SHUTDOWN of libvirt-guests as it counts (`suspend`, `shutdown`), None where that service is
    not enabled. is_proxmox: True for a host of Proxmox VE.
    pool_labels: of pools that are folders; only where SELinux is on. pool_spaces: of active pools that are folders or
    volume groups.
    sriov_boards: device ids (`20b0`) in the list of the host's sriov-manage, None where its text has no list.
    """

    gpus: Tuple[GpuDiagnostics, ...]
    lines: Tuple[LogLine, ...] = ()
    units: Tuple[UnitDiagnostics, ...] = ()
    nvidia_module: Optional[bool] = None
    secure_boot: Optional[bool] = None
    fabric_mode: Optional[int] = None
    address_bits: Optional[int] = None
    unread: Tuple[str, ...] = ()
    ovn: Optional[OvnDiagnostics] = None
    guests_at_shutdown: Optional[str] = None
    is_proxmox: bool = False
    sriov_boards: Optional[Tuple[str, ...]] = None
    pool_labels: Tuple[PoolLabel, ...] = ()
    qemu_logs: Tuple[str, ...] = ()
    fabric_version: Optional[str] = None
    pool_spaces: Tuple[PoolSpace, ...] = ()
