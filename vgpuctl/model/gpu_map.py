# SPDX-License-Identifier: Apache-2.0
"""The map of a GPU: its memory from end to end, with what is taken, free or closed. Terminal and pages draw it.

scheduler/gpu_map.py makes it. Sizes are MiB; the segments follow each other without gaps.
"""

from dataclasses import dataclass
from enum import StrEnum


class SegmentKind(StrEnum):
    """The kind of a part of a GPU's memory.

    share: a VM of the store has it. foreign: it is in use and not in the store, or the host's own. free: a VM can have
    it now. needs-instance: free once a MIG instance is created there. unusable: free, and no profile fits. closed:
    free, and the GPU or its host takes no VM.
    """

    SHARE = "share"
    FOREIGN = "foreign"
    FREE = "free"
    NEEDS_INSTANCE = "needs-instance"
    UNUSABLE = "unusable"
    CLOSED = "closed"

    def is_free(self) -> bool:
        """True if nobody uses it."""
        return self not in (SegmentKind.SHARE, SegmentKind.FOREIGN)

    @property
    def text(self) -> str:
        """The kind in a few words, for legends."""
        return _TEXTS[self]


_TEXTS = {
    SegmentKind.SHARE: "share of a VM",
    SegmentKind.FOREIGN: "in use, not in the store",
    SegmentKind.FREE: "free",
    SegmentKind.NEEDS_INSTANCE: "free, needs a MIG instance",
    SegmentKind.UNUSABLE: "free, no profile fits",
    SegmentKind.CLOSED: "free, but closed",
}


class MapMode(StrEnum):
    """How a GPU is handed out at this moment."""

    WHOLE = "whole card"
    EQUAL = "equal-size vGPUs"
    MIXED = "mixed-size vGPUs"
    MIG = "MIG"
    VFS = "VFs"
    NONE = "not shared"


@dataclass(frozen=True)
class Segment:
    """A part of a GPU's memory. profile, tenant, vm, device, lease_state: of a share, None where not known.

    instance: the id of the MIG instance that it lies in.
    """

    kind: SegmentKind
    start_mib: int
    size_mib: int
    profile: str | None = None
    tenant: str | None = None
    vm: str | None = None
    device: str | None = None
    lease_state: str | None = None
    instance: int | None = None


@dataclass(frozen=True)
class MapInstance:
    """A MIG GPU instance. start, size: in memory slots."""

    id: int
    profile: str
    start: int
    size: int


@dataclass(frozen=True)
class Creatable:
    """A share that the GPU can give now. count: how many beside each other, without any other kind of share."""

    profile: str
    size_mib: int
    count: int


@dataclass(frozen=True)
class Closed:
    """Why a GPU takes no VM whatever is free. code: as refusals have it, such as `gpu-quarantine`."""

    code: str
    reason: str
    remedy: str | None = None


@dataclass(frozen=True)
class ActivePartition:
    """A partition of the NVSwitch fabric that is active. vm: TENANT/NAME that has it; None for nobody in the store."""

    number: int
    vm: str | None


@dataclass(frozen=True)
class GpuMap:
    """One GPU. module: its number on a baseboard with NVSwitches; partition: the active one with this GPU.

    memory_mib: what the segments add up to. slots: memory slots of MIG, None without. creatable: the largest first;
    when it is empty, why_none says why. closed_vfs: the reasons of single VFs, by address. unplaced: shares for which
    the drawing had no room, because the facts disagree with the store. is_exact: True if places in the memory are the
    real ones; else the shares are drawn one after another.
    """

    host: str
    gpu: str
    uuid: str | None
    board: str
    numa_node: int | None
    mode: MapMode
    memory_mib: int
    segments: tuple[Segment, ...]
    slots: int | None = None
    instances: tuple[MapInstance, ...] = ()
    creatable: tuple[Creatable, ...] = ()
    why_none: str | None = None
    closed: Closed | None = None
    closed_vfs: tuple[tuple[str, str], ...] = ()
    unplaced: tuple[Segment, ...] = ()
    is_exact: bool = False
    module: int | None = None
    partition: ActivePartition | None = None

    @property
    def on_fabric(self) -> str | None:
        """Its place on the NVSwitch fabric in words, None without one."""
        if self.module is None or self.partition is None:
            return None if self.module is None else f"module {self.module}"
        return f"module {self.module}, partition {self.partition.number} active for {self.partition.vm or 'no VM'}"

    @property
    def largest(self) -> Creatable | None:
        """The largest share that can still be created."""
        return self.creatable[0] if self.creatable else None

    def size_of(self, *kinds: SegmentKind) -> int:
        """Memory in MiB of these kinds of segments."""
        return sum(one.size_mib for one in self.segments if one.kind in kinds)

    @property
    def free_mib(self) -> int:
        """Memory that nobody uses."""
        return sum(one.size_mib for one in self.segments if one.kind.is_free())
