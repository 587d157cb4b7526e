# SPDX-License-Identifier: Apache-2.0
"""The guest's PCI buses: which root port each device sits behind, and whose NUMA node that port belongs to.

Bus numbers follow the order of the root ports, so the ports of disk, network, entropy and channel are always there: a
GPU keeps its address in the guest when a disk comes or goes (Windows ties driver and licence to it). GPUs follow, one
port each. In a guest without NUMA nodes their ports are on the root bus, eight to a slot. In a guest with NUMA nodes
each node has an expander bus, and a GPU's port is on the bus of its node.

The ports of further devices have the highest numbers, and slots of the root bus that are theirs alone: a device keeps
its slot and function, by which the guest knows it, whatever else comes or goes. In a slot the functions are used from
0 on, for a guest does not look at a slot whose function 0 is empty.
"""

from collections import Counter
from dataclasses import dataclass

from vgpuctl.model.numa import GuestNuma

DISK_BUS = 1
NETWORK_BUS = 2
ENTROPY_BUS = 3
CHANNEL_BUS = 4
FIRST_GPU_BUS = 5
MOST_BUSES = 256
_BASE_SLOT = 2
_FIRST_GPU_SLOT = 3
_FIRST_EXPANDER_SLOT = 8
FIRST_EXTRA_SLOT = 16
_SCSI_SLOT = FIRST_EXTRA_SLOT
_USB_SLOT = 17
_NIC_SLOT = 18
_DISK_SLOT = 19
_SPARE_SLOT = 21
_FUNCTIONS = 8
MOST_SPARE = 16

# The buses behind an expander have the numbers after its own (libvirt, formatdomain, "busNr"). 8 expanders with up to
# 27 ports each fill the numbers from 32 to 255; those below are for the ports of the root bus.
_FIRST_EXPANDER_NUMBER = 32
_NUMBERS_PER_EXPANDER = 28


@dataclass(frozen=True)
class ExpanderBusView:
    """One pcie-expander-bus. index: its controller index. cell: the guest's NUMA node. number: its bus in the guest."""

    index: int
    slot: int
    number: int
    cell: int


@dataclass(frozen=True)
class RootPortView:
    """One pcie-root-port: `index` is its controller index and libvirt's bus behind it; `bus` the one it sits on."""

    index: int
    bus: int
    slot: int
    function: int
    multifunction: bool


@dataclass(frozen=True)
class Extras:
    """Further devices, each behind a port of its own. disks: data disks on virtio. nics: interfaces after the first.

    spare: ports for devices that are attached while the guest runs.
    """

    has_scsi: bool = False
    has_usb: bool = False
    nics: int = 0
    disks: int = 0
    spare: int = 0

    def slots(self) -> tuple[tuple[int, int], ...]:
        """Slot on the root bus and function of each port, in the order of extra_buses."""
        singles = [(slot, 0) for slot, there in ((_SCSI_SLOT, self.has_scsi), (_USB_SLOT, self.has_usb)) if there]
        counted = ((_NIC_SLOT, self.nics), (_DISK_SLOT, self.disks), (_SPARE_SLOT, self.spare))
        return (
            *singles,
            *((slot + number // _FUNCTIONS, number % _FUNCTIONS) for slot, most in counted for number in range(most)),
        )


NO_EXTRAS = Extras()


def nic_slot(position: int) -> tuple[int, int]:
    """Slot on the root bus and function of the port for the interface at a position, from 1."""
    return _NIC_SLOT, position - 1


def spare_slot(number: int) -> tuple[int, int]:
    """Slot on the root bus and function of a spare port, from 0."""
    return _SPARE_SLOT + number // _FUNCTIONS, number % _FUNCTIONS


@dataclass(frozen=True)
class ExtraBuses:
    """The bus behind the port of each further device: libvirt's controller index."""

    scsi: int | None = None
    usb: int | None = None
    nics: tuple[int, ...] = ()
    disks: tuple[int, ...] = ()
    spare: tuple[int, ...] = ()


def extra_buses(gpu_count: int, numa: GuestNuma | None, extras: Extras) -> ExtraBuses:
    """The buses of further devices; their indexes follow those of the GPUs."""
    left = iter(range(first_gpu_bus(numa) + gpu_count, MOST_BUSES))

    def take(count: int) -> tuple[int, ...]:
        return tuple(next(left) for _ in range(count))

    return ExtraBuses(
        scsi=next(left) if extras.has_scsi else None,
        usb=next(left) if extras.has_usb else None,
        nics=take(extras.nics),
        disks=take(extras.disks),
        spare=take(extras.spare),
    )


def guest_bus(bus: int, gpu_count: int, numa: GuestNuma | None) -> int:
    """The number that the guest's firmware gives the bus behind a port of the root bus.

    It counts through the ports of the root bus by slot and function, as SeaBIOS and OVMF do; the GPUs behind expander
    buses have numbers of their own. bus: libvirt's controller index.
    """
    behind_expanders = len(expander_buses(numa))
    return bus - behind_expanders - gpu_count if behind_expanders and bus >= FIRST_GPU_BUS else bus


def spare_number(slot: int, function: int) -> int | None:
    """The number of the spare port at a place of the root bus, None for a place of other ports."""
    number = (slot - _SPARE_SLOT) * _FUNCTIONS + function
    return number if 0 <= number < MOST_SPARE else None


def expander_buses(numa: GuestNuma | None) -> tuple[ExpanderBusView, ...]:
    """One for each NUMA node of the guest, if it has any."""
    if numa is None or not numa.has_vnuma:
        return ()
    return tuple(
        ExpanderBusView(
            index=FIRST_GPU_BUS + cell,
            slot=_FIRST_EXPANDER_SLOT + cell,
            number=_FIRST_EXPANDER_NUMBER + cell * _NUMBERS_PER_EXPANDER,
            cell=cell,
        )
        for cell in range(len(numa.cells))
    )


def first_gpu_bus(numa: GuestNuma | None) -> int:
    """Controller index of the first GPU's port: libvirt wants a bus before what sits on it."""
    return FIRST_GPU_BUS + len(expander_buses(numa))


def root_ports(gpu_count: int, numa: GuestNuma | None, extras: Extras = NO_EXTRAS) -> tuple[RootPortView, ...]:
    """The ports of the base devices, then those of the GPUs, then those of further devices."""
    base = [
        RootPortView(index=bus, bus=0, slot=_BASE_SLOT, function=function, multifunction=function == 0)
        for function, bus in enumerate((DISK_BUS, NETWORK_BUS, ENTROPY_BUS, CHANNEL_BUS))
    ]
    expanders, first = expander_buses(numa), first_gpu_bus(numa)
    used: Counter[int] = Counter()
    for number in range(gpu_count):
        if expanders and numa is not None:
            expander = expanders[numa.gpu_cells[number] if number < len(numa.gpu_cells) else 0]
            base.append(RootPortView(first + number, expander.index, used[expander.index], 0, multifunction=False))
            used[expander.index] += 1
            continue
        slot, function = _FIRST_GPU_SLOT + number // 8, number % 8
        is_first_of_several = function == 0 and number + 1 < gpu_count
        base.append(RootPortView(first + number, 0, slot, function, is_first_of_several))
    slots = extras.slots()
    for index, (slot, function) in enumerate(slots, first + gpu_count):
        base.append(RootPortView(index, 0, slot, function, function == 0 and (slot, 1) in slots))
    return tuple(base)
