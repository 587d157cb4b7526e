# SPDX-License-Identifier: Apache-2.0
"""The parts of a host's NUMA nodes that one VM has, and everything a guest takes of its host."""

from dataclasses import dataclass
from typing import NamedTuple

from vgpuctl.model.guest_memory import NO_MEMORY, GuestMemory
from vgpuctl.model.units import format_mib


class NumaCell(NamedTuple):
    """The part of one NUMA node of the host that a VM has.

    cpus: the host's CPUs that its vCPUs are pinned to, one for each in order; empty where they float.
    """

    numa_node: int
    vcpus: int
    memory_mib: int
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class GuestNuma:
    """Where a VM's vCPUs and memory are.

    has_vnuma: the guest sees each cell as a NUMA node of its own, in this order. gpu_cells: for each of its GPUs the
    cell whose PCIe expander bus it sits behind; empty without vNUMA. Neither changes while the VM exists.
    """

    cells: tuple[NumaCell, ...]
    has_vnuma: bool = False
    gpu_cells: tuple[int, ...] = ()

    def __str__(self) -> str:
        """The cells in words: `node 0: 16 vCPUs, 200 GiB`."""
        return "; ".join(
            f"node {one.numa_node}: {one.vcpus} vCPU{'s' if one.vcpus != 1 else ''}, {format_mib(one.memory_mib)}"
            for one in self.cells
        )

    @property
    def is_pinned(self) -> bool:
        """True if its vCPUs have CPUs of their own."""
        return any(cell.cpus for cell in self.cells)


FLAT = GuestNuma(())
"""What the guest of a VM from before vNUMA has seen."""


class Tuning(NamedTuple):
    """Where libvirt keeps a guest that somebody else defined.

    pins: the host's CPUs of each vCPU that has some of its own. cpus: of the other vCPUs, empty for any.
    memory: sets of the host's NUMA nodes, and how much memory in MiB is bound to each set.
    """

    pins: tuple[frozenset[int], ...] = ()
    cpus: frozenset[int] = frozenset()
    memory: tuple[tuple[frozenset[int], int], ...] = ()


NO_TUNING = Tuning()


class Footprint(NamedTuple):
    """The part of its host that a running guest takes.

    numa: None where it was not recorded, as of a VM of an older vgpuctl. gpu_numa_nodes: those of its GPUs, by which
    what is not recorded is counted.
    """

    memory: GuestMemory = NO_MEMORY
    vcpus: int = 0
    numa: GuestNuma | None = None
    gpu_numa_nodes: tuple[int, ...] = ()

    @property
    def alike(self) -> object:
        """Equal for guests that free the same, on whichever CPUs."""
        cells = () if self.numa is None else self.numa.cells
        return (self.memory, self.vcpus, self.gpu_numa_nodes, tuple((*cell[:3], len(cell.cpus)) for cell in cells))


NO_FOOTPRINT = Footprint()
