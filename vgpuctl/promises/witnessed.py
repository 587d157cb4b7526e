# SPDX-License-Identifier: Apache-2.0
"""The promises to one VM, and the answer of each witness."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.interfaces import Interface
from vgpuctl.model.layout import GpuLayout
from vgpuctl.model.lease import Lease
from vgpuctl.model.network import Attachment
from vgpuctl.model.network_seen import Checked, NetworksSeen
from vgpuctl.model.numa import NO_TUNING, Tuning
from vgpuctl.model.vm import Vm
from vgpuctl.model.volume import Volume
from vgpuctl.sharing.measured import MeasuredShare


@dataclass(frozen=True)
class Promised:
    """All that one VM was promised, as the store has it.

    leases: of the GPUs that its guest has and keeps. interfaces: those that the running domain is to have. attachments:
    its ports in tenants' networks. disks: the volume that each disk writes into, by the disk's name, "" for the first.
    declared: for the GPUs of its host, where compute time was asked for. gateway: of its tenant, if it is in a network
    that leads there. chassis: of its host in OVN, None where that was not read. members: its places behind balancers.
    """

    vm: Vm
    leases: Sequence[Lease] = ()
    interfaces: Sequence[Interface] = ()
    attachments: Sequence[Attachment] = ()
    disks: Mapping[str, Volume] = field(default_factory=dict)
    declared: Sequence[GpuLayout] = ()
    gateway: "PromisedGateway | None" = None
    chassis: str | None = None
    members: Sequence["PromisedMember"] = ()


@dataclass(frozen=True)
class PromisedGateway:
    """A tenant's gateway. port: its name in OVN. chassis: that may carry it, the first one first."""

    external_network: str
    port: str
    chassis: tuple[str, ...]


@dataclass(frozen=True)
class PromisedMember:
    """A VM's place behind a balancer. checked: what OVN's health check asks, for each of the member's addresses."""

    balancer: str
    checked: tuple[Checked, ...]


@dataclass(frozen=True)
class NotLookedAt:
    """No answer of a witness. why: the reason, as a clause."""

    why: str


@dataclass(frozen=True)
class NotRunning(NotLookedAt):
    """libvirt's answer that a domain does not run, so that nothing that is promised of a running one is kept."""


NOBODY_ASKED = NotLookedAt("nobody asked")
NO_CONSENT = NotLookedAt("the tenant does not allow it; `guest_probe: true` in its file does")


@dataclass(frozen=True)
class SeenDisk:
    """A disk of a running domain. serial: of a data disk. bytes_s, iops: its limits, reads and writes together."""

    path: str | None
    serial: str | None = None
    bytes_s: int | None = None
    iops: int | None = None


@dataclass(frozen=True)
class SeenInterface:
    """An interface of a running domain. network: libvirt's, or None. port: by which OVN knows it.

    kib_s: what it may receive and send, None without a limit. address: the only one that its filter lets it send from.
    """

    mac_address: str
    network: str | None = None
    port: str | None = None
    is_up: bool = True
    kib_s: tuple[int | None, int | None] = (None, None)
    address: str | None = None


@dataclass(frozen=True)
class SeenDomain:
    """A running domain as libvirt shows it. memory_mib: what it has now, of huge pages of hugepages_kib.

    pins: the host's CPUs of each vCPU that has some of its own, by its number. tuning: as of an adopted one. graphics:
    kinds of displays. video: models of emulated adapters. shown: aliases of the host devices whose picture is shown.
    tpm: the version of its TPM. cpu_weight, cpu_limit: as of a request; None for none.
    """

    vcpus: int
    memory_mib: int
    hugepages_kib: int | None = None
    pins: Mapping[int, frozenset[int]] = field(default_factory=dict)
    tuning: Tuning = NO_TUNING
    disks: tuple[SeenDisk, ...] = ()
    interfaces: tuple[SeenInterface, ...] = ()
    graphics: frozenset[str] = frozenset()
    video: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    tpm: str | None = None
    cpu_weight: int | None = None
    cpu_limit: int | None = None


@dataclass(frozen=True)
class PortSeen:
    """A port in OVN. is_up: some host's ovn-controller carries it; its database does not say whose.

    mbps: its limit, None without one."""

    is_up: bool
    addresses: frozenset[str]
    mbps: int | None = None


@dataclass(frozen=True)
class InsideGpu:
    """One GPU as the guest shows it. memory_mib: its framebuffer. licence, product, compute_mode: nvidia-smi's words.

    uuid: decides nothing but that two GPUs are two: a guest can name that of another VM's GPU.
    """

    name: str | None
    memory_mib: int | None
    licence: str | None
    uuid: str | None = None
    product: str | None = None
    compute_mode: str | None = None


@dataclass(frozen=True)
class InsideMps:
    """The control daemon of MPS as the guest shows it. threads: percent that a program may use.

    memory_mib: that it may have of each device, None where the guest does not tell. clients: programs that use it.
    """

    threads: float
    memory_mib: tuple[int | None, ...] = ()
    clients: int = 0


@dataclass(frozen=True)
class PeerCopy:
    """A copy by peer access from one CUDA device of a guest to another. problem: None where all of it arrived."""

    source: int
    target: int
    problem: str | None = None
    mib_s: int | None = None


@dataclass(frozen=True)
class SeenInside:
    """A guest as it shows itself. cuda_devices, cuda_copies: None where the guest has no CUDA.

    peers: the copies that were tried, None where the probe tries none. mps: None where no daemon answers.
    """

    driver: str | None
    gpus: tuple[InsideGpu, ...]
    cuda_devices: int | None
    cuda_copies: int | None
    peers: tuple[PeerCopy, ...] | None = None
    mps: InsideMps | None = None


@dataclass(frozen=True)
class Witnessed:
    """The answers of all witnesses about one VM. nvml: of each lease. active_networks: of the host's libvirt.

    definition: the domain as it starts next, which is asked where the running one has not all that was promised.

    ports: by OVN's name of the port. carrier: the chassis that carries the tenant's gateway, "" where none does.
    places: where ports are, and what health checks found, by OVN's southbound database.
    sizes: bytes of each volume, by its path. watched: whether a controller that lives has claimed the VM's host.
    elsewhere: other hosts that run a domain of the VM's UUID, each with what it says.
    """

    kernel: HostFacts | NotLookedAt = NOBODY_ASKED
    nvml: Sequence[MeasuredShare] | NotLookedAt = NOBODY_ASKED
    domain: SeenDomain | NotLookedAt = NOBODY_ASKED
    definition: SeenDomain | NotLookedAt = NOBODY_ASKED
    active_networks: Collection[str] | NotLookedAt = NOBODY_ASKED
    ports: Mapping[str, PortSeen] | NotLookedAt = NOBODY_ASKED
    carrier: str | NotLookedAt = NOBODY_ASKED
    places: NetworksSeen | NotLookedAt = NOBODY_ASKED
    guest: SeenInside | NotLookedAt = NO_CONSENT
    sizes: Mapping[str, int] | NotLookedAt = NOBODY_ASKED
    watched: bool | NotLookedAt = NOBODY_ASKED
    elsewhere: Sequence[tuple[str, str]] = ()
