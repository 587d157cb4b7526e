# SPDX-License-Identifier: Apache-2.0
"""The whole host in one reading, part by part: a part that cannot be read loses itself alone, and is named."""

from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

from vgpuctl.agent.facts import (
    addresses,
    boot,
    cdi,
    fabric,
    fabric_notes,
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
    pki,
    selinux,
    services,
    software,
)
from vgpuctl.agent.facts.nvml_gpus import NvmlGpu
from vgpuctl.agent.host import Host
from vgpuctl.agent.mistakes import guarded
from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import HostFacts, ServiceFacts, UnreadPart
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass


@dataclass(frozen=True)
class _FactPart:
    """One fact. name: its field of HostFacts. missing: its value where it could not be read; it says nothing then."""

    name: str
    read: Callable[[Host], Any]
    missing: Any


def _read_services(host: Host) -> Optional[Tuple[ServiceFacts, ...]]:
    """Return the services, None where nobody can be asked for them: a host without systemctl has none of systemd's."""
    try:
        return services.read(host)
    except Problem as problem:
        if problem.code == ProblemCode.PROGRAM_MISSING:
            return None
        raise


_PARTS = (
    _FactPart("hostname", lambda host: host.read("/proc/sys/kernel/hostname").strip(), ""),
    _FactPart("kernel", software.read_kernel, ""),
    _FactPart("kernel_command_line", lambda host: host.read("/proc/cmdline").strip(), ""),
    _FactPart("operating_system", software.read_operating_system, "Linux"),
    _FactPart("python", lambda host: host.python(), ""),
    _FactPart("cpus", numa.read_cpus, 0),
    _FactPart("memory_mib", lambda host: numa.read_memory_mib(host)[0], 0),
    _FactPart("memory_available_mib", lambda host: numa.read_memory_mib(host)[1], 0),
    _FactPart("numa_nodes", numa.read_nodes, ()),
    _FactPart("iommu_active", iommu.is_active, False),
    _FactPart("kvm", lambda host: host.exists("/dev/kvm"), False),
    _FactPart("libvirt_version", software.read_libvirt_version, None),
    _FactPart("qemu_version", software.read_qemu_version, None),
    _FactPart("services", _read_services, None),
    _FactPart("hugepages", hugepages.read_with_mounts, None),
    _FactPart("network_interfaces", lambda host: tuple(host.listdir_optional("/sys/class/net") or ()), None),
    _FactPart("boot", boot.read, None),
    _FactPart("installed", boot.read_installed, None),
    _FactPart("ovn", ovn.read, None),
    _FactPart("mdevctl", mdev.read_defined, ()),
    _FactPart("addresses", addresses.read, None),
    _FactPart("selinux", selinux.read_mode, None),
    _FactPart("distribution", software.read_distribution, ()),
    _FactPart("guest_firmwares", guest_firmware.read, None),
    _FactPart("machine_id", software.read_machine_id, None),
    _FactPart("tpm_programs", guest_tpm.read, None),
    _FactPart("move_certificates", pki.read, None),
    _FactPart("fabric_manager", fabric.read_manager, None),
    _FactPart("iommufd_driver", software.read_iommufd_driver, None),
    _FactPart("cdi", cdi.read, None),
)


def read(host: Host, nvml: Optional[Nvml], nvml_problem: Optional[str]) -> HostFacts:
    """Read the host. nvml: None with the reason where NVML cannot be used.

    Raises Problem where the boot or the list of PCI functions cannot be read: no other fact can be compared, and no GPU
    be told missing, without them.
    """
    boot_id = host.read("/proc/sys/kernel/random/boot_id").strip()
    unread: List[UnreadPart] = []

    def part(name: str, read_one: Callable[[], Any], missing: Any) -> Any:
        problems: List[str] = []
        value = guarded(problems, name, read_one, missing)
        unread.extend(UnreadPart(name, problem) for problem in problems)
        return value

    known: Optional[Dict[str, NvmlGpu]] = None
    nvml_version = None
    driver = part("nvidia_driver", lambda: nvidia.read_driver_version(host), None)
    if nvml is not None:
        known, problems = nvml_gpus.read(nvml)
        nvml_problem = "; ".join(problems) or None
        nvml_version = nvml.nvml_version()
        if nvml_version is None:
            unread.append(UnreadPart("nvml_version", "NVML does not tell its version"))
        driver = nvml.driver_version() or driver
    cards, unread_functions = gpus.read_gpus(host, gpus.read_shared(host, known))
    values = {one.name: part(one.name, partial(one.read, host), one.missing) for one in _PARTS}
    if values["fabric_manager"] is not None:
        cards = part("fabric_modules", lambda: fabric_notes.with_modules(host, cards), cards)
    return HostFacts(
        boot_id=boot_id,
        nvidia_driver=driver,
        nvml_version=nvml_version,
        nvml_problem=nvml_problem,
        gpus=cards,
        read_at=host.now(),
        unread_functions=unread_functions,
        unread=tuple(unread),
        **values,
    )
