# SPDX-License-Identifier: Apache-2.0
"""One GPU as a sharing kind sees it while a VM is placed: the facts, and everything that is taken on it."""

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts, VgpuType, VirtualFunction
from vgpuctl.agent.wire.vf_health import is_usable
from vgpuctl.model.host_constraints import NO_GPU_CONSTRAINTS, GpuConstraints
from vgpuctl.sharing.declared import UNDECLARED, Declared
from vgpuctl.sharing.fabric import OnFabric
from vgpuctl.sharing.offer import Refusal

BY_USE = attrgetter("last_use", "number")
"""Sorts VFs: used longest ago first, then by number."""


@dataclass(frozen=True)
class HeldVgpu:
    """One vGPU that counts on the GPU. seen: the host showed it, so its `creatable` already counts it.

    start: where it is expected to lie in mixed-size mode, of one that was not seen.
    """

    name: str | None
    framebuffer_mib: int | None
    seen: bool
    start: int | None = None


@dataclass(frozen=True)
class GpuState:
    """One GPU with everything that is taken on it.

    functions: VFs that carry or serve something, are promised, in quarantine, or could not be read.
    lease_holders: the VMs that hold a lease on this GPU. whole: the VM that holds the whole card. given: profiles
    given to the VM that is being placed. busy_percent: measured utilisation, 0 where nobody measured, with what later
    shares will use; it may be above 100.
    neighbours: workload class and profile of each vGPU, sorted; only where a policy predicts throughput.
    constraints: of the inventory, with the host's labels. declared: what its layout says of it. obstacle: why it
    cannot be handed out as a whole. closed: why it takes no new VM at all, whatever is free. fabric: its place on the
    NVSwitch fabric, None without one.
    """

    host: str
    facts: HostFacts
    gpu: Gpu
    board: catalog.Board | None
    vgpus: tuple[HeldVgpu, ...]
    functions: frozenset[str]
    lease_holders: tuple[str, ...]
    whole: str | None
    given: tuple[str, ...] = ()
    busy_percent: float = 0.0
    neighbours: tuple[tuple[str, str], ...] = ()
    constraints: GpuConstraints = NO_GPU_CONSTRAINTS
    declared: Declared = UNDECLARED
    obstacle: Refusal | None = None
    closed: Refusal | None = None
    fabric: OnFabric | None = None

    @property
    def title(self) -> str:
        """The model's name for people."""
        return self.gpu.name or (self.board.name if self.board else "GPU")

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """Its NUMA node, if that is known."""
        return () if self.gpu.numa_node is None else (self.gpu.numa_node,)

    @cached_property
    def usable_functions(self) -> tuple[VirtualFunction, ...]:
        """The healthy VFs that are not taken, least recently used first; each type of the GPU asks for them."""
        free = (one for one in self.gpu.vfs if one.address not in self.functions and is_usable(one))
        return tuple(sorted(free, key=BY_USE))


def framebuffer_of(offered: VgpuType, board: catalog.Board | None) -> int | None:
    """The framebuffer of a type: as the host says, else as the catalogue knows it."""
    if offered.framebuffer_mib is not None or board is None:
        return offered.framebuffer_mib
    known = catalog.type_by_name(board, catalog.short_name(offered.name))
    return known.fb_mib if known else None


def max_instances_of(offered: VgpuType, board: catalog.Board | None) -> int | None:
    """How many of a type an empty GPU takes: as the host says, else as the catalogue knows it."""
    if offered.max_instances is not None or board is None:
        return offered.max_instances
    known = catalog.type_by_name(board, catalog.short_name(offered.name))
    return known.max_instances if known else None
