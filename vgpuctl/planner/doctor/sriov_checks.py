# SPDX-License-Identifier: Apache-2.0
"""Checks of SR-IOV on NVIDIA's cards: each state that sriov-manage or a reload of the driver can leave behind."""

from collections.abc import Iterator

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.vf_health import VfState, describe, state_of
from vgpuctl.model.layout import LayoutKind
from vgpuctl.planner.doctor.examined import Examined, name_of
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.host_checks import HOST

_REPAIR = "`vgpuctl apply-hosts` recreates all VFs of the card once no VM uses one; do not bind single VFs by hand"
# Units of other tools that run sriov-manage or change MIG on their own.
FOREIGN_UNITS = ("pve-nvidia-sriov@", "nvidia-sriov", "nvidia-mig-manager")


def pf_unbound(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: a card for vGPUs has no driver, for example after an interrupted sriov-manage."""
    for gpu in seen.nvidia_gpus():
        if gpu.driver is None and (gpu.vfs or seen.kind_of(gpu) in (LayoutKind.VGPU, LayoutKind.MIG_VGPU)):
            left = f", with {len(gpu.vfs)} VFs" if gpu.vfs else ""
            fix = "`vgpuctl apply-hosts` clears driver_override, binds nvidia and sets the VFs again"
            yield Finding(CheckId.PF_UNBOUND, Severity.ERROR, gpu.address, f"driver is none{left}", fix)


def vfs_without_driver(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: VFs have no driver, for example after a refused unbindLock or a reload of nvidia."""
    yield from _sick(seen, CheckId.VFS_WITHOUT_DRIVER, VfState.NO_DRIVER, _REPAIR)


def vfs_on_stub(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: VFs are on pci-pf-stub, which claims them by its new_id if they have the id of their PF."""
    yield from _sick(seen, CheckId.VFS_ON_STUB, VfState.ON_STUB, _REPAIR)


def vfs_unregistered(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: VFs on nvidia offer no vGPU types, because they were created before the vGPU manager was ready."""
    fix = f"{_REPAIR}; if they stay so: `journalctl -u nvidia-vgpu-mgr -u nvidia-vgpud` on the host"
    yield from _sick(seen, CheckId.VFS_UNREGISTERED, VfState.UNREGISTERED, fix)


def vfs_on_other_driver(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: VFs for vGPUs are on another driver, such as vfio-pci, and no VM holds them."""
    fix = f"{_REPAIR}; a domain with managed='yes' on a VF does this"
    yield from _sick(seen, CheckId.VFS_ON_OTHER_DRIVER, VfState.OTHER_DRIVER, fix)


def board_unknown(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: the host's sriov-manage does not support the board; it does nothing and ends with 0."""
    known = seen.diagnostics.sriov_boards
    if known is None:
        return
    for gpu in seen.nvidia_gpus():
        wants = seen.kind_of(gpu) in (LayoutKind.VGPU, LayoutKind.MIG_VGPU)
        if wants and gpu.total_vfs and not gpu.vfs and gpu.device_id not in known:
            read = f"{name_of(gpu)} is {gpu.vendor_id}:{gpu.device_id}; sriov-manage knows {', '.join(known) or 'none'}"
            fix = "install a vGPU host driver that supports the board; switch its display mode where it has one"
            yield Finding(CheckId.BOARD_UNKNOWN, Severity.ERROR, gpu.address, read, fix)


def foreign_sriov_unit(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: another tool's unit also runs sriov-manage or changes MIG; two at once leave cards half done."""
    for service in seen.facts.services or ():
        if service.name.startswith(FOREIGN_UNITS):
            fix = f"systemctl disable --now {service.name}: vgpuctl-restore.service does it at boot"
            read = f"{service.name} is loaded, {'active' if service.active else 'not active'}"
            yield Finding(CheckId.FOREIGN_SRIOV_UNIT, Severity.WARNING, HOST, read, fix)


def _sick(seen: Examined, check: CheckId, state: VfState, fix: str) -> Iterator[Finding]:
    for gpu in seen.nvidia_gpus():
        found = _states(gpu)
        sick = [one for one in found if one is state]
        if sick:
            severity = Severity.WARNING if VfState.HEALTHY in found else Severity.ERROR
            yield Finding(check, severity, gpu.address, describe(sick, len(gpu.vfs)), fix)


def _states(gpu: Gpu) -> list[VfState]:
    return [state_of(one.driver, one.offers_types) for one in gpu.vfs if one.problem is None and not one.holders]
