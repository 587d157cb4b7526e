# SPDX-License-Identifier: Apache-2.0
"""Every prerequisite, in the order in which an operator fixes them; docs/doctor.md is made from this table."""

from collections.abc import Collection

from vgpuctl.planner.doctor import prerequisites, prerequisites_of_devices, prerequisites_of_services
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.prerequisites import Newcomer, Prerequisite

PREREQUISITES: tuple[Prerequisite, ...] = (
    Prerequisite("machine", prerequisites.machine),
    Prerequisite("distribution", prerequisites.distribution, Severity.NOTE),
    Prerequisite("sudo", prerequisites.sudo),
    Prerequisite("python", prerequisites.python),
    Prerequisite("agent", prerequisites.agent),
    Prerequisite("kvm", prerequisites_of_devices.kvm),
    Prerequisite("iommu-off", prerequisites_of_devices.iommu_off),
    Prerequisite("kernel-arguments", prerequisites_of_devices.declared_arguments),
    Prerequisite("vfio-module", prerequisites_of_devices.vfio_module),
    Prerequisite("gpus", prerequisites_of_devices.gpus, Severity.WARNING),
    Prerequisite("sriov-resources", prerequisites_of_devices.sriov_resources),
    Prerequisite("foreign-driver", prerequisites_of_devices.foreign_driver),
    Prerequisite("driver-without-vgpu", prerequisites_of_devices.vgpu_driver),
    Prerequisite("secure-boot", prerequisites_of_devices.secure_boot, Severity.WARNING),
    Prerequisite("qemu", prerequisites_of_services.qemu),
    Prerequisite("libvirt", prerequisites_of_services.libvirt),
    Prerequisite("libvirt-daemons", prerequisites_of_services.libvirt_daemons),
    Prerequisite("libvirt-network", prerequisites_of_services.libvirt_network, Severity.NOTE),
    Prerequisite("guest-firmware", prerequisites_of_services.guest_firmware, Severity.WARNING),
    Prerequisite("hugepages-mount", prerequisites_of_services.hugepages_mount),
    Prerequisite("ovn", prerequisites_of_services.ovn),
    Prerequisite("firewall", prerequisites_of_services.firewall, Severity.WARNING),
    Prerequisite("proxmox", prerequisites.proxmox, Severity.WARNING),
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
