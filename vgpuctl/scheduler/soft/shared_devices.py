# SPDX-License-Identifier: Apache-2.0
"""GPUs that several pods share by slots, memory and cores: what fits, and in which ways.

The rules are HAMi's (pkg/device/nvidia/device.go at 4707fb0), whose plugin carries the answer out. A way names a device
for each part of an ask; which way is best is the caller's question (soft_fleet.py beside this file).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from vgpuctl.scheduler.soft.host_state import WHOLE, GpuFree

WHOLE_CORES = 100


class Used(NamedTuple):
    """The part of a device that is given out: pods, memory in MiB, cores in percent."""

    slots: int = 0
    memory_mib: int = 0
    cores: int = 0

    def plus(self, other: "Used") -> "Used":
        """Both together."""
        return Used(self.slots + other.slots, self.memory_mib + other.memory_mib, self.cores + other.cores)


NOTHING = Used()


@dataclass(frozen=True)
class Device:
    """A GPU that is shared. memory_mib, cores: what may be given out. refusal: why no new pod may have it."""

    id: str
    slots: int
    memory_mib: int
    cores: int
    type: str
    numa: int = 0
    index: int = 0
    mode: str = ""
    refusal: str = ""


class DeviceOrder(StrEnum):
    """A pod's policy for the choice among a node's devices; hami.io/gpu-scheduler-policy."""

    BEST = ""
    BINPACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True)
class Ask:
    """The request of one container: a part of each of `count` different devices.

    memory_mib: None where `memory_percent` of each device is asked for. types, no_types: parts of type names, any case.
    """

    count: int
    memory_mib: int | None = None
    memory_percent: int = 100
    cores: int = 0
    types: tuple[str, ...] = ()
    no_types: tuple[str, ...] = ()
    ids: frozenset[str] = frozenset()
    no_ids: frozenset[str] = frozenset()
    one_numa: bool = False
    mode: str = ""

    def memory_of(self, device: Device) -> int:
        """MiB that it takes of this device."""
        if self.memory_mib is not None:
            return self.memory_mib
        return device.memory_mib * self.memory_percent // 100

    def may_have(self, device: Device) -> bool:
        """True if the device is one of those that will do, whatever is free of it."""
        kind = device.type.upper()
        if self.types and not any(one.upper() in kind for one in self.types):
            return False
        if any(one.upper() in kind for one in self.no_types) or device.id in self.no_ids:
            return False
        return (not self.ids or device.id in self.ids) and self.mode in ("", device.mode)

    @property
    def names_devices(self) -> bool:
        """True if equal devices are not equal to it."""
        return bool(self.ids or self.no_ids)

    def taken_of(self, device: Device) -> Used:
        """The amount that one part takes of this device."""
        return Used(1, self.memory_of(device), self.cores)


@dataclass
class SharedHost:
    """The devices of one node and what is given out of each, by id."""

    devices: tuple[Device, ...]
    used: dict[str, Used] = field(default_factory=dict)

    def free(self) -> list[GpuFree]:
        """Of each device the part that can still be given as compute in thousandths, and its free memory in MiB."""
        return [free_of(one, self.used.get(one.id, NOTHING)) for one in self.devices]

    def with_taken(self, taken: Mapping[str, Used]) -> "SharedHost":
        """The host after these parts are given out too."""
        used = dict(self.used)
        for device, part in taken.items():
            used[device] = used.get(device, NOTHING).plus(part)
        return SharedHost(self.devices, used)


def free_of(device: Device, used: Used) -> GpuFree:
    """The smaller free part of cores and memory, in thousandths of the device, and the free memory in MiB.

    Where either is used up, or the slots, nothing can be given.
    """
    if device.refusal or used.slots >= device.slots or not device.memory_mib:
        return (0, 0)
    cores = WHOLE * max(device.cores - used.cores, 0) // device.cores if device.cores else WHOLE
    memory = max(device.memory_mib - used.memory_mib, 0)
    share = min(cores, -(-WHOLE * memory // device.memory_mib))
    if used.slots and share == WHOLE:
        share -= 1
    return (share, memory)


def refusal_of(ask: Ask, device: Device, used: Used) -> str:
    """Why one part of the ask does not fit on the device; empty where it does."""
    if not ask.may_have(device):
        return "device not asked for"
    if device.refusal:
        return device.refusal
    if used.slots >= device.slots:
        return "no slot left"
    if used.memory_mib + ask.memory_of(device) > device.memory_mib:
        return "not enough gpumem"
    if used.cores + ask.cores > device.cores:
        return "not enough gpucores"
    if device.cores == WHOLE_CORES == ask.cores and used.slots:
        return "gpucores=100 needs an unused GPU"
    if device.cores and used.cores >= device.cores and not ask.cores:
        return "all gpucores are given out"
    return ""


def ways(ask: Ask, host: SharedHost) -> Iterator[tuple[Device, ...]]:
    """Different ways to give the ask, equal devices once; for several devices the tightest set, of one NUMA node first.

    Nothing where it does not fit.
    """
    fitting = [one for one in host.devices if not refusal_of(ask, one, host.used.get(one.id, NOTHING))]
    if len(fitting) < ask.count:
        return
    if ask.count == 1:
        seen = set()
        for one in fitting:
            used = host.used.get(one.id, NOTHING)
            key = (one.slots, one.memory_mib, one.cores, used)
            if key not in seen:
                seen.add(key)
                yield (one,)
        return

    def tightness(one: Device) -> tuple[GpuFree, int, str]:
        return free_of(one, host.used.get(one.id, NOTHING)), one.index, one.id

    by_numa: dict[int, list[Device]] = {}
    for one in sorted(fitting, key=tightness):
        by_numa.setdefault(one.numa, []).append(one)
    near = [group[: ask.count] for _, group in sorted(by_numa.items()) if len(group) >= ask.count]
    if near:
        yield tuple(min(near, key=lambda group: [tightness(one)[0] for one in group]))
    elif not ask.one_numa:
        yield tuple(sorted(fitting, key=tightness)[: ask.count])


def why_not(asks: Sequence[Ask], host: SharedHost) -> tuple[str, bool]:
    """Why a node without a way refuses, and whether it would even with nothing given out of its devices."""
    counts: dict[str, int] = {}
    for ask in asks:
        for one in host.devices:
            reason = refusal_of(ask, one, host.used.get(one.id, NOTHING))
            if reason:
                counts[reason] = counts.get(reason, 0) + 1
    text = ", ".join(f"{count}x {reason}" for reason, count in sorted(counts.items()))
    empty = SharedHost(host.devices)
    is_final = any(next(ways(ask, empty), None) is None for ask in asks)
    return text or "not enough devices at the same time", is_final
