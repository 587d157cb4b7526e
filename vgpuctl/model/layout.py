# SPDX-License-Identifier: Apache-2.0
"""The declared layout of a host: what each GPU is to be, and what the host around them needs.

Values only; the inventory reads them (docs/layout.md), the planner turns them into steps. None means: not declared,
so left as it is found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from vgpuctl.agent.wire.tuning import watts
from vgpuctl.model.vgpu_params import VgpuParams


class LayoutKind(StrEnum):
    """The kinds of a declared GPU."""

    PASSTHROUGH = "passthrough"
    VGPU = "vgpu"
    MIG = "mig"
    MIG_VGPU = "mig-vgpu"
    VF = "vf"
    OFF = "off"
    HOST = "host"


class SizeMode(StrEnum):
    """True if the vGPUs of one GPU share one size or may differ (reference 3.3)."""

    EQUAL = "equal-size"
    MIXED = "mixed-size"


class SchedulerPolicy(StrEnum):
    """How the vGPUs of one GPU share its time (reference 3.4)."""

    BEST_EFFORT = "best-effort"
    EQUAL_SHARE = "equal-share"
    FIXED_SHARE = "fixed-share"

    def works_with_mixed_size(self) -> bool:
        """True if the driver takes the policy while sizes are mixed (reference 3.3)."""
        return self is not SchedulerPolicy.FIXED_SHARE

    def has_time_slice(self) -> bool:
        """True if a time slice means anything to the policy."""
        return self is not SchedulerPolicy.BEST_EFFORT


@dataclass(frozen=True)
class GpuMatch:
    """The GPUs of an entry: one of the fields is set, or none for all.

    address: `dddd:bb:dd.f`. uuid: `GPU-…`, compared without case. board: a model's name as the catalogue knows it
    (`A40`, `h100`), or `vendor:device` in hex.
    """

    address: str | None = None
    uuid: str | None = None
    board: str | None = None

    @property
    def rank(self) -> int:
        """How narrow the match is: 2 for one GPU, 1 for a board, 0 for all. The narrowest entry counts."""
        if self.address is not None or self.uuid is not None:
            return 2
        return 1 if self.board is not None else 0

    def __str__(self) -> str:
        for name in ("address", "uuid", "board"):
            value = getattr(self, name)
            if value is not None:
                return f"{name} {value}"
        return "all GPUs"


@dataclass(frozen=True)
class SchedulerLayout:
    """The vGPU scheduler. time_slice_us: None for the driver's default."""

    policy: SchedulerPolicy
    time_slice_us: int | None = None


@dataclass(frozen=True)
class WantedInstance:
    """One MIG GPU instance. start: the memory slot it begins at, None where it may be any.

    compute: the compute slices of each of its compute instances, the largest first; empty for one that fills it.
    """

    profile: str
    start: int | None = None
    compute: tuple[int, ...] = ()


@dataclass(frozen=True)
class PassthroughLayout:
    """A whole card for one VM. driver: `vfio-pci` binds it now, None leaves that to libvirt when the VM starts."""

    driver: str | None = None

    kind = LayoutKind.PASSTHROUGH


@dataclass(frozen=True)
class VgpuLayout:
    """Time-sliced vGPUs.

    virtual_functions: None as the board needs them (all on SR-IOV boards). types: the vGPU types that may be made,
    empty for any. shares: (type, how many) that exist before any VM asks for them, sorted by type. vgpu_params: of each
    vGPU on the GPU; a VM's own win.
    """

    virtual_functions: bool | None = None
    size_mode: SizeMode | None = None
    scheduler: SchedulerLayout | None = None
    types: tuple[str, ...] = ()
    shares: tuple[tuple[str, int], ...] = ()
    vgpu_params: VgpuParams = ()

    kind = LayoutKind.VGPU


@dataclass(frozen=True)
class MigLayout:
    """MIG instances with compute instances, for the host itself. instances: a multiset."""

    instances: tuple[WantedInstance, ...] = ()

    kind = LayoutKind.MIG


@dataclass(frozen=True)
class MigVgpuLayout:
    """vGPUs that sit in MIG instances; the fields of MigLayout and VgpuLayout, without a choice of VFs."""

    instances: tuple[WantedInstance, ...] = ()
    size_mode: SizeMode | None = None
    scheduler: SchedulerLayout | None = None
    types: tuple[str, ...] = ()
    shares: tuple[tuple[str, int], ...] = ()
    vgpu_params: VgpuParams = ()

    kind = LayoutKind.MIG_VGPU


@dataclass(frozen=True)
class VfLayout:
    """Plain VFs (AMD, Intel).

    vf_params, pf_params: what Intel's driver gives each VF and the PF; a VM's own win. One that is not named stays.
    """

    count: int
    vf_params: VgpuParams = ()
    pf_params: VgpuParams = ()

    kind = LayoutKind.VF


@dataclass(frozen=True)
class OffLayout:
    """Nothing for VMs: no VFs, no MIG, on the host's own driver."""

    kind = LayoutKind.OFF


@dataclass(frozen=True)
class OwnLayout:
    """The host's own: containers of the host may use it, and no VM. instances: of MIG; none for the whole card."""

    instances: tuple[WantedInstance, ...] = ()

    kind = LayoutKind.HOST


Layout = PassthroughLayout | VgpuLayout | MigLayout | MigVgpuLayout | VfLayout | OffLayout | OwnLayout


class ComputeMode(StrEnum):
    """The processes of the host that may compute on a GPU (nvmlComputeMode_t)."""

    DEFAULT = "default"
    EXCLUSIVE_PROCESS = "exclusive-process"
    PROHIBITED = "prohibited"


DEFAULT_POWER = 0
"""Stands for the power limit that the board has from its maker."""


@dataclass(frozen=True)
class TuningLayout:
    """Settings of whole cards. power_limit_mw: DEFAULT_POWER for the board's own. gpu_clocks_mhz, memory_clocks_mhz:
    lowest and highest, (0, 0) for clocks that are not locked."""

    power_limit_mw: int | None = None
    gpu_clocks_mhz: tuple[int, int] | None = None
    ecc: bool | None = None
    compute_mode: ComputeMode | None = None
    memory_clocks_mhz: tuple[int, int] | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The declared keys, as a file has them."""
        names = {"power_limit_mw": "power_limit_w"}
        return tuple(names.get(one.name, one.name) for one in fields(self) if getattr(self, one.name) is not None)


@dataclass(frozen=True)
class TuningBounds:
    """The bounds in which `controller --tune` may change settings of whole cards; None for one that it must leave.

    power_limit_mw: the lowest and the highest power limit.
    """

    power_limit_mw: tuple[int, int] | None = None

    def nearest(self, power_limit_mw: int) -> int:
        """The power limit in the bounds that is nearest to this one."""
        if self.power_limit_mw is None:
            return power_limit_mw
        lowest, highest = self.power_limit_mw
        return min(max(power_limit_mw, lowest), highest)

    def refuse_present(self, power_limit_mw: int) -> str | None:
        """Say that the present power limit is outside of the bounds, None where it is in them, or has none."""
        if self.power_limit_mw is None:
            return None
        lowest, highest = self.power_limit_mw
        if lowest <= power_limit_mw <= highest:
            return None
        bounds = f"{watts(lowest)} to {watts(highest)}"
        return f"its power limit is {watts(power_limit_mw)}, outside of tune.power_limit_w, {bounds}"


@dataclass(frozen=True)
class GpuLayout:
    """The layout of the matched GPUs. origin: `FILE:LINE` of the entry, for messages.

    tuning: what is declared. bounds: of what is left to a controller; a declared setting has none.
    """

    match: GpuMatch
    layout: Layout
    origin: str = field(default="", compare=False)
    tuning: TuningLayout = TuningLayout()
    bounds: TuningBounds = TuningBounds()


class Encapsulation(StrEnum):
    """How hosts carry each other's packets (ovn-controller(8), ovn-encap-type)."""

    GENEVE = "geneve"
    VXLAN = "vxlan"

    @property
    def overhead(self) -> int:
        """Bytes that a tunnel takes from a packet of the hosts: inner Ethernet, tunnel, UDP and IPv4 headers.

        Geneve carries OVN's option of 8 bytes beside; RFC 8926, RFC 7348.
        """
        return 58 if self is Encapsulation.GENEVE else 50


@dataclass(frozen=True)
class NetworkLayout:
    """The host as one of OVN's chassis.

    southbound: OVN's southbound databases. tunnels: the network of the tunnels' own addresses, of which the host has
    one. chassis: the host's name in OVN. mtu: the packets that the network between the hosts carries.
    """

    southbound: tuple[str, ...]
    tunnels: str
    chassis: str
    encapsulation: Encapsulation = Encapsulation.GENEVE
    mtu: int = 1500

    @property
    def uses_tls(self) -> bool:
        """True if a database is reached over TLS."""
        return any(one.startswith("ssl:") for one in self.southbound)

    @property
    def guest_mtu(self) -> int:
        """The largest packet of a guest that fits a tunnel."""
        return self.mtu - self.encapsulation.overhead


@dataclass(frozen=True)
class TelemetryLayout:
    """The host writes its own readings for node_exporter. textfile: the folder; interval_s: between two readings."""

    textfile: str
    interval_s: int = 15


class FabricMode(StrEnum):
    """What NVIDIA's Fabric Manager sets the NVSwitches of a host up for (Fabric Manager user guide, FABRIC_MODE)."""

    BARE = "bare"
    SHARED = "shared"
    VGPU = "vgpu"

    @property
    def number(self) -> int:
        """FABRIC_MODE: 0 for the host itself or one VM with all GPUs, 1 for whole GPUs, 2 for vGPUs."""
        return list(FabricMode).index(self)

    @property
    def has_partitions(self) -> bool:
        """True if VMs share the fabric in partitions."""
        return self is not FabricMode.BARE


@dataclass(frozen=True)
class FabricLayout:
    """The NVSwitch fabric of a host."""

    mode: FabricMode


@dataclass(frozen=True)
class HostLayout:
    """One host's declared layout. A GPU that no entry matches is left alone.

    kernel_arguments: words that the running kernel's command line must hold. stop_services: full unit names, stopped
    while MIG modes and VFs change and started again. hugepages: (size in KiB, how many). uplinks: (network, interface
    of the host). origin: `FILE:LINE` of the variable; places: of its parts, by `network.KEY`, `uplinks.NETWORK`,
    `fabric.KEY`. network: None where OVN does not carry networks. telemetry: None where the host writes no readings
    itself. fabric: None where Fabric Manager is left as it is.
    """

    gpus: tuple[GpuLayout, ...] = ()
    kernel_arguments: tuple[str, ...] = ()
    stop_services: tuple[str, ...] = ()
    hugepages: tuple[tuple[int, int], ...] = ()
    uplinks: tuple[tuple[str, str], ...] = ()
    version: int = 1
    origin: str = field(default="", compare=False)
    network: NetworkLayout | None = None
    telemetry: TelemetryLayout | None = None
    fabric: FabricLayout | None = None
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def place_of(self, part: str) -> str:
        """`FILE:LINE` of a part, of the whole where nobody noted it."""
        return self.places.get(part, self.origin)
