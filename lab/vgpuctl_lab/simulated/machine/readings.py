# SPDX-License-Identifier: Apache-2.0
"""Values of a card's sensors: made up, equal for equal states, in proportion to the running VMs."""

import zlib

from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import State, Vgpu

REMAP_PENDING, REMAP_FAILED, PAGES_RETIRED = "row-remap-pending", "row-remap-failed", "pages-retired"
_IDLE_C, _IDLE_SHARE = 34, 0.11


def utilization_percent(state: State, card: CardShape) -> int:
    """How busy a card is: each running VM adds its own part, up to all."""
    return min(sum(vgpu_percent(state, vgpu) for vgpu in state.vgpus_of(card)), 100)


def vgpu_percent(state: State, vgpu: Vgpu) -> int:
    """How busy one vGPU keeps its card: 10 to 49 per cent while its VM runs, by the VM's UUID."""
    holder = state.holder_of(vgpu)
    return 0 if holder is None else 10 + zlib.crc32(holder.encode()) % 40


def power_mw(state: State, card: CardShape) -> int:
    """The power draw of a card, 0 where its board's figure is unknown."""
    share = _IDLE_SHARE + (1 - _IDLE_SHARE) * utilization_percent(state, card) / 100
    return round(card.power_w * 1000 * share)


def temperature_c(state: State, card: CardShape) -> int:
    """How warm a card is."""
    return _IDLE_C + utilization_percent(state, card) * 45 // 100


def ecc_errors(state: State, card: CardShape) -> int:
    """Uncorrected errors of the card's memory: those of the fault `ecc`."""
    return state.fault(card, "ecc")


def remapped_rows(state: State, card: CardShape) -> tuple[int, int, int, int] | None:
    """Corrected, uncorrected, pending, failed; None of a card before Ampere, and of one without ECC."""
    if not card.types or not _is_ampere_or_later(card):
        return None
    pending, failed = state.fault(card, REMAP_PENDING), state.fault(card, REMAP_FAILED)
    return 0, pending + failed, bool(pending), bool(failed)


def retired_pages(state: State, card: CardShape) -> int | None:
    """Pages retired for errors of two bits; None of a card that remaps rows instead, and of one without ECC."""
    if not card.types or _is_ampere_or_later(card):
        return None
    return state.fault(card, PAGES_RETIRED)


def forget_errors(state: State, card: CardShape) -> None:
    """End what a reset of the card ends: errors since the driver was loaded, and a row that waits for its spare."""
    for kind in ("ecc", REMAP_PENDING):
        state.faults.get(card.address, {}).pop(kind, None)


def _is_ampere_or_later(card: CardShape) -> bool:
    """The device ids of Ampere begin at 0x2000; those before are lower, those after higher."""
    return int(card.device, 16) >= 0x2000
