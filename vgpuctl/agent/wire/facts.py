# SPDX-License-Identifier: Apache-2.0
"""What the agent reads from a host, as frozen values that travel as JSON. Python 3.9, standard library only.

Addresses are `dddd:bb:dd.f` in lower case. Sizes carry their unit in the name. `None` means that the host
does not say; a value that could not be read is a Problem of the whole request or a line in `problems`,
never an empty value.
"""

from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class Holder:
    """A process that has the device's VFIO group or character device open."""

    pid: int
    command: str
    vm_uuid: Optional[str] = None


@dataclass(frozen=True)
class CompanionFunction:
    """Another function of the same card (audio, USB): it shares the GPU's slot and goes with it."""

    address: str
    pci_class: str
    driver: Optional[str]
    iommu_group: Optional[int]


@dataclass(frozen=True)
class VgpuType:
    """A vGPU type one GPU offers, now.

    type_id: what is written on this host: the mdev type's folder (`nvidia-558`) or the decimal id (`558`).
    name: the short profile name without vendor prefix (`A40-2Q`); full_name as the host prints it.
    creatable: how many more can be created on the whole GPU at this moment (reference 2.2).
    """

    type_id: str
    name: str
    full_name: str
    framebuffer_mib: Optional[int]
    max_instances: Optional[int]
    creatable: int


@dataclass(frozen=True)
class Mdev:
    """One mediated device."""

    uuid: str
    parent: str
    type_id: str
    iommu_group: Optional[int]
    holders: Tuple[Holder, ...] = ()


@dataclass(frozen=True)
class VirtualFunction:
    """One SR-IOV VF.

    current_type: the decimal vGPU type id set on it (vendor VFIO), None when free or not of that kind.
    """

    address: str
    number: int
    driver: Optional[str]
    iommu_group: Optional[int]
    current_type: Optional[str] = None
    mdev_uuid: Optional[str] = None
    holders: Tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """One GPU (physical function) and everything that hangs on it.

    sharing: the kinds that can be used as the GPU stands now, of passthrough, mdev, mdev-vf, vf-profile, vf.
    vendor_id, device_id: four hex digits in lower case (`10de`, `2235`); subsystem_id: `10de:145a`;
    pci_class: six hex digits (`030200`). mig_mode: `enabled`, `disabled` or None.
    types: without those that only exist with MIG instances the GPU has not.
    users: processes that have the vendor driver's own node (`/dev/nvidia0`) open; with one, the driver cannot
    let go of the card.
    bars_bytes: sizes of the BARs that are present, for the guest's MMIO window.
    problems: what is wrong with this GPU, as sentences; a GPU with problems takes no new VM.
    """

    address: str
    vendor_id: str
    device_id: str
    subsystem_id: Optional[str]
    pci_class: str
    name: Optional[str]
    uuid: Optional[str]
    driver: Optional[str]
    iommu_group: Optional[int]
    iommu_group_members: Tuple[str, ...]
    numa_node: Optional[int]
    local_cpus: Optional[str]
    companions: Tuple[CompanionFunction, ...]
    sharing: Tuple[str, ...]
    total_vfs: int
    vfs: Tuple[VirtualFunction, ...]
    types: Tuple[VgpuType, ...]
    mdevs: Tuple[Mdev, ...]
    bars_bytes: Tuple[int, ...]
    reset_methods: Tuple[str, ...]
    memory_mib: Optional[int]
    mig_mode: Optional[str]
    holders: Tuple[Holder, ...] = ()
    problems: Tuple[str, ...] = ()
    users: Tuple[Holder, ...] = ()


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node of the host."""

    number: int
    cpus: str
    memory_mib: int


@dataclass(frozen=True)
class HostFacts:
    """One host as the agent saw it. read_at: seconds since the epoch by the host's clock."""

    hostname: str
    boot_id: str
    kernel: str
    kernel_command_line: str
    operating_system: str
    python: str
    cpus: int
    memory_mib: int
    memory_available_mib: int
    numa_nodes: Tuple[NumaNode, ...]
    iommu_active: bool
    kvm: bool
    libvirt_version: Optional[str]
    qemu_version: Optional[str]
    nvidia_driver: Optional[str]
    nvml_version: Optional[str]
    nvml_problem: Optional[str]
    gpus: Tuple[Gpu, ...]
    read_at: float
