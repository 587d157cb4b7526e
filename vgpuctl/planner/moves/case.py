# SPDX-License-Identifier: Apache-2.0
"""What is known of one VM and of one move: a value that is None was not read, and counts against the move."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.vgpu_params import VgpuParams
from vgpuctl.sharing.kind import HandedAs, Takes
from vgpuctl.sharing.kinds import kind_of

Range = tuple[int, int]
"""The lowest and the highest version, both included."""


@dataclass(frozen=True)
class Compatibility:
    """NVML's answer about one vGPU and another card: the two words of `nvmlVgpuPgpuCompatibility_t`, as bits."""

    ways: int
    limit_code: int


@dataclass(frozen=True)
class MovedCard:
    """One card as it is now. board: its model. ecc: as it is in effect. gsp: its GSP firmware is in use.

    can_migrate: NVML's migration bit of the card. read_mb_s, write_mb_s: how fast the state of a vGPU can be read and
    written, in MB/s. streams: vGPUs' memory is copied while they run. on_fabric: it is on an NVSwitch fabric.
    """

    address: str
    board: str | None = None
    ecc: bool | None = None
    gsp: bool | None = None
    can_migrate: bool | None = None
    read_mb_s: int | None = None
    write_mb_s: int | None = None
    streams: bool | None = None
    on_fabric: bool | None = None


@dataclass(frozen=True)
class MovedGpu:
    """One share of the VM, with the card that has it and the one that would. there: None if no card was found.

    there_sharing: the kind of the share there. has_equal_type: both have one vGPU type.
    driver: that the VM's function is bound to, for VFs and whole cards. has_migration: the kernel shows the state of
    its migration. has_p2p: it can be quiesced together with
    others. has_iommufd: libvirt gave it to QEMU by an iommufd. can_migrate: NVML's migration bit of the vGPU, which
    needs a guest driver. guest_version: the vGPU version that the guest's driver has agreed on with the host's.
    """

    index: int
    sharing: Sharing
    is_nvidia: bool
    here: MovedCard
    there: MovedCard | None
    there_sharing: Sharing | None = None
    has_equal_type: bool | None = None
    params: VgpuParams | None = None
    driver: str | None = None
    has_migration: bool | None = None
    has_p2p: bool | None = None
    has_iommufd: bool | None = None
    can_migrate: bool | None = None
    guest_version: int | None = None
    compatibility: Compatibility | None = None
    state_bytes: int | None = None

    @property
    def is_vgpu(self) -> bool:
        """True if NVIDIA's vGPU manager runs it."""
        return self.is_nvidia and not self.sharing.is_asked_for_by_name()

    @property
    def is_card(self) -> bool:
        """True if the VM has the whole card."""
        return kind_of(self.sharing).takes is Takes.CARD

    @property
    def is_mdev(self) -> bool:
        """True if the VM has it as a mediated device."""
        return kind_of(self.sharing).handed_as is HandedAs.MDEV

    @property
    def is_plain_vf(self) -> bool:
        """True if libvirt gives it a VF of a driver of its own."""
        return kind_of(self.sharing).handed_as is HandedAs.PLAIN_VF

    @property
    def name(self) -> str:
        """The share in sentences."""
        return f"GPU {self.index}"

    @property
    def there_name(self) -> str:
        """The other card in sentences."""
        return "the other card" if self.there is None else self.there.address


@dataclass(frozen=True)
class HostProcessor:
    """The processor of a host as libvirt's capabilities tell it; None for what libvirt does not tell.

    address_bits: of physical memory.
    """

    vendor: str
    model: str
    features: frozenset[str]
    microcode: str | None = None
    address_bits: int | None = None


@dataclass(frozen=True)
class MoveHost:
    """One of the two hosts. driver: NVIDIA's.

    distribution: os-release's ID and its version, as `("rhel", "9.4")`; the version is empty where it is not known.
    vgpu_versions: of the guests that its vGPU manager accepts. machines: the machine types that its QEMU has.
    logs_dma: its kernel can tell which memory a device has written.
    """

    name: str
    kernel: str | None = None
    qemu: str | None = None
    libvirt: str | None = None
    distribution: tuple[str, str] | None = None
    driver: str | None = None
    vgpu_versions: Range | None = None
    machines: frozenset[str] | None = None
    cpu: HostProcessor | None = None
    logs_dma: bool | None = None


@dataclass(frozen=True)
class MovedDomain:
    """The domain as libvirt runs it now. cpu_runs_there: libvirt of the other host accepts its CPU.

    unsafe_disks: disks on shared storage whose cache is another than none and directsync. transient_disks: discarded
    at the end. other_devices: host devices that are none of the VM's shares.
    """

    machine: str | None = None
    cpu_mode: str | None = None
    cpu_runs_there: bool | None = None
    has_free_invtsc: bool | None = None
    has_viommu: bool | None = None
    has_virtiofs: bool | None = None
    snapshots: int | None = None
    block_jobs: tuple[str, ...] | None = None
    job: str | None = None
    unsafe_disks: tuple[str, ...] | None = None
    transient_disks: tuple[str, ...] | None = None
    other_devices: tuple[str, ...] | None = None


@dataclass(frozen=True)
class MovingVm:
    """The VM as the store has it, which is always known.

    unfinished: what has not ended of it, in words. network: one that is on its host alone. max_downtime_s: the longest
    stop that its owner accepts in a live move. pending: GPUs that are attached at its next start, or that its guest has
    yet to let go of. cluster: of which it is a node, in words. gang: of VMs that were started together. must_restart:
    its vGPU was reset while its guest ran.
    """

    name: str
    is_running: bool
    unfinished: str | None = None
    is_adopted: bool = False
    declared_host: str | None = None
    network: str | None = None
    has_disk_snapshots: bool = False
    is_suspended: bool = False
    must_restart: bool = False
    max_downtime_s: float | None = None
    pending: tuple[str, ...] = ()
    cluster: str | None = None
    gang: str | None = None


@dataclass(frozen=True)
class MoveTransfer:
    """The way between the hosts, and what goes over it. mbit_s: its bandwidth.

    dirty_bytes_s, state_dirty_bytes_s: how fast the guest writes its memory, and that of its GPUs.
    """

    mbit_s: int | None = None
    memory_bytes: int | None = None
    dirty_bytes_s: int | None = None
    state_dirty_bytes_s: int | None = None


@dataclass(frozen=True)
class MoveCase:
    """One VM and one way that it could go.

    looks: by the codes of `placing_rules`, what was found against the VM on the other host, empty for nothing; a code
    that is missing was not looked at.
    """

    vm: MovingVm
    here: MoveHost
    there: MoveHost
    gpus: tuple[MovedGpu, ...] = ()
    domain: MovedDomain = MovedDomain()
    link: MoveTransfer = MoveTransfer()
    looks: Mapping[str, str] = field(default_factory=dict)
