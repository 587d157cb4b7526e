# SPDX-License-Identifier: Apache-2.0
"""The guest's PCI buses: which root port each device sits behind, and whose NUMA node that port belongs to.

Bus numbers follow the order of the root ports, so the ports of disk, network, entropy and channel are always there: a
GPU keeps its address in the guest when a disk comes or goes (Windows ties driver and licence to it). GPUs follow, one
port each. In a guest without NUMA nodes their ports are on the root bus, eight to a slot. In a guest with NUMA nodes
each node has an expander bus, and a GPU's port is on the bus of its node.

What a guest has beside these, a USB controller for example, has a port each after those of the GPUs, on the root bus.
"""

from collections import Counter
from dataclasses import dataclass

from vgpuctl.model.numa import GuestNodes

DISK_BUS = 1
NETWORK_BUS = 2
ENTROPY_BUS = 3
CHANNEL_BUS = 4
FIRST_GPU_BUS = 5
_BASE_SLOT = 2
_FIRST_GPU_SLOT = 3
_FIRST_EXPANDER_SLOT = 8
_FIRST_FURTHER_SLOT = 0x10

# The buses behind an expander have the numbers after its own (libvirt, formatdomain, "busNr"). 8 expanders with up to
# 27 ports each fill the numbers from 32 to 255; those below are for the ports of the root bus.
_FIRST_EXPANDER_NUMBER = 32
_NUMBERS_PER_EXPANDER = 28


@dataclass(frozen=True)
class ExpanderBusView:
    """One pcie-expander-bus. index: its controller index. node: the guest's NUMA node. number: its bus in the guest."""

    index: int
    slot: int
    number: int
    node: int


@dataclass(frozen=True)
class RootPortView:
    """One pcie-root-port: `index` is its controller index and libvirt's bus behind it; `bus` the one it sits on."""

    index: int
    bus: int
    slot: int
    function: int
    multifunction: bool


def expander_buses(nodes: GuestNodes | None) -> tuple[ExpanderBusView, ...]:
    """One for each NUMA node of the guest, if it has any."""
    if nodes is None or not nodes.has_vnuma:
        return ()
    return tuple(
        ExpanderBusView(
            index=FIRST_GPU_BUS + cell,
            slot=_FIRST_EXPANDER_SLOT + cell,
            number=_FIRST_EXPANDER_NUMBER + cell * _NUMBERS_PER_EXPANDER,
            node=cell,
        )
        for cell in range(len(nodes.cells))
    )


def first_gpu_bus(nodes: GuestNodes | None) -> int:
    """Controller index of the first GPU's port: libvirt wants a bus before what sits on it."""
    return FIRST_GPU_BUS + len(expander_buses(nodes))


def first_further_bus(gpu_count: int, nodes: GuestNodes | None) -> int:
    """Controller index of the first port after those of the GPUs."""
    return first_gpu_bus(nodes) + gpu_count


def root_ports(gpu_count: int, nodes: GuestNodes | None, further: int = 0) -> tuple[RootPortView, ...]:
    """The ports of the base devices, then those of the GPUs. further: number of ports after them."""
    base = [
        RootPortView(index=bus, bus=0, slot=_BASE_SLOT, function=function, multifunction=function == 0)
        for function, bus in enumerate((DISK_BUS, NETWORK_BUS, ENTROPY_BUS, CHANNEL_BUS))
    ]
    expanders, first = expander_buses(nodes), first_gpu_bus(nodes)
    used: Counter[int] = Counter()
    for number in range(gpu_count):
        if expanders and nodes is not None:
            expander = expanders[nodes.gpu_cells[number] if number < len(nodes.gpu_cells) else 0]
            base.append(RootPortView(first + number, expander.index, used[expander.index], 0, multifunction=False))
            used[expander.index] += 1
            continue
        slot, function = _FIRST_GPU_SLOT + number // 8, number % 8
        is_first_of_several = function == 0 and number + 1 < gpu_count
        base.append(RootPortView(first + number, 0, slot, function, is_first_of_several))
    after = first_further_bus(gpu_count, nodes)
    for number in range(further):
        slot, function = _FIRST_FURTHER_SLOT + number // 8, number % 8
        is_first_of_several = function == 0 and number + 1 < further
        base.append(RootPortView(after + number, 0, slot, function, is_first_of_several))
    return tuple(base)
