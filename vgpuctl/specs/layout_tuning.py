# SPDX-License-Identifier: Apache-2.0
"""The keys of a layout for power limit, clocks, ECC and compute mode of a card, and for what a controller may tune.

The limits of a board are known only on its host: the plan compares them (planner/layout/card_settings.py).
"""

import re
from collections.abc import Mapping

from vgpuctl.agent.wire.tuning import UNLOCKED
from vgpuctl.errors import UsageError
from vgpuctl.model.layout import DEFAULT_POWER, ComputeMode, LayoutKind, TuningBounds, TuningLayout
from vgpuctl.specs.field import Choice, Field, Number, Section, Text, Truth
from vgpuctl.specs.value import Value

_RANGE = re.compile(r"([1-9]\d{1,4})(?: *- *([1-9]\d{1,4}))?", re.ASCII)
_WATTS = re.compile(r"(\d{1,5}(?:\.\d{1,3})?) *- *(\d{1,5}(?:\.\d{1,3})?)", re.ASCII)
_MOST_WATTS = 5000
_ON_HOST = (LayoutKind.VGPU, LayoutKind.MIG, LayoutKind.MIG_VGPU, LayoutKind.OFF, LayoutKind.HOST)
_WITH_VGPUS = (LayoutKind.VGPU, LayoutKind.MIG_VGPU)
_HINT = "write whole MHz without a unit, the lowest and the highest clock as 1200-1700, or one clock as 1500"

_WATTS_HINT = "write the lowest and the highest power limit in watts without a unit, as 200-300"


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


def parse_watts(text: str, /, *, what: str) -> tuple[int, int]:
    """Read bounds of a power limit, `200-300`, as milliwatts. Raises UsageError."""
    match = _WATTS.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{what} is {text[:80]!r}, not two power limits in watts", hint=_WATTS_HINT)
    lowest, highest = (round(1000 * float(one)) for one in match.groups())
    if lowest >= highest:
        raise UsageError(f"{what} is {text!r}, whose first limit is not below the second", hint=_WATTS_HINT)
    if lowest < 1000 or highest > 1000 * _MOST_WATTS:
        raise UsageError(f"{what} is {text!r}; a power limit is 1 to {_MOST_WATTS} W", hint=_WATTS_HINT)
    return lowest, highest


def show_watts(bounds_mw: tuple[int, int]) -> str:
    """Write bounds of a power limit as a file has it."""
    return "-".join(f"{one / 1000:g}" for one in bounds_mw)


def checked(tuning: TuningLayout, bounds: TuningBounds, keys: Mapping[str, Value]) -> TuningLayout:
    """The settings. Refuses another compute mode than the default for a GPU with MIG instances, which has no other.

    Refuses bounds for a setting that is declared: what a layout declares, no controller changes.
    """
    if tuning.power_limit_mw is not None and bounds.power_limit_mw is not None:
        inside = keys["tune"].named(("power_limit_w",))
        raise inside["power_limit_w"].refuse(
            "contradicts power_limit_w, which declares one limit",
            hint="leave `power_limit_w` out where a controller may change it, else `tune`",
        )
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
    *(
        Field(
            name,
            Text(parse_clocks, show_clocks, takes_numbers=True, hint=_HINT),
            f"Clocks that the {what} is locked to, in MHz: {example}; `default` unlocks them",
            metavar="LOWEST-HIGHEST",
            words={"default": UNLOCKED},
            kinds=_ON_HOST,
        )
        for name, what, example in (
            ("gpu_clocks_mhz", "GPU", "1200-1700, or 1500"),
            ("memory_clocks_mhz", "GPU's memory", "405-7251, or 7251"),
        )
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
    Field(
        "tune.power_limit_w",
        Text(parse_watts, show_watts, hint=_WATTS_HINT),
        "Power limits in watts that `controller --tune power-limit` may set: 200-300",
        "tune.power_limit_mw",
        metavar="LOWEST-HIGHEST",
        is_required=True,
        kinds=_WITH_VGPUS,
    ),
)
TUNE_SECTION = Section("tune", "Settings that a controller may change, each with its bounds (docs/advice.md)")
