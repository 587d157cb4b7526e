# SPDX-License-Identifier: Apache-2.0
"""The cards of an emulated host: from `gpu1=a40:vf-profile,t4:mdev` to QEMU devices and the module's card table.

Every number comes from the catalogue; the syntax of both is described in kernel_module/README.md.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.catalog import Board, CatalogType, boards_named, types_of
from vgpuctl.errors import UsageError

DEFAULT_HOST = "gpu1=a40:vf-profile,a40:mdev-vf,t4:mdev,rtx-3090:passthrough,flex-170:vf"
MOST_CARDS = 8
MOST_VIRTUAL_FUNCTIONS = 32
_HOST_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_CLASS_VGA_CONTROLLER = "030000"
_CLASS_3D_CONTROLLER = "030200"
_CLASS_OTHER_DISPLAY = "038000"
_CLASS_HD_AUDIO = "040300"


class CardInterface(StrEnum):
    """How a card hands out shares: the words of design section 5 that the module can play."""

    MDEV = "mdev"
    MDEV_VF = "mdev-vf"
    VF_PROFILE = "vf-profile"
    PASSTHROUGH = "passthrough"
    VF = "vf"

    @property
    def module_word(self) -> str:
        """What the module's card table calls it."""
        return {"mdev": "mdev-pf", "passthrough": "none"}.get(self.value, self.value)

    def has_virtual_functions(self) -> bool:
        """Whether the card's shares sit on SR-IOV virtual functions."""
        return self in (CardInterface.MDEV_VF, CardInterface.VF_PROFILE, CardInterface.VF)

    @property
    def vendor(self) -> str:
        """Whose boards have it, as the catalogue names vendors."""
        return "intel" if self is CardInterface.VF else "nvidia"


@dataclass(frozen=True)
class Card:
    """One emulated GPU: a board of the catalogue and its interface."""

    board: Board
    interface: CardInterface

    @property
    def text(self) -> str:
        """The card as `--host` takes it."""
        return f"{self.board.key}:{self.interface}"

    @property
    def virtual_functions(self) -> int:
        """What `sriov_totalvfs` says; 0 without SR-IOV."""
        if not self.interface.has_virtual_functions():
            return 0
        known = self.board.sriov
        total = (known.totalvfs or known.min_vfs) if known else None
        return min(total or 16, MOST_VIRTUAL_FUNCTIONS)


@dataclass(frozen=True)
class HostShape:
    """One emulated host as asked for: its name and its cards, in the order of their PCI buses 01, 02, …"""

    name: str
    cards: tuple[Card, ...]

    @property
    def text(self) -> str:
        """The host as `--host` takes it."""
        return f"{self.name}={','.join(card.text for card in self.cards)}"


def parse_host(text: str) -> HostShape:
    """Read one `--host NAME[=BOARD:INTERFACE,…]`; without cards the default host's. Raises UsageError."""
    name, _, cards = text.partition("=")
    if not _HOST_NAME.fullmatch(name):
        raise UsageError(
            f"--host {text!r}: {name!r} is not a host name", hint="1 to 63 lower case letters, digits or dashes"
        )
    words = [word for word in (cards or DEFAULT_HOST.partition("=")[2]).split(",") if word]
    if len(words) > MOST_CARDS:
        raise UsageError(f"--host {name}: {len(words)} cards", hint=f"one emulated host takes up to {MOST_CARDS}")
    return HostShape(name, tuple(_parse_card(word) for word in words))


def _parse_card(text: str) -> Card:
    name, _, interface = text.partition(":")
    try:
        kind = CardInterface(interface)
    except ValueError:
        raise UsageError(
            f"card {text!r}: {interface!r} is not an interface", hint=f"BOARD:{'|'.join(CardInterface)}"
        ) from None
    found = [board for board in boards_named(name) if board.vendor == kind.vendor]
    if len(found) != 1:
        near = ", ".join(board.key for board in found[:8]) or "none"
        maker = {"intel": "Intel", "nvidia": "NVIDIA"}[kind.vendor]
        raise UsageError(f"card {text!r}: {len(found)} {maker} boards of the catalogue are called {name!r}: {near}")
    card = Card(found[0], kind)
    if kind is CardInterface.VF:
        if card.board.sriov is None or not card.board.sriov.totalvfs:
            raise UsageError(f"card {text!r}: the catalogue does not say how many VFs {found[0].name} has")
    elif kind is not CardInterface.PASSTHROUGH and not simulated_types(card.board):
        raise UsageError(f"card {text!r}: the catalogue has no vGPU types of {found[0].name}")
    return card


def qemu_devices(shape: HostShape) -> list[str]:
    """QEMU's arguments for the cards: an `nvme` device per card, each behind a root port of its own."""
    arguments: list[str] = []
    for index, card in enumerate(shape.cards, start=1):
        port, serial = f"rp{index}", f"gpu{index}"
        arguments += ["-device", f"pcie-root-port,id={port},slot={index},chassis={index},addr={0x10 + index:#x}"]
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


def card_table(shape: HostShape) -> str:
    """The text that the host writes to `/proc/vgpulab/cards`."""
    lines: list[str] = []
    for index, card in enumerate(shape.cards, start=1):
        board = card.board
        subsystem = board.subsystems[0] if board.subsystems else board.pci
        pci_class, revision = _CLASS_VGA_CONTROLLER if board.companions else _CLASS_3D_CONTROLLER, "a1"
        if board.vendor == "intel":
            pci_class, revision = _CLASS_OTHER_DISPLAY, "08"
        lines.append(
            f"card 0000:{index:02x}:00.0 interface={card.interface.module_word} device={board.pci}"
            f" subsystem={subsystem} class={pci_class} revision={revision} framebuffer={board.memory_mib}"
            f" vfs={card.virtual_functions} name={board.name}"
        )
        if card.interface is CardInterface.PASSTHROUGH:
            lines += [
                f"companion 0000:{index:02x}:00.1 device={companion.pci} subsystem={subsystem}"
                f" class={_CLASS_HD_AUDIO} revision=a1"
                for companion in board.companions[:1]
            ]
        elif card.interface is not CardInterface.VF:
            lines += [_type_line(entry) for entry in simulated_types(board)]
    return "\n".join(lines) + "\n"


def simulated_types(board: Board) -> list[CatalogType]:
    """The board's time-sliced vGPU types that have an id."""
    return [one for one in types_of(board) if not one.is_mig_backed and type_id(one) is not None]


def type_id(entry: CatalogType) -> int | None:
    """The type's decimal id, inferred where no public text gives it."""
    return entry.type_id if entry.type_id is not None else entry.inferred_type_id


def _type_line(entry: CatalogType) -> str:
    # The frame rate limit of B types is 45, of all others 60: NVIDIA Virtual GPU Software User Guide.
    width, height = entry.max_resolution
    guest_ids = f" vdev={entry.vdev}" if entry.vdev else ""
    return (
        f"type {type_id(entry)} framebuffer={entry.fb_mib} max={entry.max_instances} heads={entry.max_displays}"
        f" frl={45 if entry.series == 'B' else 60} resolution={width}x{height}{guest_ids}"
        f" name={entry.full_name or f'NVIDIA {entry.name}'}"
    )
