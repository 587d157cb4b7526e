# SPDX-License-Identifier: Apache-2.0
"""A screen that is drawn again and again in place, and the keys that are pressed meanwhile."""

import contextlib
import os
import re
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from rich.console import Console
from rich.live import Live
from rich.text import Text

from vgpuctl.cli.shown.output import Styled, status_held
from vgpuctl.model.printable import printable

_KEYS = {
    **{b"[A": "up", b"OA": "up", b"[B": "down", b"OB": "down"},
    **{b"[C": "right", b"OC": "right", b"[D": "left", b"OD": "left"},
    **{b"[5~": "page-up", b"[6~": "page-down"},
    **{b"[H": "home", b"OH": "home", b"[1~": "home", b"[7~": "home"},
    **{b"[F": "end", b"OF": "end", b"[4~": "end", b"[8~": "end"},
}
"""What terminals send behind ESC; those of the second column in their application mode."""
_SEQUENCE = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|O[ -~])")
_UNFINISHED = re.compile(rb"\x1b(\[[0-?]*[ -/]*|O)?")
_CONTROL = {b"\x1b": "escape", b"\r": "enter", b"\n": "enter", b"\x7f": "backspace", b"\x08": "backspace"}
_REST_S = 0.05
"""How long the rest of a key's sequence takes to come over a slow line."""
_CLOSED = (termios.error, OSError)
"""What a terminal answers that was closed: the hang-up is followed by SIGCONT."""
_LAST_START = 0xF4
_MOST_TYPED = 256
_Settings: TypeAlias = list[Any]
"""What termios knows of a terminal."""
_LEAVE = b"\x1b[?25h\x1b[?1049l"
_ENTER = b"\x1b[?1049h\x1b[?25l"


class Scroll:
    """The part of many lines that a screen shows, and the keys that move it."""

    def __init__(self) -> None:
        self._first = 0
        self._room = 1

    def shown(self, count: int, room: int) -> slice:
        """The lines that are shown: `room` of `count`."""
        self._room = max(0, room)
        self._first = max(0, min(self._first, count - self._room))
        return slice(self._first, min(count, self._first + self._room))

    def press(self, key: str) -> None:
        """Move by a line, by a page, or to an end; other keys do nothing."""
        page = max(1, self._room)
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -page, "page-down": page, " ": page}
        ends = {"home": -sys.maxsize, "g": -sys.maxsize, "end": sys.maxsize, "G": sys.maxsize}
        self._first += (moves | ends).get(key, 0)


class LiveScreen:
    """The alternate screen of a terminal.

    Each drawing replaces the one before without clearing between, so that nothing flickers; on leaving, the terminal
    shows what it showed before. While the command is stopped (Ctrl-Z), the terminal is the shell's again.
    """

    def __init__(self) -> None:
        self._console = Console(no_color=bool(os.environ.get("NO_COLOR")))
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._typed = b""
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

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
        with status_held(), self._live, _keys_at_once() as before, self._following(before):
            yield self

    def key(self, timeout_s: float) -> str | None:
        """Wait for a key: its character, or `up`, `home`, `page-down`, `enter`, `escape` and so on.

        None when none came, and as soon as the terminal has another size. At the end of the input `q`.
        """
        has_keys = sys.stdin.isatty()
        while not self._typed:
            ready, _, _ = select.select([self._woken, *([sys.stdin] if has_keys else [])], [], [], max(0.0, timeout_s))
            if self._woken in ready:
                os.read(self._woken, _MOST_TYPED)
            if sys.stdin not in ready:
                return None
            with contextlib.suppress(OSError):  # of a terminal that was closed
                self._typed = os.read(sys.stdin.fileno(), _MOST_TYPED)
            if not self._typed:
                return "q"
        return self._next_key()

    def _next_key(self) -> str | None:
        """Take one key from what was typed at once; None for one that has no name."""
        if _UNFINISHED.fullmatch(self._typed) and select.select([sys.stdin], [], [], _REST_S)[0]:
            self._typed += os.read(sys.stdin.fileno(), _MOST_TYPED)
        if (found := _SEQUENCE.match(self._typed)) is not None:
            self._typed = self._typed[found.end() :]
            return _KEYS.get(found[1])
        start = self._typed[0]
        length = 1 if start > _LAST_START else 1 + (start >= 0xC2) + (start >= 0xE0) + (start >= 0xF0)  # of UTF-8
        first, self._typed = self._typed[:length], self._typed[length:]
        return _CONTROL.get(first) or first.decode("utf-8", "replace")

    @contextlib.contextmanager
    def _following(self, before: _Settings | None) -> Iterator[None]:
        """Obey Ctrl-Z, `fg` and a new size during the block. before: the terminal's settings outside of it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        out = self._console.file.fileno()

        def resume(*_: object) -> None:
            with contextlib.suppress(*_CLOSED):
                if before is not None:
                    tty.setcbreak(sys.stdin)
                os.write(out, _ENTER)
            wake()

        def pause(number: int, _frame: object) -> None:
            with contextlib.suppress(*_CLOSED):
                os.write(out, _LEAVE)
                if before is not None:
                    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_kill(threading.get_ident(), number)  # stops here, until SIGCONT
            signal.signal(number, pause)
            resume()

        def wake(*_: object) -> None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake, b"x")

        handlers: dict[signal.Signals, Callable[..., None]] = {
            signal.SIGTSTP: pause,
            signal.SIGCONT: resume,
            signal.SIGWINCH: wake,
        }
        replaced = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in replaced.items():
                signal.signal(number, handler)


def _style(one: Styled) -> str:
    return " ".join(filter(None, ("bold" if one.is_bold else "", one.colour)))


@contextlib.contextmanager
def _keys_at_once() -> Iterator[_Settings | None]:
    """Give the terminal's settings of before; None where the input is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield before
    finally:
        with contextlib.suppress(*_CLOSED):
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
