# SPDX-License-Identifier: Apache-2.0
"""How near the GPUs of one host are to each other: by NVLink, NVSwitch, PCIe switches, root complexes and NUMA nodes.

Read from facts; the catalogue and the inventory's label `nvlink` fill in and override. Placement, `inspect-host`, the
map and the pages ask here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import NamedTuple

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, GpuTopology
from vgpuctl.model.constraints import Label
from vgpuctl.model.host_constraints import NO_HOST_CONSTRAINTS, HostConstraints
from vgpuctl.sharing.gate import constraints_of
from vgpuctl.sharing.refusals import numa_node

NVLINK_LABEL = "nvlink"
"""Key of the label that the GPUs at one NVLink bridge share; a GPU that has one is joined by labels alone."""

NO_LABELS: frozenset[Label] = frozenset()
_NVSWITCH = "nvswitch"
_NOTHING_READ = GpuTopology()


class Nearness(StrEnum):
    """The shortest connection of two GPUs of a host, the nearest first."""

    SAME = "same"
    NVLINK = "nvlink"
    FABRIC = "fabric"
    SWITCH = "switch"
    BRIDGES = "bridges"
    ROOT = "root"
    NUMA = "numa"
    FAR = "far"

    @property
    def meaning(self) -> str:
        """The same for people."""
        return _MEANINGS[self]

    @property
    def steps(self) -> int:
        """The distance, 0 for the same GPU; NVLink is as near by a bridge as by NVSwitch."""
        return _STEPS[self]

    def is_nvlink(self) -> bool:
        """True if NVLink joins the two."""
        return self in (Nearness.NVLINK, Nearness.FABRIC)


_MEANINGS = {
    Nearness.SAME: "the same GPU",
    Nearness.NVLINK: "NVLink between the two GPUs",
    Nearness.FABRIC: "NVLink through NVSwitch",
    Nearness.SWITCH: "one PCIe switch",
    Nearness.BRIDGES: "several PCIe bridges below one root port",
    Nearness.ROOT: "one PCIe root complex",
    Nearness.NUMA: "one NUMA node",
    Nearness.FAR: "different NUMA nodes, or nothing is known",
}
_STEPS = {near: max(0, number - (number > 1)) for number, near in enumerate(Nearness)}
FARTHEST = max(_STEPS.values())
"""The distance of two GPUs in different NUMA nodes."""


class GpuPlace(NamedTuple):
    """One GPU as nearness sees it. labels: those with the key `nvlink`."""

    gpu: Gpu
    board: catalog.Board | None
    labels: frozenset[Label] = NO_LABELS


@dataclass(frozen=True)
class SwitchPart:
    """GPUs behind one PCIe switch. upstream: the address of its upstream port, None for GPUs without a switch."""

    upstream: str | None
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class RootPart:
    """One PCIe root complex, `pci0000:40`; None for GPUs whose root is not known."""

    name: str | None
    switches: tuple[SwitchPart, ...]


@dataclass(frozen=True)
class CellPart:
    """One NUMA node with its root complexes; None for GPUs whose node is not known."""

    number: int | None
    roots: tuple[RootPart, ...]


@dataclass(frozen=True)
class HostTopology:
    """The GPUs of one host by address: how near each pair is, what NVLink joins, and the PCIe tree for drawing.

    matrix: a row per GPU, in the order of `gpus`. links: active NVLinks between the GPUs of a pair, by (address,
    address), both ways. domains: GPUs that NVLink joins, directly or through others, two or more in each.
    """

    gpus: tuple[str, ...]
    matrix: tuple[tuple[Nearness, ...], ...]
    links: Mapping[tuple[str, str], int]
    domains: tuple[tuple[str, ...], ...]
    cells: tuple[CellPart, ...]

    def nearness(self, one: str, other: str) -> Nearness:
        """How near two GPUs are. Raises ValueError for an address that is not there."""
        return self.matrix[self.gpus.index(one)][self.gpus.index(other)]

    def domain_of(self, gpu: str) -> tuple[str, ...]:
        """The GPUs that NVLink joins with this one, itself among them; none without NVLink."""
        return next((domain for domain in self.domains if gpu in domain), ())

    def used(self) -> tuple[Nearness, ...]:
        """The kinds of connection between different GPUs of the host, the nearest first."""
        there = {near for row in self.matrix for near in row} - {Nearness.SAME}
        return tuple(near for near in Nearness if near in there)


def topology_of(gpus: Iterable[Gpu], constraints: HostConstraints = NO_HOST_CONSTRAINTS) -> HostTopology:
    """Work out the topology of one host from its facts. constraints: of the inventory, for the label `nvlink`."""
    placed = [_place(gpu, constraints) for gpu in sorted(gpus, key=lambda one: one.address)]
    matrix = tuple(tuple(nearness(one, other) for other in placed) for one in placed)
    links = {}
    for one, other in combinations(placed, 2):
        number = direct_links(one.gpu, other.gpu)
        if number:
            links[one.gpu.address, other.gpu.address] = links[other.gpu.address, one.gpu.address] = number
    addresses = tuple(one.gpu.address for one in placed)
    return HostTopology(addresses, matrix, links, _domains(addresses, matrix), _tree([one.gpu for one in placed]))


def _place(gpu: Gpu, constraints: HostConstraints) -> GpuPlace:
    labels = NO_LABELS if constraints is NO_HOST_CONSTRAINTS else constraints_of(gpu, constraints).labels
    return GpuPlace(gpu, catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id), nvlink_labels(labels))


def nvlink_labels(labels: frozenset[Label]) -> frozenset[Label]:
    """The NVLink bridges that the inventory says a GPU is at."""
    return frozenset(label for label in labels if label[0] == NVLINK_LABEL) if labels else NO_LABELS


def nearness(one: GpuPlace, other: GpuPlace) -> Nearness:
    """How near two GPUs of one host are; the same either way round."""
    if one.gpu.address == other.gpu.address:
        return Nearness.SAME
    if one.labels or other.labels:
        if one.labels & other.labels:
            return Nearness.NVLINK
    elif direct_links(one.gpu, other.gpu):
        return Nearness.NVLINK
    elif _shares_fabric(one, other):
        return Nearness.FABRIC
    return _by_pcie(one.gpu, other.gpu)


def direct_links(one: Gpu, other: Gpu) -> int:
    """How many active NVLinks lead from one GPU to the other; one that only the peer shows counts too."""
    return max(_links_to(one, other.address), _links_to(other, one.address))


def _links_to(gpu: Gpu, address: str) -> int:
    links = (gpu.topology or _NOTHING_READ).nvlinks
    return sum(len(one.numbers) for one in links if one.is_active and one.peer == address) if links else 0


def _shares_fabric(one: GpuPlace, other: GpuPlace) -> bool:
    if not (_has_nvswitch(one) and _has_nvswitch(other)):
        return False
    fabrics = [(placed.gpu.topology or _NOTHING_READ).fabric for placed in (one, other)]
    known = {(fabric.cluster_uuid, fabric.clique) for fabric in fabrics if fabric and fabric.cluster_uuid}
    return len(known) < 2


def _has_nvswitch(placed: GpuPlace) -> bool:
    """True if a link leads to an NVSwitch; the catalogue answers where the driver does not tell."""
    board = placed.board
    by_catalogue = board is not None and board.nvlink is not None and board.nvlink.topology == _NVSWITCH
    links = (placed.gpu.topology or _NOTHING_READ).nvlinks
    if links is None:
        return by_catalogue
    return any(
        one.is_active and (one.peer_kind == "switch" or (by_catalogue and one.peer_kind is None and one.peer is None))
        for one in links
    )


def _by_pcie(one: Gpu, other: Gpu) -> Nearness:
    """The nearest common ancestor of two functions, in the classes of `nvidia-smi topo`: PIX, PXB, PHB, NODE, SYS."""
    here, there = one.topology or _NOTHING_READ, other.topology or _NOTHING_READ
    if here.root is not None and here.root == there.root:
        common = 0
        for above, beside in zip(here.bridges, there.bridges, strict=False):
            if above != beside:
                break
            common += 1
        if common:
            is_one_switch = max(len(here.bridges), len(there.bridges)) - common <= 1
            return Nearness.SWITCH if is_one_switch else Nearness.BRIDGES
        return Nearness.ROOT
    node = numa_node(one)
    return Nearness.NUMA if node is not None and node == numa_node(other) else Nearness.FAR


def _domains(gpus: Sequence[str], matrix: Sequence[Sequence[Nearness]]) -> tuple[tuple[str, ...], ...]:
    """The connected components of the pairs that NVLink joins."""
    domain_of = list(range(len(gpus)))
    for one, other in combinations(range(len(gpus)), 2):
        if matrix[one][other].is_nvlink():
            kept, joined = sorted((domain_of[one], domain_of[other]))
            domain_of = [kept if number == joined else number for number in domain_of]
    members: dict[int, list[str]] = {}
    for gpu, number in zip(gpus, domain_of, strict=True):
        members.setdefault(number, []).append(gpu)
    return tuple(tuple(domain) for domain in members.values() if len(domain) > 1)


def _tree(gpus: Sequence[Gpu]) -> tuple[CellPart, ...]:
    """The GPUs by NUMA node, root complex and switch; unknown ones come last."""
    tree: dict[int | None, dict[str | None, dict[str | None, list[str]]]] = {}
    for gpu in gpus:
        topology = gpu.topology or _NOTHING_READ
        switches = tree.setdefault(gpu.numa_node, {}).setdefault(topology.root, {})
        switches.setdefault(_switch_of(topology), []).append(gpu.address)
    return tuple(
        CellPart(
            number,
            tuple(
                RootPart(
                    name,
                    tuple(
                        SwitchPart(upstream, tuple(there))
                        for upstream, there in sorted(switches.items(), key=lambda one: (one[0] is None, one[0] or ""))
                    ),
                )
                for name, switches in sorted(roots.items(), key=lambda one: (one[0] is None, one[0] or ""))
            ),
        )
        for number, roots in sorted(tree.items(), key=lambda one: (one[0] is None, one[0] or 0))
    )


def _switch_of(topology: GpuTopology) -> str | None:
    """The upstream port of the switch that a GPU is behind: its downstream port and a root port are around it."""
    return topology.bridges[-2] if len(topology.bridges) > 2 else None
