# SPDX-License-Identifier: Apache-2.0
"""Every check, in the order of reference 9; docs/doctor.md is made from this table."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.planner.doctor import (
    fabric_checks,
    gpu_checks,
    host_checks,
    libvirt_checks,
    network_checks,
    platform_checks,
    resource_checks,
    sriov_checks,
    vgpu_checks,
)
from vgpuctl.planner.doctor.examined import Examined
from vgpuctl.planner.doctor.finding import Finding, Severity


@dataclass(frozen=True)
class Check:
    """One failure mode. row: its row in the reference, 0 for one beside them. worst: of its findings."""

    id: CheckId
    row: int
    find: Callable[[Examined], Iterator[Finding]]
    worst: Severity = Severity.ERROR


CHECKS: tuple[Check, ...] = (
    Check(CheckId.IOMMU_OFF, 1, host_checks.iommu_off),
    Check(CheckId.SRIOV_RESOURCES, 2, gpu_checks.sriov_resources),
    Check(CheckId.FOREIGN_DRIVER, 3, gpu_checks.foreign_driver),
    Check(CheckId.DRIVER_WITHOUT_VGPU, 4, gpu_checks.driver_without_vgpu),
    Check(CheckId.WRONG_DRIVER, 5, gpu_checks.wrong_driver),
    Check(CheckId.GPU_IN_USE, 6, gpu_checks.gpu_in_use, Severity.WARNING),
    Check(CheckId.MODE_PENDING, 7, gpu_checks.mode_pending),
    Check(CheckId.MIG_WITHOUT_INSTANCE, 8, vgpu_checks.mig_without_instance),
    Check(CheckId.SIZE_CONFLICT, 9, vgpu_checks.size_conflict, Severity.WARNING),
    Check(CheckId.STALE_VGPU, 10, vgpu_checks.stale_vgpu, Severity.WARNING),
    Check(CheckId.MIXED_SIZE_LOST, 11, vgpu_checks.mixed_size_lost),
    Check(CheckId.FABRIC, 12, fabric_checks.fabric),
    Check(CheckId.MEMORY_MAP, 13, gpu_checks.memory_map, Severity.WARNING),
    Check(CheckId.GROUP_NOT_ISOLATED, 14, gpu_checks.group_not_isolated),
    Check(CheckId.NO_RESET, 15, gpu_checks.no_reset),
    Check(CheckId.ACCESS_DENIED, 16, host_checks.access_denied),
    Check(CheckId.MEMORY_LOCK, 17, host_checks.memory_lock),
    Check(CheckId.KERNEL_MODULE, 18, host_checks.kernel_module),
    Check(CheckId.SECURE_BOOT, 19, host_checks.secure_boot),
    Check(CheckId.VGPU_MANAGER, 20, host_checks.vgpu_manager),
    Check(CheckId.ECC_AND_TYPE, 21, gpu_checks.ecc_and_type),
    Check(CheckId.MIXED_GENERATIONS, 22, host_checks.mixed_generations),
    Check(CheckId.GROUP_OPEN, 23, host_checks.group_open),
    Check(CheckId.STOP_RACE, 24, vgpu_checks.stop_race),
    Check(CheckId.SETTINGS_NOT_KEPT, 0, gpu_checks.settings_not_kept, Severity.NOTE),
    Check(CheckId.VGPU_TYPE, 0, vgpu_checks.vgpu_type),
    Check(CheckId.VGPU_STATE_LOST, 0, vgpu_checks.vgpu_state_lost),
    Check(CheckId.PF_UNBOUND, 0, sriov_checks.pf_unbound),
    Check(CheckId.VFS_WITHOUT_DRIVER, 0, sriov_checks.vfs_without_driver),
    Check(CheckId.VFS_ON_STUB, 0, sriov_checks.vfs_on_stub),
    Check(CheckId.VFS_UNREGISTERED, 0, sriov_checks.vfs_unregistered),
    Check(CheckId.VFS_ON_OTHER_DRIVER, 0, sriov_checks.vfs_on_other_driver),
    Check(CheckId.BOARD_UNKNOWN, 0, sriov_checks.board_unknown),
    Check(CheckId.FOREIGN_SRIOV_UNIT, 0, sriov_checks.foreign_sriov_unit, Severity.WARNING),
    Check(CheckId.FABRIC_MANAGER, 0, fabric_checks.manager),
    Check(CheckId.LIBVIRT_TOO_OLD, 0, host_checks.libvirt_too_old),
    Check(CheckId.BOOT_CONTRACT, 0, host_checks.boot_contract),
    Check(CheckId.LIBVIRT_DAEMONS, 0, libvirt_checks.libvirt_daemons),
    Check(CheckId.LIBVIRT_AUTOSTART, 0, libvirt_checks.libvirt_autostart, Severity.WARNING),
    Check(CheckId.STRAY_VM, 0, libvirt_checks.stray_vm),
    Check(CheckId.SELINUX_POOL, 0, libvirt_checks.selinux_pool, Severity.WARNING),
    Check(CheckId.GUEST_FIRMWARE, 0, platform_checks.guest_firmware, Severity.WARNING),
    Check(CheckId.GUEST_SECURE_BOOT, 0, platform_checks.guest_secure_boot, Severity.NOTE),
    Check(CheckId.GUEST_TPM, 0, platform_checks.guest_tpm, Severity.NOTE),
    Check(CheckId.HUGEPAGES_MOUNT, 0, platform_checks.hugepages_mount),
    Check(CheckId.HOST_MEMORY_RUNS_OUT, 0, resource_checks.host_memory, Severity.WARNING),
    Check(CheckId.HUGE_PAGES_RUN_OUT, 0, resource_checks.huge_pages, Severity.NOTE),
    Check(CheckId.DISK_POOL_RUNS_OUT, 0, resource_checks.disk_pools, Severity.WARNING),
    Check(CheckId.GUESTS_AT_SHUTDOWN, 0, platform_checks.guests_at_shutdown, Severity.WARNING),
    Check(CheckId.PROXMOX, 0, platform_checks.proxmox, Severity.WARNING),
    Check(CheckId.CONTAINER_GPUS, 0, platform_checks.container_gpus),
    Check(CheckId.OVN, 0, network_checks.ovn),
    Check(CheckId.OVN_ROLE, 0, network_checks.ovn_role, Severity.WARNING),
    Check(CheckId.TUNNEL_MTU, 0, network_checks.tunnel_mtu),
    Check(CheckId.TUNNEL_DOWN, 0, network_checks.tunnel_down),
    Check(CheckId.NETWORK_FUNCTIONS, 0, network_checks.network_functions),
    Check(CheckId.UNREAD, 0, gpu_checks.unread),
)


def examine(seen: Examined) -> tuple[Finding, ...]:
    """Every finding, in the table's order."""
    return tuple(finding for check in CHECKS for finding in check.find(seen))
