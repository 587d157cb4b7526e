# SPDX-License-Identifier: Apache-2.0
"""The host CPUs and NUMA nodes that libvirt keeps a guest on, and the NUMA nodes that the guest itself sees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.model.numa import GuestNuma

CpusByCell = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class CellView:
    """One NUMA node of the guest. vcpus: as a cpuset. host_cell: the NUMA node of the host that it is on."""

    id: int
    vcpus: str
    memory_mib: int
    host_cell: int


@dataclass(frozen=True)
class NumaView:
    """vcpu_cpus: the host CPUs of each vCPU, as cpusets. host_cells: the host's NUMA nodes (nodeset).

    cells: empty for a guest without NUMA nodes of its own. cells_text: all of them as a nodeset. sockets: of the guest.
    """

    host_cells: str
    vcpu_cpus: tuple[str, ...]
    emulator_cpus: str
    cells: tuple[CellView, ...] = ()
    cells_text: str = ""
    sockets: int = 1


def numa_view(numa: GuestNuma | None, floating: CpusByCell) -> NumaView | None:
    """Where a guest is kept; None where that is not recorded, and on a host with one NUMA node.

    floating: by cell, the CPUs that no vCPU is pinned to, over which the vCPUs of others float.
    """
    if numa is None or not numa.cells:
        return None
    vcpu_cpus = vcpus_on(numa, floating)
    emulator = {cpu for cpus in vcpu_cpus for cpu in cpus}
    cells = _cells(numa) if numa.has_vnuma else ()
    has_equal_cells = len({cell.vcpus for cell in numa.cells}) == 1
    return NumaView(
        host_cells=cpuset([cell.numa_node for cell in numa.cells]),
        vcpu_cpus=tuple(cpuset(cpus) for cpus in vcpu_cpus),
        emulator_cpus=cpuset(emulator),
        cells=cells,
        cells_text=cpuset(range(len(cells))) if cells else "",
        sockets=len(cells) if cells and has_equal_cells else 1,
    )


def vcpus_on(numa: GuestNuma, floating: CpusByCell) -> list[tuple[int, ...]]:
    """The host CPUs that each vCPU may run on."""
    found: list[tuple[int, ...]] = []
    for cell in numa.cells:
        if cell.cpus:
            found.extend((cpu,) for cpu in cell.cpus)
        else:
            found.extend([tuple(floating.get(cell.numa_node, ()))] * cell.vcpus)
    return found


def cpuset(numbers: "Sequence[int] | set[int] | range") -> str:
    """Write numbers as libvirt and the kernel do: `0-3,8`."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _cells(numa: GuestNuma) -> tuple[CellView, ...]:
    cells, first = [], 0
    for index, cell in enumerate(numa.cells):
        cells.append(CellView(index, cpuset(range(first, first + cell.vcpus)), cell.memory_mib, cell.numa_node))
        first += cell.vcpus
    return tuple(cells)
