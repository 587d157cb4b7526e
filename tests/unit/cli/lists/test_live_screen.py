# SPDX-License-Identifier: Apache-2.0
"""The live screen: keys as terminals send them, the part of the rows that it shows, and terminals without a screen."""

import os
import pty
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpuctl.cli.lists.live_screen import LiveScreen, Scroll
from vgpuctl.cli.shown.terminal import has_screen


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where the keys of a terminal are typed that is this process's stdin."""
    master, slave = pty.openpty()
    settings = termios.tcgetattr(slave)
    settings[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    with os.fdopen(slave) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield master
    os.close(master)


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[6~", ["up", "down", "page-up", "page-down"]),
        (b"\x1b[H\x1bOH\x1b[1~\x1b[F\x1b[4~", ["home", "home", "home", "end", "end"]),
        (b"\x1b[C\x1b[D", ["right", "left"]),
        (b"\x1bOP\x1b[1;5A\x1b[3~s", [None, None, None, "s"]),
        (b"\x7f\r\x1b", ["backspace", "enter", "escape"]),
        ("é網".encode(), ["é", "網"]),
        (b"\xff", ["\ufffd"]),
    ],
)
def test_keys_have_names_and_unknown_ones_are_no_letters(typing: int, typed: bytes, keys: list[str | None]) -> None:
    os.write(typing, typed)
    screen = LiveScreen()
    assert [screen.key(60) for _ in keys] == keys
    assert screen.key(0) is None


def test_a_scroll_moves_by_lines_and_pages_and_stays_within_the_rows() -> None:
    scroll, seen = Scroll(), []
    for key in ("", "down", "page-down", "end", "up", "page-up", "home", "up"):
        scroll.press(key)
        shown = scroll.shown(50, 10)
        seen.append((shown.start, shown.stop))
    assert seen == [(0, 10), (1, 11), (11, 21), (40, 50), (39, 49), (29, 39), (0, 10), (0, 10)]
    scroll.press("end")
    assert scroll.shown(50, 10).start == 40
    assert (scroll.shown(5, 10).start, scroll.shown(5, 10).stop) == (0, 5)
    assert scroll.shown(0, 0) == slice(0, 0)


@pytest.mark.parametrize(("term", "has"), [("xterm", True), ("dumb", False), ("", False), ("unknown", False)])
def test_a_dumb_terminal_has_no_screen(term: str, has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", term)
    with os.fdopen(slave, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert has_screen() is has
    os.close(master)
    with Path(os.devnull).open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert not has_screen()
