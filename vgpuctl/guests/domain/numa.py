# SPDX-License-Identifier: Apache-2.0
"""The host CPUs and NUMA nodes that libvirt keeps a guest on, and the NUMA nodes that the guest itself sees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.model.numa import GuestNodes

CpusByNode = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class CellView:
    """One NUMA node of the guest. vcpus: as a cpuset. node: the host's node that it is on."""

    id: int
    vcpus: str
    memory_mib: int
    node: int


@dataclass(frozen=True)
class NumaView:
    """vcpu_cpus: the host CPUs of each vCPU, as cpusets. nodes: the host's nodes, as a nodeset. sockets: of the guest.

    cells: empty for a guest without NUMA nodes of its own. cells_text: all of them as a nodeset.
    """

    nodes: str
    vcpu_cpus: tuple[str, ...]
    emulator_cpus: str
    cells: tuple[CellView, ...] = ()
    cells_text: str = ""
    sockets: int = 1


def numa_view(nodes: GuestNodes | None, floating: CpusByNode) -> NumaView | None:
    """Where a guest is kept; None where that is not recorded, and on a host with one node.

    floating: by node, the CPUs that no vCPU is pinned to, over which the vCPUs of others float.
    """
    if nodes is None or not nodes.cells:
        return None
    vcpu_cpus = vcpus_on(nodes, floating)
    emulator = {cpu for cpus in vcpu_cpus for cpu in cpus}
    cells = _cells(nodes) if nodes.has_vnuma else ()
    has_equal_cells = len({cell.vcpus for cell in nodes.cells}) == 1
    return NumaView(
        nodes=cpuset([cell.node for cell in nodes.cells]),
        vcpu_cpus=tuple(cpuset(cpus) for cpus in vcpu_cpus),
        emulator_cpus=cpuset(emulator),
        cells=cells,
        cells_text=cpuset(range(len(cells))) if cells else "",
        sockets=len(cells) if cells and has_equal_cells else 1,
    )


def vcpus_on(nodes: GuestNodes, floating: CpusByNode) -> list[tuple[int, ...]]:
    """The host CPUs that each vCPU may run on."""
    found: list[tuple[int, ...]] = []
    for cell in nodes.cells:
        if cell.cpus:
            found.extend((cpu,) for cpu in cell.cpus)
        else:
            found.extend([tuple(floating.get(cell.node, ()))] * cell.vcpus)
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


def _cells(nodes: GuestNodes) -> tuple[CellView, ...]:
    cells, first = [], 0
    for index, cell in enumerate(nodes.cells):
        cells.append(CellView(index, cpuset(range(first, first + cell.vcpus)), cell.memory_mib, cell.node))
        first += cell.vcpus
    return tuple(cells)
