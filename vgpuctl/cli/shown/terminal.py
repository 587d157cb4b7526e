# SPDX-License-Identifier: Apache-2.0
"""The size and the characters of this terminal, and text that fits into it."""

import os
import shutil
import sys

from rich.cells import cell_len, set_cell_size

from vgpuctl.model.printable import printable

_PIPED = (80, 24)
_WIDEST = 400


def terminal_width() -> int:
    """Columns of the terminal (COLUMNS counts), 80 where the output is piped."""
    return max(1, min(shutil.get_terminal_size(_PIPED).columns, _WIDEST))


def has_screen() -> bool:
    """True if the output is a terminal that can be drawn on: with TERM `dumb`, or none, it cannot."""
    return sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


def has_blocks() -> bool:
    """True if the output takes Unicode's block characters."""
    try:
        "▁█·".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def fitted(text: str, width: int) -> str:
    """Text in exactly `width` columns: cut, with `+` for what is cut, or filled with blanks.

    A wide character takes two columns; control characters are escaped first, since the escape is what is shown.
    """
    shown = printable(text)
    if cell_len(shown) > width:
        return set_cell_size(shown, width - 1) + "+" if width > 0 else ""
    return set_cell_size(shown, width)


def cut_in_middle(text: str, width: int, mark: str) -> str:
    """A name in at most `width` columns, with the mark for what is cut: its end tells it from others like its start."""
    if cell_len(text) <= width or width < 1:
        return text if width > 0 else ""
    rest = width - cell_len(mark)
    end = text
    while cell_len(end) > rest // 2:
        end = end[1:]
    return set_cell_size(text, rest - cell_len(end)) + mark + end


def wrapped(words: list[str], width: int, *, indent: str = "") -> list[str]:
    """Words in lines of at most `width` columns, each behind the indent; a word that is longer has its own line."""
    lines: list[str] = []
    line = ""
    for word in map(printable, words):
        if line and cell_len(indent) + cell_len(line) + 1 + cell_len(word) > width:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, indent + line] if line else lines
