# SPDX-License-Identifier: Apache-2.0
"""The ids of what check-hosts looks for; docs/doctor.md has their meanings. Python 3.9, standard library only.

The agent names a check beside each line of a log that it finds for it. Scripts read the ids, so an id keeps its text.
"""

from enum import Enum


class CheckId(str, Enum):
    """One failure mode of a host or a missing prerequisite, as planner/doctor looks for it."""

    IOMMU_OFF = "iommu-off"
    SRIOV_RESOURCES = "sriov-resources"
    FOREIGN_DRIVER = "foreign-driver"
    DRIVER_WITHOUT_VGPU = "driver-without-vgpu"
    WRONG_DRIVER = "wrong-driver"
    GPU_IN_USE = "gpu-in-use"
    MODE_PENDING = "mode-pending"
    MIG_WITHOUT_INSTANCE = "mig-without-instance"
    SIZE_CONFLICT = "size-conflict"
    STALE_VGPU = "stale-vgpu"
    VGPU_TYPE = "vgpu-type"
    MIXED_SIZE_LOST = "mixed-size-lost"
    FABRIC = "fabric"
    MEMORY_MAP = "memory-map"
    GROUP_NOT_ISOLATED = "group-not-isolated"
    NO_RESET = "no-reset"
    ACCESS_DENIED = "access-denied"
    MEMORY_LOCK = "memory-lock"
    KERNEL_MODULE = "kernel-module"
    SECURE_BOOT = "secure-boot"
    VGPU_MANAGER = "vgpu-manager"
    ECC_AND_TYPE = "ecc-and-type"
    MIXED_GENERATIONS = "mixed-generations"
    GROUP_OPEN = "group-open"
    STOP_RACE = "stop-race"
    PF_UNBOUND = "pf-unbound"
    VFS_WITHOUT_DRIVER = "vfs-without-driver"
    VFS_ON_STUB = "vfs-on-stub"
    VFS_UNREGISTERED = "vfs-unregistered"
    VFS_ON_OTHER_DRIVER = "vfs-on-other-driver"
    BOARD_UNKNOWN = "board-unknown"
    FOREIGN_SRIOV_UNIT = "foreign-sriov-unit"
    LIBVIRT_TOO_OLD = "libvirt-too-old"
    BOOT_CONTRACT = "boot-contract"
    LIBVIRT_DAEMONS = "libvirt-daemons"
    LIBVIRT_AUTOSTART = "libvirt-autostart"
    STRAY_VM = "stray-vm"
    SELINUX_POOL = "selinux-pool"
    GUEST_FIRMWARE = "guest-firmware"
    GUEST_SECURE_BOOT = "guest-secure-boot"
    GUEST_TPM = "guest-tpm"
    HUGEPAGES_MOUNT = "hugepages-mount"
    GUESTS_AT_SHUTDOWN = "guests-at-shutdown"
    PROXMOX = "proxmox"
    OVN = "ovn"
    OVN_ROLE = "ovn-role"
    TUNNEL_MTU = "tunnel-mtu"
    TUNNEL_DOWN = "tunnel-down"
    UNREAD = "unread"

    # Before the agent can run
    MACHINE = "machine"
    DISTRIBUTION = "distribution"
    SUDO = "sudo"
    PYTHON = "python"
    AGENT = "agent"
    KVM = "kvm"
    KERNEL_ARGUMENTS = "kernel-arguments"
    VFIO_MODULE = "vfio-module"
    GPUS = "gpus"
    QEMU = "qemu"
    LIBVIRT = "libvirt"
    LIBVIRT_NETWORK = "libvirt-network"
    FIREWALL = "firewall"

    def __str__(self) -> str:
        return self.value
