# SPDX-License-Identifier: Apache-2.0
"""A table as lines of text. Where a terminal is too narrow, texts are shortened and columns left out; no cell breaks.

Each column says if it may be shortened, and when it is left out. A name or an address is shown whole; only where the
columns that are never left out have no room otherwise is it cut in the middle.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from vgpuctl.cli.shown.terminal import cut_in_middle
from vgpuctl.model.printable import printable

_GAP = 2
_SHORT = (24, 12)
"""Widths that a long text is cut to, one after the other, and a name to the second; a heading is never cut."""


@dataclass(frozen=True)
class TableColumn:
    """The heading of a column and what it may lose.

    drops: 0 for a column that is needed to act, which is never left out; else the higher, the sooner it is.
    is_text: its cells are sentences and may be cut at the end.
    """

    heading: str
    drops: int = 0
    is_text: bool = False


@dataclass(frozen=True)
class TableText:
    """The lines of a table, with the index of each one's row (None for the heading), and the columns left out."""

    lines: tuple[tuple[int | None, str], ...]
    left_out: tuple[str, ...]


def table_text(columns: Sequence[TableColumn], rows: Sequence[Sequence[object]], width: int | None) -> TableText:
    """Lay a table out in `width` columns of a terminal; None for as wide as it is.

    A cell that is a tuple has its parts below one another; None is a dash.
    """
    cells = [[_lines(cell) for cell in row] for row in rows]
    widths = [
        max([cell_len(column.heading), *(cell_len(line) for row in cells for line in row[index])])
        for index, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    if width is not None:
        shown = _fit(columns, widths, width)
    lines: list[tuple[int | None, str]] = [(None, _line([columns[at].heading for at in shown], shown, columns, widths))]
    for number, row in enumerate(cells):
        for part in range(max(len(row[at]) for at in shown)):
            texts = [row[at][part] if part < len(row[at]) else "" for at in shown]
            lines.append((number, _line(texts, shown, columns, widths)))
    left_out = tuple(column.heading for at, column in enumerate(columns) if at not in shown)
    return TableText(tuple(lines), left_out)


def _fit(columns: Sequence[TableColumn], widths: list[int], width: int) -> list[int]:
    """Shorten texts in `widths`, then names, and choose the columns that remain."""
    shown, whole = list(range(len(columns))), list(widths)
    texts = [at for at in shown if columns[at].is_text]
    _cut(columns, widths, shown, texts, width, _SHORT[0])
    for at in sorted(shown, key=lambda at: (-columns[at].drops, -at)):
        if _total(widths, shown) <= width or not columns[at].drops:
            break
        shown.remove(at)
    widths[:] = whole
    _cut(columns, widths, shown, texts, width, _SHORT[1])
    _cut(columns, widths, shown, shown, width, _SHORT[1])
    return shown


def _cut(
    columns: Sequence[TableColumn],
    widths: list[int],
    shown: Sequence[int],
    which: Sequence[int],
    width: int,
    least: int,
) -> None:
    """Take from the widest of some columns until all fit, down to `least`."""
    while _total(widths, shown) > width:
        wide = [at for at in which if at in shown and widths[at] > max(least, cell_len(columns[at].heading))]
        if not wide:
            return
        widths[max(wide, key=lambda at: widths[at])] -= 1


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[at] for at in shown) + _GAP * (len(shown) - 1)


def _line(texts: Sequence[str], shown: Sequence[int], columns: Sequence[TableColumn], widths: Sequence[int]) -> str:
    fitted = []
    for text, at in zip(texts, shown, strict=True):
        if cell_len(text) > widths[at]:
            size = widths[at]
            text = set_cell_size(text, size - 1) + "…" if columns[at].is_text else cut_in_middle(text, size, "…")
        fitted.append(set_cell_size(text, widths[at]))
    return (" " * _GAP).join(fitted).rstrip()


def _lines(cell: object) -> list[str]:
    if isinstance(cell, tuple):
        return [line for one in cell for line in _lines(one)] or ["-"]
    return ["-" if cell is None else printable(str(cell))]
