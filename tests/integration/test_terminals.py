# SPDX-License-Identifier: Apache-2.0
"""A guest's output, through the console's filter, in a real tmux and in an emulator."""

from pathlib import Path

import pytest

from tests.proof.terminals import EFFECTS, Emulator, effects_of, running_tmux, strings
from vgpuctl.guests.terminal_filter import TerminalFilter


def test_without_the_filter_terminals_do_what_the_guest_says(tmp_path: Path) -> None:
    """So the checks of this file can fail."""
    emulator = Emulator()
    emulator.feed(EFFECTS)
    assert [one.partition(" ")[0] for one in emulator.effects] == ["title", "answer", "answer"]
    with running_tmux(tmp_path) as tmux:
        assert tmux.effects() == []
        tmux.feed(EFFECTS)
        assert [one.partition(" ")[0] for one in tmux.effects()] == ["titles", "clipboard", "answers"]


@pytest.mark.parametrize("between", [b"", b"\x00", b"\n", b"\x7f", b"\x0b\x08"])
def test_controls_within_a_sequence_hide_nothing(tmp_path: Path, between: bytes) -> None:
    sent = EFFECTS.replace(b"\x1b", b"\x1b" + between)
    with running_tmux(tmp_path) as tmux:
        tmux.feed(TerminalFilter().feed(sent))
        assert tmux.effects() == []


def test_what_a_guest_leaves_behind_is_undone_at_the_end(tmp_path: Path) -> None:
    passing = TerminalFilter()
    with running_tmux(tmp_path) as tmux:
        tmux.feed(b"")
        first = tmux.state()
        tmux.feed(passing.feed(b"\x1b[1;3r\x1b[3g\x1b[5;4H\x1bH\x1b[?1h\x1b=\x1b[?25l\x1b[?7l\x1b[5 q\x1b)0\x0e"))
        assert tmux.state() != first
        tmux.feed(passing.leave())
        assert tmux.state() == first


def test_generated_output_reaches_nothing_but_the_window(tmp_path: Path) -> None:
    """`make fuzz` sends 100,000."""
    assert effects_of(strings(2000, 35), tmp_path) == []
