# SPDX-License-Identifier: Apache-2.0
"""The lines that `top` shows, in exactly as many columns as there are."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from rich.cells import cell_len

from vgpuctl.cli.shown.output import Styled
from vgpuctl.cli.shown.terminal import cut_in_middle, fitted
from vgpuctl.model.natural_order import natural
from vgpuctl.model.plural import counted
from vgpuctl.model.printable import printable
from vgpuctl.usecases.telemetry.top import TopGpu, TopHost, TopShare, TopTenant, TopView

Row = TypeVar("Row")
_STEAL_IS_MUCH = 0.05
_MAIN = ("SHARE%", "UTIL")


class TopTable(StrEnum):
    """The subject of a line of `top`."""

    SHARE = "share"
    GPU = "gpu"
    TENANT = "tenant"


@dataclass(frozen=True)
class TopColumn(Generic[Row]):
    """One column.

    sort: its name for --sort. cell: the text. key: what rows are sorted by; None is last. width: in
    columns; 0 for names, which share what is left. drops: the highest is left out first where room is short; 0 never.
    least: columns below which a name is not cut while another column can be left out. wide: only from so many columns
    on.
    """

    heading: str
    sort: str
    cell: Callable[[Row], str]
    key: Callable[[Row], Any]
    width: int = 0
    drops: int = 0
    wide: int = 0
    least: int = 8


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f}%"


def _gib(value: float | None) -> str:
    if value is None:
        return "-"
    size = value / (1 << 30)
    return f"{size:.0f}" if size >= 10 or size == int(size) else f"{size:.1f}"


def _sizes(used: float | None, size: float | None) -> str:
    return f"{_gib(used)}/{_gib(size)}G"


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def _short_gpu(address: str) -> str:
    return address.removeprefix("0000:")


def _gpu_state(one: TopGpu) -> str | None:
    return ", ".join(filter(None, (one.missing, one.closed))) or None


SHARE_COLUMNS: tuple[TopColumn[TopShare], ...] = (
    TopColumn("TENANT", "tenant", lambda one: one.tenant, lambda one: one.tenant, drops=4, least=6),
    TopColumn("VM", "vm", lambda one: one.vm, lambda one: one.vm, least=12),
    TopColumn("HOST", "host", lambda one: one.host, lambda one: one.host, drops=1),
    TopColumn("GPU", "gpu", lambda one: _short_gpu(one.gpu), lambda one: one.gpu, 12, drops=1),
    TopColumn("PROFILE", "profile", lambda one: one.profile, lambda one: one.profile, drops=6),
    TopColumn("SHARE%", "share", lambda one: _percent(one.promised_used), lambda one: one.promised_used, 7),
    TopColumn("UTIL", "util", lambda one: _percent(one.utilization), lambda one: one.utilization, 5, drops=5),
    TopColumn(
        "FB",
        "fb",
        lambda one: _sizes(one.framebuffer_used_bytes, one.framebuffer_size_bytes),
        lambda one: one.framebuffer_used_bytes,
        8,
        drops=3,
    ),
    TopColumn("STEAL", "steal", lambda one: _percent(one.steal), lambda one: one.steal, 6, drops=7),
    TopColumn(
        "STATE",
        "state",
        lambda one: one.missing or one.licence or "-",
        lambda one: one.missing or one.licence,
        13,
        drops=2,
    ),
    TopColumn("PROMISED", "promised", lambda one: _percent(one.promised), lambda one: one.promised, 8, 8, wide=110),
    TopColumn("SEAT", "seat", lambda one: one.licence_pool or "-", lambda one: one.licence_pool, 10, 9, wide=130),
    TopColumn("DRIVER", "driver", lambda one: one.guest_driver or "-", lambda one: one.guest_driver, 12, 9, wide=120),
    TopColumn("DEVICE", "device", lambda one: one.device, lambda one: one.device, 36, 10, wide=160),
)
GPU_COLUMNS: tuple[TopColumn[TopGpu], ...] = (
    TopColumn("HOST", "host", lambda one: one.host, lambda one: one.host),
    TopColumn("GPU", "gpu", lambda one: _short_gpu(one.gpu), lambda one: one.gpu, 12),
    TopColumn("MODEL", "model", lambda one: one.model or "-", lambda one: one.model, drops=2, least=10),
    TopColumn("SHARES", "shares", lambda one: str(one.shares), lambda one: one.shares, 6, drops=3),
    TopColumn("UTIL", "util", lambda one: _percent(one.utilization), lambda one: one.utilization, 5),
    TopColumn(
        "FB",
        "fb",
        lambda one: _sizes(one.framebuffer_used_bytes, one.framebuffer_total_bytes),
        lambda one: one.framebuffer_used_bytes,
        8,
        drops=1,
    ),
    TopColumn("POWER", "power", lambda one: _number(one.power_watts, "W"), lambda one: one.power_watts, 5, drops=4),
    TopColumn(
        "TEMP",
        "temp",
        lambda one: _number(one.temperature_celsius, "C"),
        lambda one: one.temperature_celsius,
        4,
        drops=4,
    ),
    TopColumn("STATE", "state", lambda one: _gpu_state(one) or "-", _gpu_state, 20, drops=1),
)
TENANT_COLUMNS: tuple[TopColumn[TopTenant], ...] = (
    TopColumn("TENANT", "tenant", lambda one: one.tenant, lambda one: one.tenant),
    TopColumn("SHARES", "shares", lambda one: str(one.shares), lambda one: one.shares, 6, drops=1),
    TopColumn("MEASURED", "measured", lambda one: str(one.measured), lambda one: one.measured, 8, drops=3),
    TopColumn("SHARE%", "share", lambda one: _percent(one.promised_used), lambda one: one.promised_used, 7),
    TopColumn(
        "GPUS USED",
        "util",
        lambda one: "-" if one.utilization is None else f"{one.utilization:.2f}",
        lambda one: one.utilization,
        9,
        drops=2,
    ),
    TopColumn(
        "FB",
        "fb",
        lambda one: _sizes(one.framebuffer_used_bytes, one.framebuffer_size_bytes),
        lambda one: one.framebuffer_used_bytes,
        11,
        drops=1,
    ),
)
COLUMNS: dict[TopTable, Sequence[TopColumn[Any]]] = {
    TopTable.SHARE: SHARE_COLUMNS,
    TopTable.GPU: GPU_COLUMNS,
    TopTable.TENANT: TENANT_COLUMNS,
}


def rows_of(view: TopView, table: TopTable, text: str = "", width: int = 0) -> Sequence[Any]:
    """The rows of a table that have a text in one of their cells, in any case.

    width: of the terminal; columns for wider ones do not count.
    """
    every: dict[TopTable, Sequence[Any]] = {
        TopTable.SHARE: view.shares,
        TopTable.GPU: view.gpus,
        TopTable.TENANT: view.tenants,
    }
    wanted, columns = text.casefold(), [one for one in COLUMNS[table] if one.wide <= width]
    return [row for row in every[table] if any(wanted in one.cell(row).casefold() for one in columns)]


def sorts_of(table: TopTable, rows: Sequence[Any], width: int) -> list[str]:
    """The names of the columns that a table shows in so many columns, and can be sorted by."""
    return [one.sort for one in _columns_for(rows, COLUMNS[table], width)]


def table_lines(
    rows: Sequence[Any],
    table: TopTable,
    sort: str,
    width: int | None,
    *,
    reverse: bool = False,
    shown: slice = slice(None),
) -> list[Styled]:
    """Heading and rows of one table. shown: which of the sorted rows. width: None for as wide as it is.

    Where the table has no column of the name it is sorted by its main figure.
    """
    columns = COLUMNS[table]
    if width is None:
        chosen = [one for one in columns if not one.wide]
        widths = [_needed(rows, one, is_whole=True) for one in chosen]
    else:
        chosen = _columns_for(rows, columns, width)
        widths = _widths(rows, chosen, width)
    by = _sorted_by(columns, sort)
    heading = [f"{one.heading}*" if one is by else one.heading for one in chosen]
    lines = [Styled(_line(heading, chosen, widths, width), "", is_bold=True)]
    for row in _sorted(rows, by, reverse=reverse)[shown]:
        lines.append(Styled(_line([one.cell(row) for one in chosen], chosen, widths, width), _COLOURS[table](row)))
    return lines


def head_lines(view: TopView, width: int | None, *, note: str, most: int | None = None) -> list[Styled]:
    """The title, then a line for each silent host with the age of its readings. most: lines of hosts."""
    from vgpuctl.model.times import format_time_to_second

    silent = [one for one in view.hosts if one.error is not None]
    text = (
        f"{format_time_to_second(view.at)}  {counted(len(view.hosts), 'host')}, {counted(len(view.shares), 'share')}"
        f"{note}"
    )
    told = [_silence(one) for one in silent]
    if most is not None and len(told) > most:
        told = [*told[: max(0, most - 1)], f"{counted(len(told) - max(0, most - 1), 'more host')} without an answer"]
    lines = [Styled(text if width is None else fitted(text, width).rstrip(), "", is_bold=True)]
    return [*lines, *(Styled(one if width is None else fitted(one, width).rstrip(), "red") for one in told)]


def sort_in_words(table: TopTable, sort: str, *, reverse: bool) -> str:
    """What the rows are sorted by, as in `by SHARE%, reversed`."""
    return f"by {_sorted_by(COLUMNS[table], sort).heading}{', reversed' * reverse}"


def _sorted_by(columns: Sequence[TopColumn[Row]], sort: str) -> TopColumn[Row]:
    main = next(one for one in columns if one.heading in _MAIN)
    return next((one for one in columns if one.sort == sort), main)


def _silence(one: TopHost) -> str:
    age = "nothing was read" if one.age_s is None else f"last read {one.age_s:.0f} s ago"
    return f"{one.host}: no answer, {age}: {one.error}"


def _sorted(rows: Iterable[Row], by: TopColumn[Row], *, reverse: bool) -> list[Row]:
    """Figures from the highest, names from the first in natural order; what is not known is last either way."""
    keyed: list[tuple[Any, Row]] = [(by.key(row), row) for row in rows]
    known = [(natural(key) if isinstance(key, str) else key, row) for key, row in keyed if key is not None]
    falls = any(isinstance(key, int | float) for key, _ in known)
    known.sort(key=lambda one: one[0], reverse=falls is not reverse)
    return [row for _, row in known] + [row for key, row in keyed if key is None]


def _columns_for(rows: Sequence[Row], columns: Sequence[TopColumn[Row]], width: int) -> list[TopColumn[Row]]:
    """The columns that there is room for, with names cut to their least."""
    chosen = [one for one in columns if width >= one.wide]
    sizes = {one.heading: _needed(rows, one) if one.width else min(_needed(rows, one), one.least) for one in chosen}
    while sum(sizes[one.heading] + 1 for one in chosen) - 1 > width and any(one.drops for one in chosen):
        most = max(one.drops for one in chosen)
        chosen.remove(next(one for one in reversed(chosen) if one.drops == most))
    return chosen


def _widths(rows: Sequence[Row], columns: Sequence[TopColumn[Row]], width: int) -> list[int]:
    """Numbers have their width; names share the rest by what they need, the longest gives up first."""
    needs = [_needed(rows, one) for one in columns]
    left = width - (len(columns) - 1)
    while sum(needs) > left:
        names = [at for at, one in enumerate(columns) if not one.width and needs[at] > 1] or [
            at for at, need in enumerate(needs) if need > 1
        ]
        if not names:
            break
        needs[max(names, key=lambda at: needs[at])] -= 1
    return needs


def _needed(rows: Sequence[Row], column: TopColumn[Row], *, is_whole: bool = False) -> int:
    """Figures have their width; text has what it needs, at most its width if it has one. is_whole: nothing is cut."""
    is_figure = bool(column.width) and not _is_text(column)
    if is_figure and not is_whole:
        return column.width
    least = column.width if is_figure else len(column.heading) + 1
    need = max([least, *(cell_len(printable(text)) for text in {column.cell(row) for row in rows})])
    return min(need, column.width) if column.width and not is_whole else need


def _is_text(column: TopColumn[Any]) -> bool:
    return not column.width or column.heading in ("GPU", "STATE", "DEVICE", "DRIVER")


def _line(cells: Sequence[str], columns: Sequence[TopColumn[Any]], widths: Sequence[int], width: int | None) -> str:
    parts = []
    for text, column, size in zip(cells, columns, widths, strict=True):
        shown = fitted(text if column.width else cut_in_middle(printable(text), size, "+"), size)
        parts.append(shown if _is_text(column) else f"{shown.rstrip():>{size}}")
    line = " ".join(parts).rstrip()
    return line if width is None or cell_len(line) <= width else fitted(line, width).rstrip()


def _share_colour(one: TopShare) -> str:
    if one.missing is not None:
        return "bright_black"
    if one.licence is not None and one.licence.startswith("unlicensed"):
        return "red"
    return "yellow" if (one.steal or 0.0) > _STEAL_IS_MUCH else ""


def _gpu_colour(one: TopGpu) -> str:
    if one.missing is not None:
        return "red" if one.missing == "not seen" else "bright_black"
    return "" if one.closed is None else "yellow"


_COLOURS: dict[TopTable, Callable[[Any], str]] = {
    TopTable.SHARE: _share_colour,
    TopTable.GPU: _gpu_colour,
    TopTable.TENANT: lambda _: "",
}
