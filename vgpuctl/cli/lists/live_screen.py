# SPDX-License-Identifier: Apache-2.0
"""A screen that is drawn again and again in place, and the keys that are pressed meanwhile."""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from vgpuctl.cli.shown.output import Styled, status_held
from vgpuctl.model.printable import printable

_ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[5~": "page-up", b"\x1b[6~": "page-down"}

_MOST_TYPED = 256


class LiveScreen:
    """The alternate screen of a terminal.

    Each drawing replaces the one before without clearing between, so that nothing flickers; on leaving, the terminal
    shows what it showed before.
    """

    def __init__(self) -> None:
        self._console = Console(no_color=bool(os.environ.get("NO_COLOR")))
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._typed = b""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        return max(1, self._console.size.width), max(1, self._console.size.height)

    def draw(self, lines: Sequence[Styled]) -> None:
        """Show these lines from the top."""
        shown = Text(no_wrap=True, overflow="crop", end="")
        for number, one in enumerate(lines):
            shown.append("\n" * bool(number))
            shown.append(printable(one.text), style=_style(one))
        self._live.update(shown, refresh=True)

    @contextlib.contextmanager
    def shown(self) -> Iterator["LiveScreen"]:
        """Show the screen during the block; keys are read without waiting for Return."""
        with status_held(), self._live, _keys_at_once():
            yield self

    def key(self, timeout_s: float) -> str | None:
        """Wait for a key: its character, `up`, `down`, `page-up` or `page-down`; None when none came.

        At the end of the input `q`.
        """
        if not sys.stdin.isatty():
            select.select([], [], [], max(0.0, timeout_s))
            return None
        if self._typed:
            return self._next_key()
        try:
            ready, _, _ = select.select([sys.stdin.fileno()], [], [], max(0.0, timeout_s))
        except InterruptedError:
            return None
        if not ready:
            return None
        self._typed = os.read(sys.stdin.fileno(), _MOST_TYPED)
        return self._next_key() if self._typed else "q"

    def _next_key(self) -> str:
        """Take one key from what was typed at once."""
        for sequence, name in _ARROWS.items():
            if self._typed.startswith(sequence):
                self._typed = self._typed[len(sequence) :]
                return name
        first, self._typed = self._typed[:1], self._typed[1:]
        return first.decode("ascii", "replace")


def _style(one: Styled) -> str:
    return " ".join(filter(None, ("bold" if one.is_bold else "", one.colour)))


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
