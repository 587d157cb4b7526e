# SPDX-License-Identifier: Apache-2.0
"""The terminal that a console is attached to."""

import os
import pty
import sys
import termios

import pytest

from vgpuctl.cli.display.console import raw_terminal


def test_what_was_typed_while_the_console_opened_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "r") as keyboard:
        monkeypatch.setattr(sys, "stdin", keyboard)
        before = termios.tcgetattr(terminal)
        os.write(controller, b"\x1d")
        with raw_terminal():
            assert termios.tcgetattr(terminal) != before
            assert os.read(terminal, 1) == b"\x1d"
        assert termios.tcgetattr(terminal) == before
    os.close(controller)


def test_without_a_terminal_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "r") as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        with raw_terminal():
            assert pipe.read() == ""
