# SPDX-License-Identifier: Apache-2.0
"""The constant parts of a simulated host: its cards, processors and versions, as `machine.json`."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpuctl_lab.card_links import NO_LINKS, CardLinks

NVIDIA = "10de"
MDEV, MDEV_VF, VF_PROFILE, VF, PASSTHROUGH = "mdev", "mdev-vf", "vf-profile", "vf", "passthrough"
_GROUPS_PER_CARD = 1000


@dataclass(frozen=True)
class VgpuType:
    """One vGPU type of a card. description: the text of mdev's `description` file.

    placement_size: what it takes in mixed-size mode, in GiB; placements: where it may begin there, in the card's
    memory or in that of its GPU instance. gi_profile: id of the GPU instances it needs, None for a time-sliced type;
    max_per_instance: how many of it one of those takes.
    """

    type_id: int
    full_name: str
    framebuffer_mib: int
    max_instances: int
    description: str
    placement_size: int = 1
    placements: tuple[int, ...] = ()
    gi_profile: int | None = None
    max_per_instance: int = 1


@dataclass(frozen=True)
class ComputeProfile:
    """A compute-instance profile: NVML's constant, which is its id too. slices, starts: of the GPU instance."""

    profile_id: int
    slices: int
    max_count: int
    starts: tuple[int, ...]


@dataclass(frozen=True)
class MigProfile:
    """A GPU-instance profile: id as `nvidia-smi mig -lgip` prints it, nvml: NVML's constant.

    slices: of compute; starts, size: memory slots. An instance's id is id_base + start / size.
    engines: sm, ce, dec, enc, jpeg, ofa.
    """

    profile_id: int
    nvml: int
    name: str
    slices: int
    memory_mib: int
    max_count: int
    starts: tuple[int, ...]
    size: int
    id_base: int
    engines: tuple[int, ...]
    computes: tuple[ComputeProfile, ...]


@dataclass(frozen=True)
class Mig:
    """The MIG properties of a card. needs_reset: a mode change waits while the card is used, and outlives a reboot."""

    memory_slots: int
    slices: int
    needs_reset: bool
    profiles: tuple[MigProfile, ...]

    def profile(self, profile_id: int) -> MigProfile | None:
        """The profile of an id."""
        return next((each for each in self.profiles if each.profile_id == profile_id), None)


@dataclass(frozen=True)
class Companion:
    """Another function of a card. driver: the one the kernel gives it."""

    address: str
    vendor: str
    device: str
    pci_class: str
    driver: str


DEFAULT_ORDER = "default"
"""What brings the kernel's own order back when it is written to `reset_method`."""


@dataclass(frozen=True)
class CardShape:
    """One card at a physical function. driver: the one the kernel gives it. interface: how it is shared.

    mig: None without MIG. mixes_sizes: it has mixed-size mode. power_w: what it may draw at most. reported_mib: the
    memory that NVML tells. root: its PCI root complex; bridges: above it, from the root port down. links: its NVLinks.
    """

    address: str
    number: int
    interface: str
    model: str
    vendor: str
    device: str
    subsystem: str
    pci_class: str
    driver: str
    uuid: str
    numa_node: int
    memory_mib: int
    total_vfs: int
    vf_offset: int
    vf_stride: int
    vf_device: str
    bars_bytes: tuple[int, ...]
    reset_methods: str
    types: tuple[VgpuType, ...] = ()
    companions: tuple[Companion, ...] = ()
    mig: Mig | None = None
    mixes_sizes: bool = False
    power_w: int = 0
    reported_mib: int = 0
    root: str = "pci0000:00"
    bridges: tuple[str, ...] = ()
    links: CardLinks = NO_LINKS

    def folder(self, function: str) -> str:
        """The real folder of one of the card's functions or VFs in sysfs."""
        return "/".join(("/sys/devices", self.root, *self.bridges, function))

    def default_resets(self, function: str) -> list[str]:
        """The kernel's own order of resets. A card with several functions cannot be reset by its bus."""
        known = (self.reset_methods if function == self.address else "flr").split()
        return [one for one in known if one != "bus" or not self.companions]

    def type_of(self, type_id: int) -> VgpuType | None:
        """The type of a decimal id, None when the card has no such type."""
        return next((each for each in self.types if each.type_id == type_id), None)

    def vf_address(self, number: int) -> str:
        """The address of a VF: routing id of the PF plus offset and strides, with carry into the bus number."""
        domain, bus, rest = self.address.split(":")
        slot, function = rest.split(".")
        routing = (int(bus, 16) << 8) + (int(slot, 16) << 3) + int(function)
        routing += self.vf_offset + number * self.vf_stride
        return f"{domain}:{routing >> 8:02x}:{routing >> 3 & 0x1F:02x}.{routing & 7}"

    def group(self, vf_number: int | None = None) -> int:
        """The IOMMU group of the card's own functions, or of one VF."""
        first = (self.number + 1) * _GROUPS_PER_CARD
        return first if vf_number is None else first + 1 + vf_number


@dataclass(frozen=True)
class Shape:
    """A whole host. versions: what programs print after --version. enabled_vfs: count by card once it is set up.

    distribution: whose names its services have (distribution.py).
    removal_delay_s: how long after a VM's end the driver still refuses to take its vGPU away.
    fabric_mode: of Fabric Manager when the host is first switched on; then its configuration tells.
    """

    hostname: str
    cpus: int
    memory_mib: int
    kernel: str
    operating_system: str
    nvidia_driver: str
    versions: dict[str, str]
    cards: tuple[CardShape, ...]
    enabled_vfs: dict[str, int]
    removal_delay_s: float = 0.0
    distribution: str = "debian"
    fabric_mode: int = 0

    @property
    def has_fabric_manager(self) -> bool:
        """True if cards of it are joined by NVSwitches."""
        return any(card.links.has_switch for card in self.cards)

    @property
    def numa_nodes(self) -> int:
        """How many NUMA nodes it has: as many as its cards are at."""
        return max((card.numa_node for card in self.cards), default=0) + 1


def write(shape: Shape, path: Path) -> None:
    """Write a host's shape."""
    path.write_text(json.dumps(dataclasses.asdict(shape)) + "\n")


def read(path: Path) -> Shape:
    """Read a host's shape."""
    fields: dict[str, Any] = json.loads(path.read_text())
    return Shape(**{**fields, "cards": tuple(_card(card) for card in fields["cards"])})


def _card(card: dict[str, Any]) -> CardShape:
    mig = card.get("mig")
    return CardShape(
        **{
            **card,
            "bars_bytes": tuple(card["bars_bytes"]),
            "types": tuple(VgpuType(**{**each, "placements": tuple(each["placements"])}) for each in card["types"]),
            "companions": tuple(Companion(**each) for each in card["companions"]),
            "mig": Mig(**{**mig, "profiles": tuple(_profile(each) for each in mig["profiles"])}) if mig else None,
            "bridges": tuple(card["bridges"]),
            "links": CardLinks(**{**card["links"], "peers": tuple(card["links"]["peers"])}),
        }
    )


def _profile(profile: dict[str, Any]) -> MigProfile:
    computes = (ComputeProfile(**{**each, "starts": tuple(each["starts"])}) for each in profile["computes"])
    lists = {"starts": tuple(profile["starts"]), "engines": tuple(profile["engines"]), "computes": tuple(computes)}
    return MigProfile(**{**profile, **lists})
