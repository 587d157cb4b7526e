# SPDX-License-Identifier: Apache-2.0
"""A table as lines of text. Where a terminal is too narrow, texts are shortened and columns left out; no cell breaks.

Each column says if it may be shortened: an address or a name is shown whole or not at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from vgpuctl.model.printable import printable

_GAP = 2
_SHORT = (24, 12)
"""Widths that a long text is cut to, one after the other; a heading is never cut."""


@dataclass(frozen=True)
class TableColumn:
    """The heading of a column and what it may lose.

    drops: 0 for a column that is always shown; else the higher, the sooner it is left out. is_text: its cells are
    sentences and may be cut.
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
    lines: list[tuple[int | None, str]] = [(None, _line([columns[at].heading for at in shown], shown, widths))]
    for number, row in enumerate(cells):
        for part in range(max(len(row[at]) for at in shown)):
            texts = [row[at][part] if part < len(row[at]) else "" for at in shown]
            lines.append((number, _line(texts, shown, widths)))
    left_out = tuple(column.heading for at, column in enumerate(columns) if at not in shown)
    return TableText(tuple(lines), left_out)


def _fit(columns: Sequence[TableColumn], widths: list[int], width: int) -> list[int]:
    """Shorten texts in `widths` and choose the columns that remain."""
    shown, whole = list(range(len(columns))), list(widths)
    _cut(columns, widths, shown, width, _SHORT[0])
    for at in sorted(shown, key=lambda at: (-columns[at].drops, -at)):
        if _total(widths, shown) <= width or not columns[at].drops:
            break
        shown.remove(at)
    widths[:] = whole
    _cut(columns, widths, shown, width, _SHORT[1])
    return shown


def _cut(columns: Sequence[TableColumn], widths: list[int], shown: Sequence[int], width: int, least: int) -> None:
    """Take from the widest text what is missing, down to `least`."""
    for at in sorted((at for at in shown if columns[at].is_text), key=lambda at: -widths[at]):
        missing = _total(widths, shown) - width
        if missing > 0:
            widths[at] = min(widths[at], max(least, cell_len(columns[at].heading), widths[at] - missing))


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[at] for at in shown) + _GAP * (len(shown) - 1)


def _line(texts: Sequence[str], shown: Sequence[int], widths: Sequence[int]) -> str:
    fitted = [
        set_cell_size(text, widths[at] - 1) + "…" if cell_len(text) > widths[at] else set_cell_size(text, widths[at])
        for text, at in zip(texts, shown, strict=True)
    ]
    return (" " * _GAP).join(fitted).rstrip()


def _lines(cell: object) -> list[str]:
    if isinstance(cell, tuple):
        return [line for one in cell for line in _lines(one)] or ["-"]
    return ["-" if cell is None else printable(str(cell))]
