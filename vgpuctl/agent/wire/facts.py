# SPDX-License-Identifier: Apache-2.0
"""Facts of a host, as frozen values that travel as JSON. Python 3.9, standard library only.

Addresses are `dddd:bb:dd.f` in lower case. Sizes carry their unit in the name. `None` means that the host does not
say; a value that could not be read is a Problem of the whole request or a line in `problems`, never an empty value.
"""

from typing import Optional, Tuple

from vgpuctl.agent.wire.boot import BootFacts, Installed
from vgpuctl.agent.wire.cdi import CdiFacts
from vgpuctl.agent.wire.fabric import FabricManagerFacts
from vgpuctl.agent.wire.memory import HugepageFacts, NumaNode
from vgpuctl.agent.wire.migration import GpuMigration
from vgpuctl.agent.wire.ovn import OvnFacts
from vgpuctl.agent.wire.pki import MoveCertificates
from vgpuctl.agent.wire.tuning import GpuTuning
from vgpuctl.agent.wire.values import dataclass
from vgpuctl.agent.wire.vgpu_abilities import VgpuAbilities


@dataclass(frozen=True)
class Holder:
    """A process that has the device's VFIO group or character device open."""

    pid: int
    command: str
    vm_uuid: Optional[str] = None


@dataclass(frozen=True)
class CompanionFunction:
    """Another function of the same card (audio, USB): it shares the GPU's slot and goes with it.

    holders: as for Gpu. users: processes that have one of its sound devices open.
    """

    address: str
    pci_class: str
    driver: Optional[str]
    iommu_group: Optional[int]
    holders: Tuple[Holder, ...] = ()
    users: Tuple[Holder, ...] = ()


@dataclass(frozen=True)
class DisplayLimits:
    """The displays of a vGPU of one type. max_resolution: width and height of one head.

    frame_rate_limit: frames a second under the scheduler `best-effort`, 0 for none.
    """

    heads: Optional[int] = None
    max_resolution: Optional[Tuple[int, int]] = None
    frame_rate_limit: Optional[int] = None


@dataclass(frozen=True)
class VgpuType:
    """A vGPU type one GPU offers, now.

    type_id: what is written on this host: the mdev type's folder (`nvidia-558`) or the decimal id (`558`).
    name: the short profile name without vendor prefix (`A40-2Q`); full_name as the host prints it. Of a type that is in
    use and that nothing names, both say its id.
    creatable: how many more can be created on the whole GPU at this moment (reference 2.2).
    creatable_starts: in mixed-size mode, where one can begin at this moment, taking placement_size each (reference
    3.3); None in other modes, and where the driver does not tell. display: None where the host does not tell it.
    is_guessed: True if the name stands in vgpuConfig.xml alone, which may be of a driver that was installed since the
    running one was loaded.
    """

    type_id: str
    name: str
    full_name: str
    framebuffer_mib: Optional[int]
    max_instances: Optional[int]
    creatable: int
    creatable_starts: Optional[Tuple[int, ...]] = None
    placement_size: int = 0
    display: Optional[DisplayLimits] = None
    is_guessed: bool = False

    @property
    def is_named(self) -> bool:
        """Tell whether the driver that runs says the type's name; else it can only be told apart by its id."""
        return not self.is_guessed and self.name not in (self.type_id, unnamed(self.type_id))


def unnamed(type_id: str) -> str:
    """Return what stands for the name of a type that nothing on the host names."""
    return f"type {type_id}"


@dataclass(frozen=True)
class Mdev:
    """One mediated device. vgpu_params: the text of its parameters, None where its driver has no such file."""

    uuid: str
    parent: str
    type_id: str
    iommu_group: Optional[int]
    holders: Tuple[Holder, ...] = ()
    vgpu_params: Optional[str] = None


@dataclass(frozen=True)
class VirtualFunction:
    """One SR-IOV VF.

    current_type: the decimal vGPU type id set on it (vendor VFIO), None when free or not of that kind.
    problem: why it could not be read; the other fields are then no facts, and the VF counts as taken.
    offers_types: whether the driver offers vGPU types on it, by either kernel interface; None where nobody looked.
    last_use: rises over the host with every vGPU that is made, 0 for none since the VFs are there.
    vgpu_params: of the vGPU that the VF itself carries, as for Mdev; of a VF of Intel's driver `xe`, its own.
    first_params: of those, what the driver had before the agent set them; None where it set none.
    migration: the state of its VFIO migration, `RUNNING`, where the kernel tells it (debugfs, since Linux 6.7).
    """

    address: str
    number: int
    driver: Optional[str]
    iommu_group: Optional[int]
    current_type: Optional[str] = None
    mdev_uuid: Optional[str] = None
    holders: Tuple[Holder, ...] = ()
    problem: Optional[str] = None
    offers_types: Optional[bool] = None
    last_use: int = 0
    vgpu_params: Optional[str] = None
    migration: Optional[str] = None
    first_params: Optional[str] = None


@dataclass(frozen=True)
class MigProfileFacts:
    """One GPU-instance profile as NVML describes it on this GPU (reference 5.2, 5.4).

    name: without the `MIG ` prefix (`1g.5gb+me`). profile_id: the id of `nvidia-smi mig -lgip`. starts and size count
    the GPU's memory slots, as `-lgipp` prints them: `{0,2,4}:2` is starts (0, 2, 4) and size 2.
    """

    name: str
    profile_id: int
    compute_slices: int
    starts: Tuple[int, ...]
    size: int
    max_count: int


@dataclass(frozen=True)
class GpuInstance:
    """One MIG GPU instance. compute_instances: how many it holds; idle ones do not make it `in_use`.

    compute: the compute slices of each, the largest first.

    in_use: a vGPU sits in it, or a process works in it; holders: which ones, as far as the host tells.
    heterogeneous: as for Gpu, where vGPUs share the instance (reference 5.3).
    """

    id: int
    profile: str
    start: int
    size: int
    in_use: bool
    compute_instances: int = 0
    holders: Tuple[Holder, ...] = ()
    heterogeneous: Optional[bool] = None
    compute: Tuple[int, ...] = ()


@dataclass(frozen=True)
class MigFacts:
    """MIG on one GPU that has it (reference 5.1). current and pending differ until a reset or reboot.

    profiles: empty where the driver does not tell them (MIG off on older drivers).
    """

    current: bool
    pending: bool
    instances: Tuple[GpuInstance, ...] = ()
    profiles: Tuple[MigProfileFacts, ...] = ()


@dataclass(frozen=True)
class SchedulerFacts:
    """The vGPU scheduler of one GPU as NVML reads it (reference 3.4).

    policy: `best-effort`, `equal-share` or `fixed-share`. time_slice_us: None where the driver keeps its default.
    """

    policy: str
    time_slice_us: Optional[int] = None


@dataclass(frozen=True)
class NvLinks:
    """The NVLinks of one GPU that lead to one peer. numbers: of the links. version: of NVLink.

    peer: the PCI address of what is at the other end; peer_kind: `gpu`, `switch` or `processor`. Both are None for
    links that are not active, and where the driver does not tell them.
    """

    numbers: Tuple[int, ...]
    is_active: bool
    peer: Optional[str] = None
    peer_kind: Optional[str] = None
    version: Optional[int] = None


@dataclass(frozen=True)
class FabricFacts:
    """The NVSwitch fabric as one GPU sees it. state: `not-started`, `in-progress` or `completed`.

    GPUs of one cluster and clique reach each other; both are None before Fabric Manager has set the fabric up.
    faults: what the driver's health mask calls bad. status: NVML's code for how a completed set-up ended, 0 for well.
    """

    state: str
    cluster_uuid: Optional[str] = None
    clique: Optional[int] = None
    faults: Tuple[str, ...] = ()
    status: int = 0

    def is_up(self) -> bool:
        """True if the set-up has ended well."""
        return self.state == "completed" and self.status == 0

    def is_between_partitions(self, mode: Optional[int]) -> bool:
        """True if the set-up waits until a partition with the GPU is active, as it does in FABRIC_MODE 1 and 2."""
        return self.state == "in-progress" and mode in (1, 2)

    def describe(self) -> str:
        """Tell the state, and how a set-up failed."""
        return self.state if self.status == 0 else f"{self.state} with NVML's status {self.status}"


@dataclass(frozen=True)
class GpuTopology:
    """The place of one GPU in its host. root: the PCI root complex, `pci0000:40`.

    bridges: addresses of the PCI bridges above the GPU, from the root port down; with a PCIe switch its upstream and
    downstream port are among them. nvlinks: None where nobody tells (the card is on vfio-pci, the driver is old), empty
    on a board without. fabric: None without NVSwitch. module: the number of the board's place on its baseboard, by
    which Fabric Manager names it.
    """

    root: Optional[str] = None
    bridges: Tuple[str, ...] = ()
    nvlinks: Optional[Tuple[NvLinks, ...]] = None
    fabric: Optional[FabricFacts] = None
    module: Optional[int] = None


@dataclass(frozen=True)
class Gpu:
    """One GPU (physical function) and everything that hangs on it.

    sharing: the kinds that can be used as the GPU stands now, by the names of wire/sharing.py.
    vendor_id, device_id: four hex digits in lower case (`10de`, `2235`); subsystem_id: `10de:145a`; pci_class: six hex
    digits (`030200`). mig_mode: `enabled`, `disabled` or None. types: without those of MIG instances the GPU has not.
    users: processes that have a node of the card's driver open (`/dev/nvidia0`, `/dev/dri/card1`) or compute on it
    through `/dev/kfd`; with one, the driver cannot let go of the card.
    bars_bytes: sizes of the BARs that are present, for the guest's MMIO window. mig: None without MIG or an answer.
    problems: what is wrong with this GPU, as sentences; a GPU with problems takes no new VM.
    heterogeneous: whether mixed-size mode is on, None when the GPU has none (reference 3.3). scheduler: None when the
    driver does not say, as with VFs that are not enabled.
    unread: those of the problems that mean that a part could not be read, so that what is here may not be all; with
    those of single VFs, which keep nothing else from being used.
    utilisation_percent: how busy it was when it was read, None when it does not tell (a GPU in MIG mode).
    persistence: nvidia-persistenced, where it has the card open; it is none of the users, for it can be stopped.
    strangers: endpoints in the IOMMU groups of the card's functions that are not of the card; None of an agent that did
    not look. displays: what the host shows on the card, as sentences about "it".
    topology: None when the agent did not look. vf_device_id, vf_subsystem_id: of its VFs, as device_id and subsystem_id
    are; None without VFs. migration, abilities: of its vGPUs, as NVML tells them; None of a card that has none.
    pf_params: of the PF itself in Intel's driver `xe`, None where it has none. tuning: None without NVML.
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
    mig: Optional[MigFacts] = None
    heterogeneous: Optional[bool] = None
    scheduler: Optional[SchedulerFacts] = None
    unread: Tuple[str, ...] = ()
    utilisation_percent: Optional[int] = None
    strangers: Optional[Tuple[str, ...]] = None
    displays: Tuple[str, ...] = ()
    persistence: Tuple[Holder, ...] = ()
    topology: Optional[GpuTopology] = None
    vf_device_id: Optional[str] = None
    vf_subsystem_id: Optional[str] = None
    migration: Optional[GpuMigration] = None
    abilities: Optional[VgpuAbilities] = None
    pf_params: Optional[str] = None
    tuning: Optional[GpuTuning] = None


@dataclass(frozen=True)
class UnreadFunction:
    """A PCI function of an unknown class; it may be a GPU."""

    address: str
    problem: str


@dataclass(frozen=True)
class UnreadPart:
    """A fact of the host that could not be read. name: its field of HostFacts, whose value then says nothing."""

    name: str
    problem: str


@dataclass(frozen=True)
class ServiceFacts:
    """One systemd service that the host has loaded. active: systemd's ActiveState is `active`."""

    name: str
    active: bool


@dataclass(frozen=True)
class GuestFirmware:
    """One UEFI build for q35 guests, as its descriptor in QEMU's firmware folders tells.

    descriptor: the file's name, by which libvirt orders them. features: `secure-boot`, `enrolled-keys`, `requires-smm`,
    and so on, in QEMU's words (docs/interop/firmware.json). code: the path of the program. variables_format,
    variables_bytes: of the file that its guests' variables begin as; 0 where that is not known.
    """

    descriptor: str
    features: Tuple[str, ...] = ()
    code: str = ""
    variables_format: str = "raw"
    variables_bytes: int = 0


@dataclass(frozen=True)
class HostFacts:
    """One host as the agent saw it. read_at: seconds since the epoch by the host's clock.

    services, hugepages, network_interfaces: None when the agent did not read them, which is not the same as none.
    boot: what restores the layout at boot, None where nothing is installed. installed: vgpuctl's files on the host,
    None where nobody read them. interpreter: the Python that ran the agent, as the caller names it.
    ovn: None where Open vSwitch is not installed. selinux: `enforcing` or `permissive`, None where it is off.
    mdevctl: UUIDs of the mdevs that mdevctl has definitions of, started at boot or not.
    unread_functions: PCI functions that could not be read; a GPU among them is not in `gpus`.
    addresses: the host's own IPv4 addresses, None where the kernel does not tell.
    distribution: os-release's ID, then its ID_LIKE. tpm_programs: of swtpm's two programs those that are there.
    guest_firmwares, tpm_programs, move_certificates of QEMU, cdi of containers: None when the agent did not look.
    iommufd_driver: the kernel was built with CONFIG_IOMMUFD_DRIVER, None where its configuration is not there.
    fabric_manager: None without its configuration. unread: facts that could not be read; ask `why_unread` first.
    machine_id: a digest of machine-id(5), None where the system has none; machines of a cloned image may share it.
    """

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
    services: Optional[Tuple[ServiceFacts, ...]] = None
    hugepages: Optional[Tuple[HugepageFacts, ...]] = None
    network_interfaces: Optional[Tuple[str, ...]] = None
    boot: Optional[BootFacts] = None
    ovn: Optional[OvnFacts] = None
    mdevctl: Tuple[str, ...] = ()
    unread_functions: Tuple[UnreadFunction, ...] = ()
    addresses: Optional[Tuple[str, ...]] = None
    selinux: Optional[str] = None
    distribution: Tuple[str, ...] = ()
    guest_firmwares: Optional[Tuple[GuestFirmware, ...]] = None
    machine_id: Optional[str] = None
    tpm_programs: Optional[Tuple[str, ...]] = None
    unread: Tuple[UnreadPart, ...] = ()
    installed: Optional[Installed] = None
    iommufd_driver: Optional[bool] = None
    move_certificates: Optional[MoveCertificates] = None
    interpreter: Optional[str] = None
    fabric_manager: Optional[FabricManagerFacts] = None
    cdi: Optional[CdiFacts] = None

    def why_unread(self, *names: str) -> Optional[str]:
        """Say why one of these facts could not be read; None where all of them could."""
        problems = [one.problem for one in self.unread if one.name in names]
        return "; ".join(dict.fromkeys(problems)) or None
