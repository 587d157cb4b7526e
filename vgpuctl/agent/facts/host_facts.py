# SPDX-License-Identifier: Apache-2.0
"""The whole host in one reading."""

from typing import Dict, Optional, Tuple

from vgpuctl.agent.facts import (
    addresses,
    boot,
    gpus,
    guest_firmware,
    guest_tpm,
    hugepages,
    iommu,
    mdev,
    numa,
    nvidia,
    nvml_gpus,
    ovn,
    selinux,
    services,
    software,
)
from vgpuctl.agent.facts.nvml_gpus import NvmlGpu
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import HostFacts, ServiceFacts


def read(host: Host, nvml: Optional[Nvml], nvml_problem: Optional[str]) -> HostFacts:
    """Read the host. nvml: None with the reason where NVML cannot be used. Raises Problem."""
    known: Optional[Dict[str, NvmlGpu]] = None
    nvml_version = None
    driver = nvidia.read_driver_version(host)
    if nvml is not None:
        known, problems = nvml_gpus.read(nvml)
        nvml_problem = "; ".join(problems) or None
        nvml_version = nvml.nvml_version()
        driver = nvml.driver_version() or driver
    cards, unread_functions = gpus.read_gpus(host, gpus.read_shared(host, known))
    memory_mib, available_mib = numa.read_memory_mib(host)
    return HostFacts(
        hostname=host.read("/proc/sys/kernel/hostname").strip(),
        boot_id=host.read("/proc/sys/kernel/random/boot_id").strip(),
        kernel=software.read_kernel(host),
        kernel_command_line=host.read("/proc/cmdline").strip(),
        operating_system=software.read_operating_system(host),
        python=host.python(),
        cpus=numa.read_cpus(host),
        memory_mib=memory_mib,
        memory_available_mib=available_mib,
        numa_nodes=numa.read_nodes(host),
        iommu_active=iommu.is_active(host),
        kvm=host.exists("/dev/kvm"),
        libvirt_version=software.read_libvirt_version(host),
        qemu_version=software.read_qemu_version(host),
        nvidia_driver=driver,
        nvml_version=nvml_version,
        nvml_problem=nvml_problem,
        gpus=cards,
        read_at=host.now(),
        services=_read_services(host),
        hugepages=hugepages.read_with_mounts(host),
        network_interfaces=tuple(host.listdir_optional("/sys/class/net") or ()),
        boot=boot.read(host),
        ovn=ovn.read(host),
        mdevctl=mdev.read_defined(host),
        unread_functions=unread_functions,
        addresses=addresses.read(host),
        selinux=selinux.read_mode(host),
        distribution=software.read_distribution(host),
        guest_firmwares=guest_firmware.read(host),
        machine_id=software.read_machine_id(host),
        tpm_programs=guest_tpm.read(host),
    )


def _read_services(host: Host) -> Optional[Tuple[ServiceFacts, ...]]:
    """Return the services, None where systemd cannot be asked; the cards of such a host are still worth reading."""
    try:
        return services.read(host)
    except Problem:
        return None
