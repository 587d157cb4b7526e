# SPDX-License-Identifier: Apache-2.0
"""The cards of an emulated host as its tests see them: the table that the module was given, and the files of a card."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DEVICES = "/sys/bus/pci/devices"
SRIOV_MANAGE = "/usr/lib/nvidia/sriov-manage"
UUIDS = [f"c73f1fa6-489e-4834-9476-d70dabd98c{number:02d}" for number in range(40, 80)]
REMOVAL_DELAY = "/sys/module/vgpulab/parameters/removal_delay_ms"
# Bits of /proc/sys/kernel/tainted: the kernel died or oopsed, it warned.
_UNSOUND = 1 << 7 | 1 << 9

Do = Callable[..., list[Any]]


@dataclass(frozen=True)
class VgpuType:
    id: int
    framebuffer_mib: int
    max_instances: int
    name: str
    vdev: str


@dataclass(frozen=True)
class Card:
    """One line `card` of /proc/vgpulab/cards with its types."""

    address: str
    keys: dict[str, str]
    types: list[VgpuType] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"{DEVICES}/{self.address}"

    @property
    def total_vfs(self) -> int:
        return int(self.keys["vfs"])

    def function(self, number: int) -> str:
        """The address of a VF; the emulated cards have SR-IOV offset and stride 1."""
        return f"{self.address[:8]}{(number + 1) >> 3:02x}.{(number + 1) & 7}"

    def one_type(self, *, max_instances: int) -> VgpuType:
        return next(one for one in self.types if one.max_instances == max_instances)

    def same_size(self, wanted: VgpuType) -> list[int]:
        return [one.id for one in self.types if one.framebuffer_mib == wanted.framebuffer_mib]

    def other_size(self, wanted: VgpuType) -> VgpuType:
        return next(one for one in self.types if one.framebuffer_mib != wanted.framebuffer_mib)


def read_table(text: str) -> dict[str, Card]:
    """The first card of each interface."""
    cards: dict[str, Card] = {}
    last = None
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        words, _, name = rest.partition(" name=")
        first, *pairs = words.split()
        keys = dict(pair.split("=", 1) for pair in pairs) | {"name": name}
        if kind == "card":
            last = Card(first, keys)
            cards.setdefault(keys["interface"], last)
        elif kind == "type" and last:
            last.types.append(
                VgpuType(int(first), int(keys["framebuffer"]), int(keys["max"]), name, keys.get("vdev", ""))
            )
    for card in cards.values():
        card.types.sort(key=lambda one: one.id)
    return cards


def current_type(card: Card, number: int) -> str:
    return f"{DEVICES}/{card.function(number)}/nvidia/current_vgpu_type"


def create_path(function: str, wanted: VgpuType) -> str:
    return f"/sys/class/mdev_bus/{function}/mdev_supported_types/nvidia-{wanted.id}/create"


def mdev_path(uuid: str) -> str:
    return f"/sys/bus/mdev/devices/{uuid}"


def refusals(log: list[str]) -> list[str]:
    return [line for line in log if line.startswith(("NVRM: Failed to", "vGPU creation failed"))]


def warnings_of(log: str) -> list[str]:
    """Each warning and each death of the kernel in the text of `dmesg`, without its list of loaded modules."""
    found: list[list[str]] = []
    is_inside = False
    for line in log.splitlines():
        if not is_inside and re.search(r"\[ cut here \]|BUG: (?!soft lockup)|Oops:", line):
            found.append([])
            is_inside = True
        if is_inside and "Modules linked in:" not in line:
            found[-1].append(line)
        is_inside &= "[ end trace" not in line
    return ["\n".join(lines) for lines in found]


def complaints(do: Do) -> list[str]:
    """Why the host's kernel is not sound: what it warned of, or died of."""
    taint, (_, log) = do(["read", "/proc/sys/kernel/tainted"], ["program", "/usr/bin/dmesg"])
    if not int(taint) & _UNSOUND:
        return []
    return warnings_of(log) or ["the kernel is tainted, and its log has forgotten by what"]
