# SPDX-License-Identifier: Apache-2.0
"""NVLink bridges, NVSwitches and PCIe switches between the cards of a lab host of either kind.

A card's word may end with `~bridged` or `~switched`. Cards of boards with NVSwitch are joined without a word; theirs
may end with `~fabric-shared` or `~fabric-vgpu`, which give the host's Fabric Manager a mode with partitions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpuctl.catalog import Board
from vgpuctl.errors import UsageError
from vgpuctl_lab.card_links import NO_LINKS, CardLinks

BRIDGED, SWITCHED = "bridged", "switched"
FABRIC_MODES = {"fabric-shared": 1, "fabric-vgpu": 2}
"""FABRIC_MODE of the words; without one it is 0."""
CARDS_PER_SWITCH = 4
"""Cards behind one PCIe switch."""

_NVSWITCHES = {3: 6, 4: 4, 5: 2}
"""NVSwitches of an HGX baseboard by NVLink's generation: A100, H100, B200 (NVIDIA Fabric Manager user guide)."""

_FIRST_SWITCH_BUS = 0xC5
_FIRST_FABRIC_GENERATION = 4
"""From Hopper on a GPU registers with the fabric; before, NVML tells none."""


@dataclass(frozen=True)
class LinkedCard:
    """A card for `link_cards`. words: BRIDGED, SWITCHED."""

    address: str
    board: Board
    words: frozenset[str] = frozenset()


def read_words(text: str, board: Board, words: Sequence[str]) -> frozenset[str]:
    """Check the words behind a card. text: the card as it was written. Raises UsageError."""
    for word in words:
        if word not in (BRIDGED, SWITCHED, *FABRIC_MODES):
            hint = ", ".join(f"~{one}" for one in (BRIDGED, SWITCHED, *FABRIC_MODES))
            raise UsageError(f"card {text!r}: there is no {word!r}", hint=hint)
    if BRIDGED in words and (board.nvlink is None or board.nvlink.topology != "bridge"):
        raise UsageError(f"card {text!r}: a {board.name} takes no NVLink bridge")
    if not FABRIC_MODES.keys().isdisjoint(words) and not has_nvswitch(board):
        raise UsageError(f"card {text!r}: a {board.name} has no NVSwitch", hint="for example h100-sxm5, b200")
    return frozenset(words)


def fabric_mode(words: Iterable[frozenset[str]]) -> int:
    """FABRIC_MODE of a host. words: of each of its cards. Raises UsageError for two modes."""
    found = sorted({word for each in words for word in each if word in FABRIC_MODES})
    if len(found) > 1:
        raise UsageError(f"one host has one Fabric Manager, and not both of {' and '.join(found)}")
    return FABRIC_MODES[found[0]] if found else 0


def link_cards(cards: Sequence[LinkedCard]) -> list[CardLinks]:
    """The links of each card of a host: bridged cards in pairs, in their order, boards with NVSwitch all together."""
    found = [NO_LINKS] * len(cards)
    waiting: dict[str, int] = {}
    on_baseboard = [number for number, card in enumerate(cards) if has_nvswitch(card.board)]
    for number, card in enumerate(cards):
        nvlink = card.board.nvlink
        if nvlink is None:
            continue
        if BRIDGED in card.words:
            mate = waiting.pop(card.board.key, None)
            if mate is None:
                waiting[card.board.key] = number
                continue
            for one, other in ((number, mate), (mate, number)):
                found[one] = CardLinks(nvlink.generation, nvlink.links, (cards[other].address,))
        elif len(on_baseboard) > 1 and number in on_baseboard:
            peers = tuple(f"0000:{_FIRST_SWITCH_BUS + each:02x}:00.0" for each in range(_NVSWITCHES[nvlink.generation]))
            has_fabric = nvlink.generation >= _FIRST_FABRIC_GENERATION
            found[number] = CardLinks(
                nvlink.generation,
                nvlink.links,
                peers,
                has_switch=True,
                has_fabric=has_fabric,
                module=on_baseboard.index(number) + 1,
            )
    return found


def switch_numbers(words: Sequence[frozenset[str]]) -> list[int | None]:
    """The PCIe switch that each card is behind, from 0; None for one on a root port of its own."""
    found: list[int | None] = []
    switched = 0
    for each in words:
        found.append(switched // CARDS_PER_SWITCH if SWITCHED in each else None)
        switched += SWITCHED in each
    return found


def has_nvswitch(board: Board) -> bool:
    """True if a board's NVLinks lead to NVSwitches, once a host has two of such boards."""
    nvlink = board.nvlink
    return nvlink is not None and nvlink.topology.startswith("nvswitch") and nvlink.generation in _NVSWITCHES
