# SPDX-License-Identifier: Apache-2.0
"""Checks of one GPU at a time: its driver, its modes, its place on the bus."""

from collections.abc import Iterator

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.catalog import type_by_name, types_of
from vgpuctl.model.distribution import family_of, rebuild_initramfs
from vgpuctl.model.faults import remedy_of
from vgpuctl.model.health import HealthCode
from vgpuctl.model.layout import LayoutKind, VgpuLayout
from vgpuctl.planner.doctor.examined import Examined, board_of, name_of
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.host_checks import HOST, MANAGER
from vgpuctl.sharing.gate import refuse_unread_host
from vgpuctl.sharing.kinds import offers_card
from vgpuctl.sharing.occupancy import describe_holders

FOREIGN = ("nouveau", "nova", "nova_core")
_STUB, _VFIO = "pci-pf-stub", "vfio-pci"
_WINDOW_FACTOR = 4
_ECC_MATTERS = ("Maxwell",)
_LARGE_BAR = 64 << 30
_VFIO_KINDS = (LayoutKind.PASSTHROUGH, None)
_WITHOUT_VFS = (LayoutKind.PASSTHROUGH, LayoutKind.OFF, LayoutKind.HOST)


def sriov_resources(seen: Examined) -> Iterator[Finding]:
    """Row 2: the firmware reserves no address space for VFs."""
    fix = "enable SR-IOV and Above 4G decoding in the firmware; pci=realloc as the last resort"
    for gpu in seen.facts.gpus:
        board = board_of(gpu)
        wants = seen.kind_of(gpu) in (LayoutKind.VGPU, LayoutKind.MIG_VGPU, LayoutKind.VF)
        if wants and board is not None and board.interface == "sriov-vf" and gpu.total_vfs == 0:
            read = f"sriov_totalvfs of {name_of(gpu)} is 0 or missing"
            yield Finding(CheckId.SRIOV_RESOURCES, Severity.ERROR, gpu.address, read, fix)
    for card, text in seen.said_of_functions(CheckId.SRIOV_RESOURCES):
        # The room that is missing is that of VFs: a card that needs none, or has them, is well.
        if card is None or (seen.kind_of(card) not in _WITHOUT_VFS and not card.vfs):
            yield Finding(CheckId.SRIOV_RESOURCES, Severity.ERROR, card.address if card else HOST, text, fix)


def foreign_driver(seen: Examined) -> Iterator[Finding]:
    """Row 3: the kernel's own driver has the card."""
    rebuild = rebuild_initramfs(family_of(seen.facts.distribution))
    for gpu in seen.nvidia_gpus():
        if gpu.driver in FOREIGN:
            fix = f"blacklist {gpu.driver}; {rebuild}; reboot"
            yield Finding(CheckId.FOREIGN_DRIVER, Severity.ERROR, gpu.address, f"driver is {gpu.driver}", fix)
    # The driver counts what it was not asked for, such as a card that is on vfio-pci since the boot as it should be.
    is_missing = any(gpu.driver not in ("nvidia", _VFIO) for gpu in seen.nvidia_gpus())
    for text in seen.said(CheckId.FOREIGN_DRIVER) if is_missing else ():
        fix = "see which driver has the card (lspci -k), blacklist it, rebuild the initramfs, reboot"
        yield Finding(CheckId.FOREIGN_DRIVER, Severity.WARNING, HOST, text, fix)


def driver_without_vgpu(seen: Examined) -> Iterator[Finding]:
    """Row 4: NVIDIA's driver is there, but not its vGPU edition."""
    fix = "install NVIDIA's vGPU Manager for KVM instead of the data centre driver"
    manager = seen.unit(MANAGER)
    for gpu in seen.nvidia_gpus():
        if seen.kind_of(gpu) not in (LayoutKind.VGPU, LayoutKind.MIG_VGPU):
            continue
        if seen.diagnostics_of(gpu).unbind_lock is False:
            also = f", and there is no {MANAGER}" if manager is not None and manager.load == "not-found" else ""
            read = f"/proc/driver/nvidia/gpus/{gpu.address}/unbindLock is missing{also}"
            yield Finding(CheckId.DRIVER_WITHOUT_VGPU, Severity.ERROR, gpu.address, read, fix)
    lacks_types = any(seen.is_for_vgpus(gpu) and not gpu.types for gpu in seen.nvidia_gpus())
    for text in seen.said(CheckId.DRIVER_WITHOUT_VGPU) if lacks_types else ():
        yield Finding(CheckId.DRIVER_WITHOUT_VGPU, Severity.ERROR, HOST, text, fix)


def wrong_driver(seen: Examined) -> Iterator[Finding]:
    """Row 5: the card is on vfio-pci though something else is declared, or was left on pci-pf-stub."""
    for gpu in seen.facts.gpus:
        if gpu.driver == _STUB:
            fix = "`vgpuctl apply-hosts` brings it back: setting the VFs again binds nvidia"
            read = f"driver is {_STUB}: an interrupted sriov-manage left it"
            yield Finding(CheckId.WRONG_DRIVER, Severity.ERROR, gpu.address, read, fix)
        leased = any(one.share.gpu == gpu.address and one.state.holds_device() for one in seen.leases)
        if gpu.driver == _VFIO and seen.kind_of(gpu) not in _VFIO_KINDS and not leased:
            fix = "`vgpuctl apply-hosts` binds its vendor's driver again"
            read = f"driver is {_VFIO}, declared {seen.kind_of(gpu)}"
            yield Finding(CheckId.WRONG_DRIVER, Severity.ERROR, gpu.address, read, fix)


def gpu_in_use(seen: Examined) -> Iterator[Finding]:
    """Row 6: programs of the host have the card open, so that its modes and VFs cannot change."""
    for gpu in seen.nvidia_gpus():
        needs_driver = seen.is_for_vgpus(gpu) or seen.kind_of(gpu) in (LayoutKind.OFF, LayoutKind.PASSTHROUGH)
        if gpu.users and needs_driver:
            fix = "name their services in stop_services of the layout, or stop them before a change"
            yield Finding(CheckId.GPU_IN_USE, Severity.NOTE, gpu.address, describe_holders(gpu.users), fix)
    for text in seen.said(CheckId.GPU_IN_USE):
        fix = "stop the clients (nvidia-smi loops, DCGM, persistenced), then run again"
        yield Finding(CheckId.GPU_IN_USE, Severity.WARNING, HOST, text, fix)


def mode_pending(seen: Examined) -> Iterator[Finding]:
    """Row 7: a mode of the card waits for a reset; nothing else may be built before."""
    for gpu in seen.nvidia_gpus():
        diagnostics = seen.diagnostics_of(gpu)
        if gpu.mig is not None and gpu.mig.current != gpu.mig.pending:
            read = f"MIG is {_word(gpu.mig.current)}, {_word(gpu.mig.pending)} pending"
            fix = "`vgpuctl apply-hosts --reset`, or reboot"
            yield Finding(CheckId.MODE_PENDING, Severity.ERROR, gpu.address, read, fix)
        if diagnostics.ecc_current is not None and diagnostics.ecc_current != diagnostics.ecc_pending:
            read = f"ECC is {_word(diagnostics.ecc_current)}, {_word(bool(diagnostics.ecc_pending))} pending"
            yield Finding(CheckId.MODE_PENDING, Severity.ERROR, gpu.address, read, "reset the GPU or reboot")


def settings_not_kept(seen: Examined) -> Iterator[Finding]:
    """The driver forgets power limit, clocks and compute mode when the last program closes the card."""
    for gpu in seen.nvidia_gpus():
        lost = [key for key in seen.tuning_of(gpu).keys if key != "ecc"]
        if seen.facts.boot is not None and seen.facts.boot.kept_limit(gpu.address) is not None:
            lost.append("tuned power limit")
        is_open = bool(gpu.vfs or gpu.users or gpu.holders or gpu.persistence)
        if lost and gpu.tuning is not None and gpu.tuning.persistence is False and not is_open:
            read = (
                f"persistence mode is off and nothing has the card open, so its {' and '.join(lost)} may be forgotten"
            )
            fix = "run nvidia-persistenced: `systemctl enable --now nvidia-persistenced`"
            yield Finding(CheckId.SETTINGS_NOT_KEPT, Severity.NOTE, gpu.address, read, fix)


def memory_map(seen: Examined) -> Iterator[Finding]:
    """Row 13: a guest must be able to map the BARs of a whole card."""
    bits = seen.diagnostics.address_bits
    for gpu in seen.facts.gpus:
        bars = sum(gpu.bars_bytes)
        is_whole = seen.kind_of(gpu) is LayoutKind.PASSTHROUGH or offers_card(gpu)
        if bits is None or bars < _LARGE_BAR or not is_whole or bars * _WINDOW_FACTOR <= 1 << bits:
            continue
        read = f"BARs of {bars >> 30} GiB, the CPU has {bits} bits for addresses"
        fix = "give the guest a larger window (OVMF opt/ovmf/X-PciMmio64Mb, host-passthrough CPU), or fewer cards"
        yield Finding(CheckId.MEMORY_MAP, Severity.WARNING, gpu.address, read, fix)


def group_not_isolated(seen: Examined) -> Iterator[Finding]:
    """Row 14: other endpoints share the card's IOMMU group, or its companions stay with the host."""
    for gpu in seen.facts.gpus:
        strangers = seen.diagnostics_of(gpu).strangers
        whole = seen.kind_of(gpu) is LayoutKind.PASSTHROUGH
        if strangers and (whole or seen.kind_of(gpu) is LayoutKind.VF):
            fix = "put the card into another slot, or bind the others to vfio-pci; ACS in the firmware parts groups"
            read = f"IOMMU group {gpu.iommu_group} also has {', '.join(strangers)}"
            yield Finding(CheckId.GROUP_NOT_ISOLATED, Severity.ERROR, gpu.address, read, fix)
        left = [other for other in gpu.companions if other.driver not in (_VFIO, None)]
        if gpu.driver == _VFIO and left:
            read = ", ".join(f"{other.address} is on {other.driver}" for other in left)
            fix = f"bind every function of the card to {_VFIO}; `vgpuctl apply-hosts` does"
            yield Finding(CheckId.GROUP_NOT_ISOLATED, Severity.ERROR, gpu.address, read, fix)


def no_reset(seen: Examined) -> Iterator[Finding]:
    """Row 15: a whole card that cannot be reset serves one start of one VM."""
    for gpu in seen.facts.gpus:
        if seen.kind_of(gpu) is not LayoutKind.PASSTHROUGH:
            continue
        shared = gpu.companions or seen.diagnostics_of(gpu).strangers
        if not gpu.reset_methods or (gpu.reset_methods == ("bus",) and shared):
            read = f"reset_method is {' '.join(gpu.reset_methods) or 'missing'}"
            fix = "give all functions of the card to the same VM; disable_idle_d3=1 for vfio-pci where it sticks in D3"
            yield Finding(CheckId.NO_RESET, Severity.WARNING, gpu.address, read, fix)
    for text in seen.said(CheckId.NO_RESET):
        fix = f"{remedy_of(HealthCode.NO_RESET)}; then disable_idle_d3=1 for vfio-pci"
        yield Finding(CheckId.NO_RESET, Severity.ERROR, HOST, text, fix)


def ecc_and_type(seen: Examined) -> Iterator[Finding]:
    """Row 21: on old boards, types that do not support ECC fail to start while it is on."""
    for gpu in seen.nvidia_gpus():
        layout, board = seen.layout_of(gpu), board_of(gpu)
        if board is None or board.architecture not in _ECC_MATTERS or not seen.diagnostics_of(gpu).ecc_current:
            continue
        if not isinstance(layout, VgpuLayout):
            continue
        names = dict.fromkeys((*layout.types, *(name for name, _ in layout.shares)))
        names = names or dict.fromkeys(one.name for one in types_of(board))
        refused = [name for name in names if (known := type_by_name(board, name)) is not None and known.ecc is False]
        if refused:
            fix = f"nvidia-smi -i {gpu.address} -e 0 and reboot, or declare other types"
            read = f"ECC is on; {', '.join(refused)} cannot start with it"
            yield Finding(CheckId.ECC_AND_TYPE, Severity.ERROR, gpu.address, read, fix)


def unread(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: something could not be read, so it counts as a failure."""
    for gpu in seen.facts.gpus:
        of_vfs = {function.problem for function in gpu.vfs}
        for text in (one for one in gpu.unread if one not in of_vfs):
            fix = "look at the host: `vgpuctl inspect-host`; the agent must run as root"
            severity = Severity.ERROR if text in gpu.problems else Severity.WARNING
            yield Finding(CheckId.UNREAD, severity, gpu.address, text, fix)
        for function in gpu.vfs:
            if function.problem is not None:
                fix = "no VM gets this VF; see the kernel's log of the host"
                yield Finding(CheckId.UNREAD, Severity.WARNING, function.address, function.problem, fix)
    for one in seen.facts.unread_functions:
        fix = "if it is a GPU, no VM gets it; see the kernel's log of the host"
        yield Finding(CheckId.UNREAD, Severity.WARNING, one.address, one.problem, fix)
    for part in seen.facts.unread:
        fix = "look at the host: `vgpuctl inspect-host`; the agent must run as root"
        yield Finding(CheckId.UNREAD, Severity.WARNING, HOST, part.problem, fix)
    if seen.facts.unread and (refusal := refuse_unread_host(seen.facts)) is not None:
        read = f"no VM is placed on the host: {refusal.reason}"
        yield Finding(CheckId.UNREAD, Severity.ERROR, HOST, read, refusal.remedy or "")
    for text in seen.diagnostics.unread:
        yield Finding(CheckId.UNREAD, Severity.WARNING, HOST, text, "look at the host")


def _word(enabled: bool) -> str:
    return "enabled" if enabled else "disabled"
