# SPDX-License-Identifier: Apache-2.0
"""The keys of a layout for power limit, clocks, ECC and compute mode of a card.

What a board takes is known only on its host: the plan compares it (planner/layout/card_settings.py).
"""

import re
from collections.abc import Mapping

from vgpuctl.agent.wire.tuning import UNLOCKED
from vgpuctl.errors import UsageError
from vgpuctl.model.layout import DEFAULT_POWER, ComputeMode, LayoutKind, TuningLayout
from vgpuctl.specs.field import Choice, Field, Number, Text, Truth
from vgpuctl.specs.value import Value

_RANGE = re.compile(r"([1-9]\d{1,4})(?: *- *([1-9]\d{1,4}))?")
_MOST_WATTS = 5000
_ON_HOST = (LayoutKind.VGPU, LayoutKind.MIG, LayoutKind.MIG_VGPU, LayoutKind.OFF, LayoutKind.HOST)
_HINT = "write whole MHz without a unit, the lowest and the highest clock as 1200-1700, or one clock as 1500"


def parse_clocks(text: str, /, *, what: str) -> tuple[int, int]:
    """Read a range of clocks, `1200-1700`, or one clock. Raises UsageError."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{what} is {text[:80]!r}, not a range of clocks in MHz", hint=_HINT)
    lowest, highest = int(match[1]), int(match[2] or match[1])
    if lowest > highest:
        raise UsageError(f"{what} is {text!r}, whose first clock is above the second", hint=f"{highest}-{lowest}?")
    return lowest, highest


def show_clocks(clocks_mhz: tuple[int, int]) -> str:
    """Write a range of clocks as a file has it."""
    lowest, highest = clocks_mhz
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"


def checked(tuning: TuningLayout, keys: Mapping[str, Value]) -> TuningLayout:
    """The settings. Refuses another compute mode than the default for a GPU with MIG instances, which has no other."""
    mode = tuning.compute_mode
    if mode not in (None, ComputeMode.DEFAULT) and "geometry" in keys:
        raise keys["compute_mode"].refuse(
            f"is {mode}, which contradicts geometry: a GPU in MIG mode has the compute mode default alone"
        )
    return tuning


TUNING_FIELDS = (
    Field(
        "power_limit_w",
        Number(1, _MOST_WATTS, scale=1000),
        "Power limit in watts; `default` for the board's own",
        "power_limit_mw",
        words={"default": DEFAULT_POWER},
        kinds=_ON_HOST,
    ),
    Field(
        "gpu_clocks_mhz",
        Text(parse_clocks, show_clocks, takes_numbers=True, hint=_HINT),
        "Clocks that the GPU is locked to, in MHz: 1200-1700, or 1500; `default` unlocks them",
        metavar="LOWEST-HIGHEST",
        words={"default": UNLOCKED},
        kinds=_ON_HOST,
    ),
    Field(
        "ecc",
        Truth(),
        "Error correction of the GPU's memory; a change counts after a reboot of the host",
        kinds=(LayoutKind.PASSTHROUGH, *_ON_HOST),
    ),
    Field(
        "compute_mode",
        Choice(ComputeMode),
        "Processes of the host that may compute on the GPU: several, one, or none",
        kinds=(LayoutKind.VGPU, LayoutKind.OFF, LayoutKind.HOST),
    ),
)
