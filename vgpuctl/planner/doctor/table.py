# SPDX-License-Identifier: Apache-2.0
"""Every check, in the order of reference 9; docs/doctor.md is made from this table."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vgpuctl.planner.doctor import (
    gpu_checks,
    host_checks,
    libvirt_checks,
    network_checks,
    platform_checks,
    sriov_checks,
    vgpu_checks,
)
from vgpuctl.planner.doctor.examined import Examined
from vgpuctl.planner.doctor.finding import Finding, Severity


@dataclass(frozen=True)
class Check:
    """One failure mode. id: stable. row: its row in the reference, 0 for one beside them. worst: of its findings."""

    id: str
    row: int
    find: Callable[[Examined], Iterator[Finding]]
    worst: Severity = Severity.ERROR


CHECKS: tuple[Check, ...] = (
    Check("iommu-off", 1, host_checks.iommu_off),
    Check("sriov-resources", 2, gpu_checks.sriov_resources),
    Check("foreign-driver", 3, gpu_checks.foreign_driver),
    Check("driver-without-vgpu", 4, gpu_checks.driver_without_vgpu),
    Check("wrong-driver", 5, gpu_checks.wrong_driver),
    Check("gpu-in-use", 6, gpu_checks.gpu_in_use, Severity.WARNING),
    Check("mode-pending", 7, gpu_checks.mode_pending),
    Check("mig-without-instance", 8, vgpu_checks.mig_without_instance),
    Check("size-conflict", 9, vgpu_checks.size_conflict, Severity.WARNING),
    Check("stale-vgpu", 10, vgpu_checks.stale_vgpu, Severity.WARNING),
    Check("mixed-size-lost", 11, vgpu_checks.mixed_size_lost),
    Check("fabric", 12, gpu_checks.fabric),
    Check("memory-map", 13, gpu_checks.memory_map, Severity.WARNING),
    Check("group-not-isolated", 14, gpu_checks.group_not_isolated),
    Check("no-reset", 15, gpu_checks.no_reset),
    Check("access-denied", 16, host_checks.access_denied),
    Check("memory-lock", 17, host_checks.memory_lock),
    Check("kernel-module", 18, host_checks.kernel_module),
    Check("secure-boot", 19, host_checks.secure_boot),
    Check("vgpu-manager", 20, host_checks.vgpu_manager),
    Check("ecc-and-type", 21, gpu_checks.ecc_and_type),
    Check("mixed-generations", 22, host_checks.mixed_generations),
    Check("group-open", 23, host_checks.group_open),
    Check("stop-race", 24, vgpu_checks.stop_race),
    Check("pf-unbound", 0, sriov_checks.pf_unbound),
    Check("vfs-without-driver", 0, sriov_checks.vfs_without_driver),
    Check("vfs-on-stub", 0, sriov_checks.vfs_on_stub),
    Check("vfs-unregistered", 0, sriov_checks.vfs_unregistered),
    Check("vfs-on-other-driver", 0, sriov_checks.vfs_on_other_driver),
    Check("board-unknown", 0, sriov_checks.board_unknown),
    Check("foreign-sriov-unit", 0, sriov_checks.foreign_sriov_unit, Severity.WARNING),
    Check("libvirt-too-old", 0, host_checks.libvirt_too_old),
    Check("vf-quarantined", 0, vgpu_checks.vf_quarantined, Severity.WARNING),
    Check("boot-contract", 0, host_checks.boot_contract),
    Check("libvirt-daemons", 0, libvirt_checks.libvirt_daemons),
    Check("selinux-pool", 0, libvirt_checks.selinux_pool, Severity.WARNING),
    Check("guest-firmware", 0, platform_checks.guest_firmware, Severity.WARNING),
    Check("hugepages-mount", 0, platform_checks.hugepages_mount),
    Check("guests-at-shutdown", 0, platform_checks.guests_at_shutdown, Severity.WARNING),
    Check("proxmox", 0, platform_checks.proxmox, Severity.WARNING),
    Check("ovn", 0, network_checks.ovn),
    Check("ovn-role", 0, network_checks.ovn_role, Severity.WARNING),
    Check("tunnel-mtu", 0, network_checks.tunnel_mtu),
    Check("tunnel-down", 0, network_checks.tunnel_down),
    Check("unread", 0, gpu_checks.unread),
)


def examine(seen: Examined) -> tuple[Finding, ...]:
    """Every finding, in the table's order."""
    return tuple(finding for check in CHECKS for finding in check.find(seen))
