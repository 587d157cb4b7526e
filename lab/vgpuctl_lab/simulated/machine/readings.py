# SPDX-License-Identifier: Apache-2.0
"""Values of a card's sensors: made up, equal for equal states, in proportion to the running VMs."""

import zlib

from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import State, Vgpu

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
