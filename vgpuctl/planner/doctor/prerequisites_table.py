# SPDX-License-Identifier: Apache-2.0
"""Every prerequisite, in the order in which an operator fixes them; docs/doctor.md is made from this table."""

from collections.abc import Collection

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.planner.doctor import prerequisites, prerequisites_of_devices, prerequisites_of_services
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.prerequisites import Newcomer, Prerequisite

PREREQUISITES: tuple[Prerequisite, ...] = (
    Prerequisite(CheckId.MACHINE, prerequisites.machine),
    Prerequisite(CheckId.DISTRIBUTION, prerequisites.distribution, Severity.NOTE),
    Prerequisite(CheckId.SUDO, prerequisites.sudo),
    Prerequisite(CheckId.PYTHON, prerequisites.python),
    Prerequisite(CheckId.AGENT, prerequisites.agent),
    Prerequisite(CheckId.KVM, prerequisites_of_devices.kvm),
    Prerequisite(CheckId.IOMMU_OFF, prerequisites_of_devices.iommu_off),
    Prerequisite(CheckId.KERNEL_ARGUMENTS, prerequisites_of_devices.declared_arguments),
    Prerequisite(CheckId.VFIO_MODULE, prerequisites_of_devices.vfio_module),
    Prerequisite(CheckId.GPUS, prerequisites_of_devices.gpus, Severity.WARNING),
    Prerequisite(CheckId.SRIOV_RESOURCES, prerequisites_of_devices.sriov_resources),
    Prerequisite(CheckId.FOREIGN_DRIVER, prerequisites_of_devices.foreign_driver),
    Prerequisite(CheckId.DRIVER_WITHOUT_VGPU, prerequisites_of_devices.vgpu_driver),
    Prerequisite(CheckId.FABRIC_MANAGER, prerequisites_of_devices.fabric_manager),
    Prerequisite(CheckId.SECURE_BOOT, prerequisites_of_devices.secure_boot, Severity.WARNING),
    Prerequisite(CheckId.QEMU, prerequisites_of_services.qemu),
    Prerequisite(CheckId.LIBVIRT, prerequisites_of_services.libvirt),
    Prerequisite(CheckId.LIBVIRT_DAEMONS, prerequisites_of_services.libvirt_daemons),
    Prerequisite(CheckId.LIBVIRT_NETWORK, prerequisites_of_services.libvirt_network, Severity.NOTE),
    Prerequisite(CheckId.GUEST_FIRMWARE, prerequisites_of_services.guest_firmware, Severity.WARNING),
    Prerequisite(CheckId.GUEST_TPM, prerequisites_of_services.guest_tpm, Severity.NOTE),
    Prerequisite(CheckId.HUGEPAGES_MOUNT, prerequisites_of_services.hugepages_mount),
    Prerequisite(CheckId.OVN, prerequisites_of_services.ovn),
    Prerequisite(CheckId.FIREWALL, prerequisites_of_services.firewall, Severity.WARNING),
    Prerequisite(CheckId.PROXMOX, prerequisites.proxmox, Severity.WARNING),
)


def look_for_missing(host: Newcomer, found: Collection[Finding] = ()) -> tuple[Finding, ...]:
    """Every missing prerequisite, then the other findings of the agent's checks.

    found: of the agent. Where both name the same trouble, the agent's words and the prerequisite's command are told.
    """
    ours = [finding for one in PREREQUISITES for finding in one.find(host)]
    commands = {finding.check for finding in ours if finding.command}
    told = [one for one in found if one.check not in commands]
    seen_by_agent = {one.check for one in told}
    return (*(one for one in ours if one.check not in seen_by_agent), *told)
