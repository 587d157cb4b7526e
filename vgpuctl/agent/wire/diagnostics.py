# SPDX-License-Identifier: Apache-2.0
"""Diagnostics of a host, beside its facts (reference 9). Python 3.9, standard library only.

They cost more to read than facts and nobody places a VM by them, so they are asked for by themselves.
"""

from typing import Optional, Tuple

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.agent.wire.ovn import OvnDiagnostics
from vgpuctl.agent.wire.values import dataclass

KERNEL, AUDIT, MANAGER, QEMU = "kernel", "audit", "nvidia-vgpu-mgr", "qemu"
# Log lines of the events of reference 9: the check's id, the logs that can have such a line, and the expression that
# finds it. These logs never contain a guest's output.
LOG_PATTERNS: Tuple[Tuple[CheckId, Tuple[str, ...], str], ...] = (
    (CheckId.IOMMU_OFF, (KERNEL,), r"IOMMU is not present"),
    (
        CheckId.SRIOV_RESOURCES,
        (KERNEL,),
        r"not enough MMIO resources for SR-IOV|BAR \d+.*: (?:no space for|failed to assign) \[mem",
    ),
    (CheckId.FOREIGN_DRIVER, (KERNEL,), r"NVIDIA probe routine was not called"),
    (CheckId.DRIVER_WITHOUT_VGPU, (KERNEL,), r"vGPU is supported only on VGX capable boards"),
    (CheckId.GPU_IN_USE, (KERNEL,), r"Could not acquire UnbindLock|Cannot obtain unbindLock"),
    (CheckId.MIG_WITHOUT_INSTANCE, (KERNEL,), r"vgpu create request: 0x(?:38|40)\b"),
    (CheckId.SIZE_CONFLICT, (KERNEL,), r"vgpu create request: 0x56\b"),
    (CheckId.FABRIC, (KERNEL,), r"nvidia-nvswitch\S*: .*(?:fatal|failed)|fabric manager.*(?:fail|mismatch)"),
    (CheckId.NO_RESET, (KERNEL,), r"not ready \d+ms after|Unable to change power state from D3|stuck in D3"),
    (CheckId.ACCESS_DENIED, (KERNEL, AUDIT), r"(?:apparmor=\"DENIED\"|avc:\s+denied).*(?:vfio|nvidia|mdev|vgpuctl)"),
    (CheckId.MEMORY_LOCK, (KERNEL, QEMU), r"vfio_pin\S*.*RLIMIT_MEMLOCK|VFIO_MAP_DMA.*Cannot allocate memory"),
    (CheckId.KERNEL_MODULE, (KERNEL,), r"NVRM: API mismatch"),
    (
        CheckId.SECURE_BOOT,
        (KERNEL,),
        r"Key was rejected by service|module verification failed|Loading of .*(?:module|key) is rejected",
    ),
    # The level is the manager's own word; what follows can quote the guest's driver.
    (CheckId.VGPU_MANAGER, (MANAGER,), r"^error: vmiop_log: "),
    (CheckId.MIXED_GENERATIONS, (KERNEL,), r"requires use of the NVIDIA open kernel modules|NVRM: .*legacy .*drivers?"),
    (CheckId.GROUP_OPEN, (QEMU,), r"error getting device from group"),
    (CheckId.STOP_RACE, (KERNEL,), r"vgpu delete request: 0x"),
)


# libvirt's daemons: one for all, or one for each kind of object; each answers by its service or by its socket's.
MONOLITHIC_DAEMON, LOG_DAEMON = "libvirtd", "virtlogd"
MODULAR_DAEMONS = ("virtqemud", "virtstoraged", "virtnetworkd", "virtnwfilterd", "virtnodedevd")
LIBVIRT_DAEMONS = (MONOLITHIC_DAEMON, LOG_DAEMON, *MODULAR_DAEMONS)


@dataclass(frozen=True)
class LogLine:
    """One line of a log. check: the check that it belongs to. source: `kernel`, `nvidia-vgpu-mgr`, or a VM's name."""

    check: CheckId
    source: str
    text: str


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
    only its vGPU edition has. fabric: `completed`, `in-progress`, `not-started`, or None without NVSwitch.
    """

    address: str
    strangers: Tuple[str, ...] = ()
    unbind_lock: Optional[bool] = None
    ecc_current: Optional[bool] = None
    ecc_pending: Optional[bool] = None
    fabric: Optional[str] = None


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
    start. nvidia_module: whether the running kernel has a module nvidia, None where it brings no modules' list.
    fabric_mode: FABRIC_MODE of Fabric Manager's configuration. address_bits: of a physical address of the CPU.
    unread: what could not be read, as sentences. ovn: None where no ovn-controller runs.
    guests_at_shutdown: ON_SHUTDOWN of libvirt-guests as it counts (`suspend`, `shutdown`), None where that service is
    not enabled. is_proxmox: True for a host of Proxmox VE.
    pool_labels: of pools that are folders; only where SELinux is on.
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
