# SPDX-License-Identifier: Apache-2.0
"""Series of numbers as one line of characters: Unicode blocks, or ASCII where the terminal has no blocks."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpuctl.cli.shown.output import print_line
from vgpuctl.cli.shown.terminal import fitted, has_blocks, terminal_width

if TYPE_CHECKING:
    from vgpuctl.usecases.measured.last_hour import LastHour, PastLine

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*%#"
_GAP = " "
_NAME_WIDTH = 20
_FIGURES_WIDTH = 24
_NOW_MINUTES = 3
_UNITS = (("_bytes", 1 / (1 << 30), " GiB"), ("_watts", 1.0, " W"), ("_celsius", 1.0, " C"), ("_ratio", 100.0, "%"))


def sparkline(values: Sequence[float | None], width: int, *, top: float, blocks: bool) -> str:
    """Draw values from 0 to `top` in at most `width` columns; a blank is a time without value.

    Where there are more values than columns, a column shows the highest of its values, so that no peak is lost.
    """
    levels = _BLOCKS if blocks else _ASCII
    count = max(0, min(width, len(values)))
    cells = []
    for column in range(count):
        part = values[column * len(values) // count : (column + 1) * len(values) // count]
        known = [one for one in part if one is not None and math.isfinite(one)]
        if not known:
            cells.append(_GAP)
            continue
        share = min(1.0, max(0.0, max(known) / top)) if top > 0 else 0.0
        cells.append(levels[min(len(levels) - 1, int(share * len(levels)))])
    return "".join(cells)


def print_last_hour(hour: "LastHour", *, titles: dict[str, str] | None = None) -> None:
    """Print a line for each measure: its name, its course, and lowest, highest and last value; or why there are none.

    titles: for objects, where there are several.
    """
    width, blocks = terminal_width(), has_blocks()
    if hour.problem is not None:
        print_line(f"last hour {hour.problem}")
        return
    print_line("last hour (a blank is a time without readings)")
    before = None
    for one in hour.lines:
        title = (titles or {}).get(one.object)
        if title is not None and title != before:
            print_line(f"  {title}")
        before = title
        room = width - _NAME_WIDTH - _FIGURES_WIDTH - 4
        course = sparkline(one.values, room, top=_top(one), blocks=blocks) if room > 0 else ""
        print_line(f"  {fitted(_name(one.measure), _NAME_WIDTH)} {course} {figures_of(one)}")


def figures_of(one: "PastLine") -> str:
    """The lowest and highest reading and the last minute: `5-98%, 12% now`."""
    factor, unit = _unit(one.measure)
    form = ".0f" if unit == "%" else ".3g"
    last = next((value for value in reversed(one.values[-_NOW_MINUTES:]) if value is not None), None)
    now = "" if last is None else f", {last * factor:{form}}{unit} now"
    return f"{one.low * factor:{form}}-{one.high * factor:{form}}{unit}{now}"


def _name(measure: str) -> str:
    for ending, _, _ in _UNITS:
        measure = measure.removesuffix(ending)
    return measure.replace("_", " ")


def _unit(measure: str) -> tuple[float, str]:
    return next(((factor, unit) for ending, factor, unit in _UNITS if measure.endswith(ending)), (1.0, ""))


def _top(one: "PastLine") -> float:
    """Ratios are drawn against 1 or more, other measures against their highest value."""
    return max(1.0, one.high) if one.measure.endswith("_ratio") else one.high
