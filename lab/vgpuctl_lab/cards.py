# SPDX-License-Identifier: Apache-2.0
"""The cards of an emulated host: from `gpu1=a40:vf-profile,t4` to QEMU devices.

Every number comes from the catalogue; what the devices are like is described in kernel_module/README.md.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.catalog import Board
from vgpuctl.errors import UsageError
from vgpuctl_lab.boards import interfaces, mig_mode_outlives_reboot, mig_profiles, one_board, total_vfs
from vgpuctl_lab.interconnect import BRIDGED, FABRIC_MODES, SWITCHED, fabric_mode, has_nvswitch, read_words

DEFAULT_HOST = "gpu1=a40:vf-profile,a40:mdev-vf,t4:mdev,rtx-3090:passthrough,flex-170:vf"
MOST_CARDS = 8
NUMA_NODES = 2
_KEEPS_MIG = "+keeps-mig"
_ROOT_BUSES = (0x40, 0x80)
# Enabling them costs time; 48 is what an RTX PRO 6000 has.
MOST_VIRTUAL_FUNCTIONS = 48
_HOST_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class CardInterface(StrEnum):
    """How a card hands out shares: the words of design section 5 that the module can play."""

    MDEV = "mdev"
    MDEV_VF = "mdev-vf"
    VF_PROFILE = "vf-profile"
    PASSTHROUGH = "passthrough"
    VF = "vf"

    @property
    def module_word(self) -> str:
        """Its name in the module's card table."""
        return {"mdev": "mdev-pf", "passthrough": "none"}.get(self.value, self.value)

    def has_virtual_functions(self) -> bool:
        """True if the card's shares sit on SR-IOV virtual functions."""
        return self in (CardInterface.MDEV_VF, CardInterface.VF_PROFILE, CardInterface.VF)


@dataclass(frozen=True)
class Card:
    """One emulated GPU: a board of the catalogue and its interface.

    keeps_mig_mode: a board whose MIG mode a reboot takes keeps it here; reports of such boards differ (reference 5.1).
    is_bridged: it shares an NVLink bridge with the next or the last such card of its board. fabric: the word for the
    mode of the host's Fabric Manager.
    """

    board: Board
    interface: CardInterface
    numa_node: int | None = None
    keeps_mig_mode: bool = False
    is_bridged: bool = False
    fabric: str = ""

    @property
    def text(self) -> str:
        """The card as `--host` takes it."""
        joined = "".join(f"~{word}" for word in ([BRIDGED] if self.is_bridged else []) + [self.fabric] if word)
        node = "" if self.numa_node is None else f"@{self.numa_node}"
        return f"{self.board.key}:{self.interface}{joined}{node}{_KEEPS_MIG if self.keeps_mig_mode else ''}"

    @property
    def virtual_functions(self) -> int:
        """The value of `sriov_totalvfs`; 0 without SR-IOV."""
        if not self.interface.has_virtual_functions():
            return 0
        return min(total_vfs(self.board) or 16, MOST_VIRTUAL_FUNCTIONS)


@dataclass(frozen=True)
class HostShape:
    """One emulated host as asked for: its name and its cards.

    The cards have the PCI buses 01, 02, … in their order; on a host with NUMA nodes, those of node 0 have 41, 42, …
    and those of node 1 have 81, 82, …, each behind a PCI bus of its node.
    """

    name: str
    cards: tuple[Card, ...]

    @property
    def numa_nodes(self) -> int:
        """How many NUMA nodes the host has: two as soon as one of its cards names a node."""
        return NUMA_NODES if any(card.numa_node is not None for card in self.cards) else 1

    @property
    def fabric_mode(self) -> int:
        """FABRIC_MODE of its Fabric Manager."""
        return fabric_mode(frozenset([card.fabric]) for card in self.cards)

    @property
    def has_fabric_manager(self) -> bool:
        """True if cards of it are joined by NVSwitches."""
        return sum(has_nvswitch(card.board) for card in self.cards) > 1

    @property
    def buses(self) -> tuple[int, ...]:
        """The PCI bus of each card, in their order."""
        if self.numa_nodes == 1:
            return tuple(range(1, len(self.cards) + 1))
        nodes = [card.numa_node or 0 for card in self.cards]
        return tuple(_ROOT_BUSES[node] + nodes[:index].count(node) + 1 for index, node in enumerate(nodes))

    @property
    def text(self) -> str:
        """The host as `--host` takes it."""
        return f"{self.name}={','.join(card.text for card in self.cards)}"


def parse_host(text: str) -> HostShape:
    """Read one `--host NAME[=BOARD[:INTERFACE][~WORD][@NODE][+keeps-mig],…]`; without cards the default host's.

    Raises UsageError.
    """
    name, _, cards = text.partition("=")
    if not _HOST_NAME.fullmatch(name):
        raise UsageError(
            f"--host {text!r}: {name!r} is not a host name", hint="1 to 63 lower case letters, digits or dashes"
        )
    words = [word for word in (cards or DEFAULT_HOST.partition("=")[2]).split(",") if word]
    if len(words) > MOST_CARDS:
        raise UsageError(f"--host {name}: {len(words)} cards", hint=f"one emulated host takes up to {MOST_CARDS}")
    shape = HostShape(name, tuple(_parse_card(word) for word in words))
    fabric_mode(frozenset([card.fabric]) for card in shape.cards)
    return shape


def _parse_card(text: str) -> Card:
    described, at, node = text.removesuffix(_KEEPS_MIG).partition("@")
    if at and node not in [str(number) for number in range(NUMA_NODES)]:
        raise UsageError(f"card {text!r}: {node!r} is not a NUMA node", hint="BOARD[:INTERFACE]@0 or @1")
    keeps_mig_mode = text.endswith(_KEEPS_MIG)
    numa_node = int(node) if at else None
    described, *joined = described.split("~")
    name, colon, interface = described.partition(":")
    board = one_board(name, text)
    words = read_words(text, board, joined)
    if SWITCHED in words:
        raise UsageError(
            f"card {text!r}: an emulated host has no PCIe switch, because QEMU's separates no IOMMU groups",
            hint="simulated hosts have them: `vgpuctl lab up --simulated`",
        )
    allowed = [CardInterface(word) for word in interfaces(board) if _is_played(board, word)]
    if not allowed:
        raise UsageError(
            f"card {text!r}: an emulated host cannot play a {board.name}",
            hint="it plays NVIDIA's boards, and Intel's whose number of VFs is known",
        )
    if keeps_mig_mode and (mig_profiles(board) is None or mig_mode_outlives_reboot(board)):
        raise UsageError(
            f"card {text!r}: a {board.name} has no MIG mode that a reboot takes",
            hint=f"{_KEEPS_MIG} is for boards of Hopper and later that have MIG",
        )
    if not colon:
        interface = allowed[0]
    if interface not in allowed:
        raise UsageError(
            f"card {text!r}: a {board.name} has no interface {interface!r}", hint=f"it has {', '.join(allowed)}"
        )
    fabric = next((word for word in FABRIC_MODES if word in words), "")
    return Card(board, CardInterface(interface), numa_node, keeps_mig_mode, BRIDGED in words, fabric)


def _is_played(board: Board, interface: str) -> bool:
    return board.vendor == "nvidia" or (board.vendor == "intel" and interface == CardInterface.VF)


def qemu_devices(shape: HostShape) -> list[str]:
    """QEMU's arguments for the cards: an `nvme` device per card, each behind a root port of its own."""
    arguments: list[str] = []
    if shape.numa_nodes > 1:
        for node, bus in enumerate(_ROOT_BUSES):
            arguments += ["-device", f"pxb-pcie,id=node{node},bus=pcie.0,bus_nr={bus},numa_node={node}"]
    for index, card in enumerate(shape.cards, start=1):
        port, serial = f"rp{index}", f"gpu{index}"
        place = f"addr={0x10 + index:#x}" if shape.numa_nodes == 1 else f"bus=node{card.numa_node or 0}"
        arguments += ["-device", f"pcie-root-port,id={port},slot={index},chassis={index},{place}"]
        count = card.virtual_functions
        if count:
            sriov = f"sriov_max_vfs={count},sriov_vq_flexible={2 * count},sriov_vi_flexible={count}"
            queues = f"max_ioqpairs={2 * count + 2},msix_qsize={count + 2}"
            arguments += ["-device", f"nvme-subsys,id=ss{index}"]
            arguments += ["-device", f"nvme,bus={port},serial={serial},subsys=ss{index},{sriov},{queues}"]
        elif card.interface is CardInterface.PASSTHROUGH and card.board.companions:
            arguments += ["-device", f"nvme,bus={port},addr=0.0,multifunction=on,serial={serial}"]
            arguments += ["-device", f"intel-hda,bus={port},addr=0.1,multifunction=on"]
        else:
            arguments += ["-device", f"nvme,bus={port},serial={serial}"]
    return arguments


def numa_arguments(shape: HostShape, memory_mib: int, processors: int) -> list[str]:
    """QEMU's arguments that share memory and processors out over the host's NUMA nodes; none with one node."""
    if shape.numa_nodes == 1:
        return []
    arguments: list[str] = []
    for node in range(shape.numa_nodes):
        share = processors // shape.numa_nodes
        arguments += ["-object", f"memory-backend-ram,id=memory{node},size={memory_mib // shape.numa_nodes}M"]
        arguments += ["-numa", f"node,nodeid={node},memdev=memory{node},cpus={node * share}-{(node + 1) * share - 1}"]
    return arguments
