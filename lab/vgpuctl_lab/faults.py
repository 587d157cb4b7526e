# SPDX-License-Identifier: Apache-2.0
"""Faults on demand: one list of kinds for emulated and simulated hosts, set, listed and ended the same way."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.errors import LabError, UsageError
from vgpuctl_lab import kernel_faults
from vgpuctl_lab.folder import LabFolder, default_folder
from vgpuctl_lab.simulated import faults as simulated_faults
from vgpuctl_lab.simulated import fleet

Active = tuple[str, str | None, int]


@dataclass(frozen=True)
class FaultKind:
    """One kind. of_card: True for a fault of a card. value: meaning of the number; default, most: its limits."""

    name: str
    of_card: bool
    summary: str
    value: str | None = None
    default: int = 1
    most: int = 0xFFFFFFFF


_ALL = (
    FaultKind("refuse", True, "every vGPU creation is refused, as the driver logs it", "RM code", 0x1A),
    FaultKind("unbind-lock", True, "unbindLock is never granted: VFs cannot come or go"),
    FaultKind("busy", True, "the GPU counts as used: no unbindLock, no reset, MIG stays as it is"),
    FaultKind("removal-delay", True, "after a VM's end its vGPU cannot be removed for a while", "ms", 5000),
    FaultKind("fallen", True, "the GPU has fallen off the bus: Xid 79, NVML says that it is lost"),
    FaultKind("xid", True, "one Xid in the kernel's log", "Xid", 31),
    FaultKind("ecc", True, "uncorrected memory errors, Xid 48", "errors", 1),
    FaultKind("pf-stub", True, "sriov-manage was interrupted: the PF is left on pci-pf-stub without VFs"),
    FaultKind("pf-unbound", True, "sriov-manage died: the PF is on no driver, and so after more runs", "times", 1),
    FaultKind("vfs-on-stub", True, "pci-pf-stub has claimed every VF"),
    FaultKind("vfs-unregistered", True, "the VFs offer no types until they are recreated", "times", 1),
    FaultKind("sriov-silent", True, "sriov-manage does nothing and ends with 0", "runs", 1),
    FaultKind("board-unknown", True, "sriov-manage does not know the board: it says nothing and ends with 0"),
    FaultKind("lock-busy", True, "the vGPU manager has the GPU open for a while", "seconds", 60),
    FaultKind("vf-wedged", True, "no VM can use this VF, nor one whose QEMU was killed early", "VF, from 1", 1),
    FaultKind("row-remap-pending", True, "a memory row waits for its spare row until the next reset"),
    FaultKind("row-remap-failed", True, "no spare row was left for a memory row"),
    FaultKind("pages-retired", True, "memory pages are retired, on boards before Ampere", "pages", 1),
    FaultKind("bar-unassigned", True, "the kernel found no address for the first BAR"),
    FaultKind("vbios-changed", True, "somebody has flashed the card: its VBIOS has another version"),
    FaultKind("reset-fails", True, "the card does not come back from a reset: ENOTTY"),
    FaultKind("no-reset", True, "the kernel knows no way to reset the card"),
    FaultKind("flr-fails", True, "the card does not come back from an FLR; its other resets work"),
    FaultKind("removal-ignored", True, "the driver accepts the removal of a vGPU, which stays"),
    FaultKind("config-differs", True, "the config space answers with the identity of another card"),
    FaultKind("driver-lost", True, "the card's own driver no longer takes it: its probe fails"),
    FaultKind("no-sriov-admin", True, "Intel's driver is older than Linux 6.19: VFs have no parameters"),
    FaultKind(
        "types-alone",
        True,
        "its vGPU types go beside no other type (1), no other size (2), in no VM with another type (4)",
        "sum",
        most=7,
    ),
    FaultKind("vf-params-refused", True, "the firmware of Intel's card refuses new parameters of VFs: EIO"),
    FaultKind(
        "move-unsupported", True, "VMs that start from now on cannot be moved with their vGPU: no VFIO migration"
    ),
    FaultKind("move-untracked", True, "VMs that start from now on cannot be moved: no log of the vGPU's DMA"),
    FaultKind("move-no-precopy", True, "vGPUs of VMs that start from now on send nothing while the VM runs"),
    FaultKind("move-refused", True, "the vGPU's state cannot be saved when the VM stops for its move"),
    FaultKind("move-read-error", True, "reading the vGPU's state fails: EIO", "bytes read before", 65536),
    FaultKind("move-header-refused", True, "the target refuses a vGPU's state at its first bytes"),
    FaultKind("move-checked-early", True, "the target refuses a state of another vGPU type at its first bytes"),
    FaultKind("move-load-refused", True, "the target refuses a vGPU's state after all of it has come"),
    FaultKind("move-state", True, "size of each vGPU's state", "MiB", 64),
    FaultKind("move-bandwidth", True, "limit of reading and writing a vGPU's state", "MiB/s", 1),
    FaultKind("move-dirty", True, "how much of its state a running vGPU changes", "MiB/s", 16),
    FaultKind("move-sleep", True, "pause before each step of a vGPU's migration", "ms", 2000),
    FaultKind("move-stall", True, "the copying of a VM with a vGPU of the card stands still"),
    FaultKind("nvlink-failed", True, "NVLinks of a card with NVSwitch have failed, its first ones", "links", 1),
    FaultKind("libvirtd", False, "libvirtd is stopped"),
    FaultKind("sshd", False, "sshd is stopped; on an emulated host for so long", "seconds", 60),
    FaultKind("network", False, "the host's network is cut: sessions hang, new ones get no answer"),
    FaultKind("disk-full", False, "the host's disk has no space left"),
    FaultKind("clock-skew", False, "the host's clock is ahead", "seconds", 3600),
    FaultKind("move-seconds", False, "how long the copying of a VM from here takes by the clock", "seconds", 10),
    FaultKind("move-port", False, "no VM arrives here: the ports of QEMU's migration refuse connections"),
    FaultKind("fabric-starting", False, "Fabric Manager sets the fabric up, without its partitions", "seconds", 60),
    FaultKind("fabric-dead", False, "Fabric Manager has died; its partitions stay routed"),
    FaultKind(
        "fabric-restarted", False, "Fabric Manager was restarted and waits 60 s to be told its partitions, then it ends"
    ),
    FaultKind("fabric-version", False, "Fabric Manager is of another version than the driver and does not start"),
    FaultKind("power-off", False, "the host has no power; the end of the fault is a cold start"),
)
KINDS = {kind.name: kind for kind in _ALL}
SIMULATED_ONLY = (
    "row-remap-pending",
    "row-remap-failed",
    "pages-retired",
    "bar-unassigned",
    "vbios-changed",
    "reset-fails",
    "no-reset",
    "flr-fails",
    "removal-ignored",
    "config-differs",
    "driver-lost",
    "no-sriov-admin",
    "vf-params-refused",
    "types-alone",
    "move-stall",
    "move-seconds",
    "move-port",
    "fabric-version",
)
"""Faults that the kernel of an emulated host, or its NVML, does not play."""
EMULATED_ONLY = ("move-no-precopy", "move-sleep")
"""Faults of the kernel module that a simulated host does not play."""


def begin(
    host: str, kind: str, value: int | None = None, *, card: str | None = None, folder: LabFolder | None = None
) -> Active:
    """Let a fault begin on a host, of its first NVIDIA GPU where no card is named. Raises UsageError, LabError."""
    known = KINDS.get(kind)
    if known is None:
        raise UsageError(f"there is no fault {kind!r}", hint=f"kinds: {', '.join(KINDS)}")
    if value is not None and known.value is None:
        raise UsageError(f"the fault {kind} takes no value")
    if value is not None and not 0 < value <= known.most:
        raise UsageError(f"{kind} {value}: the value is a whole number from 1 to {known.most}", hint="--clear ends it")
    if card is not None and not known.of_card:
        raise UsageError(f"the fault {kind} is the host's, not of a card")
    number = value or known.default
    lab = folder or default_folder()
    if kind in SIMULATED_ONLY and not is_simulated(host, lab):
        raise UsageError(f"an emulated host cannot have the fault {kind}", hint="try it on `lab up --simulated`")
    if kind in EMULATED_ONLY and is_simulated(host, lab):
        raise UsageError(f"a simulated host cannot have the fault {kind}", hint="try it on `lab up --host`")
    if is_simulated(host, lab):
        where = simulated_faults.begin(lab, host, kind, number, card if known.of_card else None)
    else:
        where = kernel_faults.begin(lab, host, kind, number, card, of_card=known.of_card)
    return kind, where if known.of_card else None, number


def clear(host: str, kinds: Sequence[str] = (), *, folder: LabFolder | None = None) -> list[Active]:
    """End faults of a host, all without kinds, on whatever card they are. Returns what has ended."""
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"there is no fault {kind!r}", hint=f"kinds: {', '.join(KINDS)}")
    lab = folder or default_folder()
    chosen = [one for one in active(host, folder=lab) if not kinds or one[0] in kinds]
    if not is_simulated(host, lab):
        kernel_faults.end(lab, host, chosen)
        return chosen
    # Power comes last: it is a start, after which no other fault is left.
    for kind, card, _ in sorted(chosen, key=lambda one: one[0] == "power-off"):
        simulated_faults.end(lab, host, kind, card)
    return chosen


def active(host: str, *, folder: LabFolder | None = None) -> list[Active]:
    """The faults that a host has now: (kind, card or None, value), by kind."""
    lab = folder or default_folder()
    found = simulated_faults.active(lab, host) if is_simulated(host, lab) else kernel_faults.active(lab, host)
    return sorted(found, key=lambda one: (list(KINDS).index(one[0]), one[1] or ""))


def is_simulated(host: str, lab: LabFolder) -> bool:
    """True for a simulated host, False for an emulated one. Raises LabError for none of them."""
    if host in fleet.names(folder=lab):
        return True
    if host not in lab.host_names():
        there = ", ".join((*lab.host_names(), *fleet.names(folder=lab))) or "none"
        raise LabError(f"there is no host {host!r} in {lab.path}", hint=f"hosts there: {there}; see `lab status`")
    return False
