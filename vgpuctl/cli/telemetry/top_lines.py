# SPDX-License-Identifier: Apache-2.0
"""The lines that `top` shows, in exactly as many columns as there are."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from rich.cells import cell_len

from vgpuctl.cli.shown.output import Styled
from vgpuctl.cli.shown.terminal import fitted
from vgpuctl.model.plural import counted
from vgpuctl.model.printable import printable
from vgpuctl.usecases.telemetry.top import TopGpu, TopHost, TopShare, TopTenant, TopView

Row = TypeVar("Row")
_NARROWEST = 6
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
    columns; 0 for names, which share what is left. weight: the highest goes first where room is short.
    wide: only from so many columns on.
    """

    heading: str
    sort: str
    cell: Callable[[Row], str]
    key: Callable[[Row], Any]
    width: int = 0
    weight: int = 0
    wide: int = 0


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


SHARE_COLUMNS: tuple[TopColumn[TopShare], ...] = (
    TopColumn("TENANT", "tenant", lambda one: one.tenant, lambda one: one.tenant, weight=2),
    TopColumn("VM", "vm", lambda one: one.vm, lambda one: one.vm),
    TopColumn("HOST", "host", lambda one: one.host, lambda one: one.host, weight=4),
    TopColumn("GPU", "gpu", lambda one: _short_gpu(one.gpu), lambda one: one.gpu, 8, 6),
    TopColumn("PROFILE", "profile", lambda one: one.profile, lambda one: one.profile, weight=3),
    TopColumn("SHARE%", "share", lambda one: _percent(one.promised_used), lambda one: one.promised_used, 7),
    TopColumn("UTIL", "util", lambda one: _percent(one.utilization), lambda one: one.utilization, 5, 1),
    TopColumn(
        "FB",
        "fb",
        lambda one: _sizes(one.framebuffer_used_bytes, one.framebuffer_size_bytes),
        lambda one: one.framebuffer_used_bytes,
        8,
        1,
    ),
    TopColumn("STEAL", "steal", lambda one: _percent(one.steal), lambda one: one.steal, 6, 5),
    TopColumn(
        "STATE", "state", lambda one: one.missing or one.licence or "-", lambda one: one.missing or one.licence, 12, 1
    ),
    TopColumn("PROMISED", "promised", lambda one: _percent(one.promised), lambda one: one.promised, 8, 7, 110),
    TopColumn("SEAT", "seat", lambda one: one.licence_pool or "-", lambda one: one.licence_pool, 10, 8, 130),
    TopColumn("DRIVER", "driver", lambda one: one.guest_driver or "-", lambda one: one.guest_driver, 12, 8, 120),
    TopColumn("DEVICE", "device", lambda one: one.device, lambda one: one.device, 36, 9, 160),
)
GPU_COLUMNS: tuple[TopColumn[TopGpu], ...] = (
    TopColumn("HOST", "host", lambda one: one.host, lambda one: one.host),
    TopColumn("GPU", "gpu", lambda one: one.gpu, lambda one: one.gpu, 12),
    TopColumn("MODEL", "model", lambda one: one.model or "-", lambda one: one.model, weight=3),
    TopColumn("SHARES", "shares", lambda one: str(one.shares), lambda one: one.shares, 6, 2),
    TopColumn("UTIL", "util", lambda one: _percent(one.utilization), lambda one: one.utilization, 5),
    TopColumn(
        "FB",
        "fb",
        lambda one: _sizes(one.framebuffer_used_bytes, one.framebuffer_total_bytes),
        lambda one: one.framebuffer_used_bytes,
        8,
        1,
    ),
    TopColumn("POWER", "power", lambda one: _number(one.power_watts, "W"), lambda one: one.power_watts, 5, 4),
    TopColumn(
        "TEMP", "temp", lambda one: _number(one.temperature_celsius, "C"), lambda one: one.temperature_celsius, 4, 4
    ),
    TopColumn("STATE", "state", lambda one: one.missing or "-", lambda one: one.missing, 12, 1),
)
TENANT_COLUMNS: tuple[TopColumn[TopTenant], ...] = (
    TopColumn("TENANT", "tenant", lambda one: one.tenant, lambda one: one.tenant),
    TopColumn("SHARES", "shares", lambda one: str(one.shares), lambda one: one.shares, 6, 1),
    TopColumn("MEASURED", "measured", lambda one: str(one.measured), lambda one: one.measured, 8, 3),
    TopColumn("SHARE%", "share", lambda one: _percent(one.promised_used), lambda one: one.promised_used, 7),
    TopColumn(
        "GPUS USED",
        "util",
        lambda one: "-" if one.utilization is None else f"{one.utilization:.2f}",
        lambda one: one.utilization,
        9,
        2,
    ),
    TopColumn(
        "FB",
        "fb",
        lambda one: _sizes(one.framebuffer_used_bytes, one.framebuffer_size_bytes),
        lambda one: one.framebuffer_used_bytes,
        11,
        1,
    ),
)


def sorts_of(table: TopTable) -> list[str]:
    """The names of the columns that a table can be sorted by."""
    if table is TopTable.SHARE:
        return [one.sort for one in SHARE_COLUMNS]
    return [one.sort for one in (GPU_COLUMNS if table is TopTable.GPU else TENANT_COLUMNS)]


def table_lines(
    view: TopView, table: TopTable, sort: str, width: int, *, reverse: bool = False, rows: slice = slice(None)
) -> list[Styled]:
    """Heading and rows of one table. rows: which of them.

    Where the table has no column of the name it is sorted by its main figure.
    """
    if table is TopTable.SHARE:
        return _lines(view.shares, SHARE_COLUMNS, _RowOrder(sort, reverse), width, rows, _share_colour)
    if table is TopTable.GPU:
        return _lines(view.gpus, GPU_COLUMNS, _RowOrder(sort, reverse), width, rows, _gpu_colour)
    return _lines(view.tenants, TENANT_COLUMNS, _RowOrder(sort, reverse), width, rows, lambda _: "")


def count_rows(view: TopView, table: TopTable) -> int:
    """How many rows a table has."""
    return len({TopTable.SHARE: view.shares, TopTable.GPU: view.gpus, TopTable.TENANT: view.tenants}[table])


def head_lines(view: TopView, width: int, *, note: str) -> list[Styled]:
    """The title, then a line for each silent host with the age of its readings."""
    from vgpuctl.model.times import format_time_to_second

    silent = [one for one in view.hosts if one.error is not None]
    text = (
        f"{format_time_to_second(view.at)}  {counted(len(view.hosts), 'host')}, {counted(len(view.shares), 'share')}"
        f"{note}"
    )
    lines = [Styled(fitted(text, width).rstrip(), "", is_bold=True)]
    return [*lines, *(Styled(fitted(_silence(one), width).rstrip(), "red") for one in silent)]


def _silence(one: TopHost) -> str:
    age = "nothing was read" if one.age_s is None else f"last read {one.age_s:.0f} s ago"
    return f"{one.host}: no answer, {age}: {one.error}"


@dataclass(frozen=True)
class _RowOrder:
    sort: str
    reverse: bool


def _lines(
    rows: Sequence[Row],
    columns: Sequence[TopColumn[Row]],
    order: _RowOrder,
    width: int,
    shown: slice,
    colour: Callable[[Row], str],
) -> list[Styled]:
    chosen = _columns_for(columns, width)
    widths = _widths(rows, chosen, width)
    main = next(one for one in columns if one.heading in _MAIN)
    by = next((one for one in columns if one.sort == order.sort), main)
    heading = [f"{one.heading}*" if one is by else one.heading for one in chosen]
    lines = [Styled(_line(heading, chosen, widths, width), "", is_bold=True)]
    for row in _sorted(rows, by, reverse=order.reverse)[shown]:
        lines.append(Styled(_line([one.cell(row) for one in chosen], chosen, widths, width), colour(row)))
    return lines


def _sorted(rows: Iterable[Row], by: TopColumn[Row], *, reverse: bool) -> list[Row]:
    """Figures from the highest, names from the first; what is not known is last either way."""
    keyed: list[tuple[Any, Row]] = [(by.key(row), row) for row in rows]
    known = [one for one in keyed if one[0] is not None]
    falls = bool(known) and not isinstance(known[0][0], str)
    known.sort(key=lambda one: one[0], reverse=falls is not reverse)
    return [row for _, row in known] + [row for key, row in keyed if key is None]


def _columns_for(columns: Sequence[TopColumn[Row]], width: int) -> list[TopColumn[Row]]:
    """The columns that there is room for; the first to go are those of the highest weight."""
    chosen = [one for one in columns if width >= one.wide]
    while len(chosen) > 1 and sum((one.width or _NARROWEST) + 1 for one in chosen) - 1 > width:
        heaviest = max(one.weight for one in chosen)
        chosen.remove(next(one for one in reversed(chosen) if one.weight == heaviest))
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


def _needed(rows: Sequence[Row], column: TopColumn[Row]) -> int:
    """Figures have their width; text has what it needs, at most its width if it has one."""
    if column.width and not _is_text(column):
        return column.width
    need = max([len(column.heading) + 1, *(cell_len(printable(text)) for text in {column.cell(row) for row in rows})])
    return min(need, column.width) if column.width else need


def _is_text(column: TopColumn[Any]) -> bool:
    return not column.width or column.heading in ("GPU", "STATE", "DEVICE", "DRIVER")


def _line(cells: Sequence[str], columns: Sequence[TopColumn[Any]], widths: Sequence[int], width: int) -> str:
    parts = []
    for text, column, size in zip(cells, columns, widths, strict=True):
        shown = fitted(text, size)
        parts.append(shown if _is_text(column) else f"{shown.rstrip():>{size}}")
    return fitted(" ".join(parts), width).rstrip() if width < 10 else " ".join(parts).rstrip()


def _share_colour(one: TopShare) -> str:
    if one.missing is not None:
        return "bright_black"
    if one.licence is not None and one.licence.startswith("unlicensed"):
        return "red"
    return "yellow" if (one.steal or 0.0) > _STEAL_IS_MUCH else ""


def _gpu_colour(one: TopGpu) -> str:
    return "bright_black" if one.missing is not None else ""
