# SPDX-License-Identifier: Apache-2.0
"""Errors of a card's memory: those of faults."""

from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import State

REMAP_PENDING, REMAP_FAILED, PAGES_RETIRED = "row-remap-pending", "row-remap-failed", "pages-retired"


def ecc_errors(state: State, card: CardShape) -> int:
    """Uncorrected errors of the card's memory: those of the fault `ecc`."""
    return state.fault(card, "ecc")


def remapped_rows(state: State, card: CardShape) -> tuple[int, int, int, int] | None:
    """Corrected, uncorrected, pending, failed; None of a card before Ampere, and of one without ECC."""
    if not card.types or not is_ampere_or_later(card):
        return None
    pending, failed = state.fault(card, REMAP_PENDING), state.fault(card, REMAP_FAILED)
    return 0, pending + failed, bool(pending), bool(failed)


def retired_pages(state: State, card: CardShape) -> int | None:
    """Pages retired for errors of two bits; None of a card that remaps rows instead, and of one without ECC."""
    if not card.types or is_ampere_or_later(card):
        return None
    return state.fault(card, PAGES_RETIRED)


def forget_errors(state: State, card: CardShape) -> None:
    """End what a reset of the card ends: errors since the driver was loaded, and a row that waits for its spare."""
    for kind in ("ecc", REMAP_PENDING):
        state.faults.get(card.address, {}).pop(kind, None)


def is_ampere_or_later(card: CardShape) -> bool:
    """True by the device id. Those of Ampere begin at 0x2000; those before are lower, those after higher."""
    return int(card.device, 16) >= 0x2000


def is_hopper_or_later(card: CardShape) -> bool:
    """True by the device id. Those of Hopper begin at 0x2300, and Ada's lie between them and Blackwell's."""
    number = int(card.device, 16)
    return 0x2300 <= number < 0x2400 or number >= 0x2900
