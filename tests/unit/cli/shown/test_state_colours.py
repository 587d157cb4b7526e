# SPDX-License-Identifier: Apache-2.0
"""Colours of states."""

import pytest

from vgpuctl.cli.shown.state_colours import colour_of_state


@pytest.mark.parametrize(
    ("state", "colour"),
    [
        ("running, 3m ago", "green"),
        ("running, 3m ago; declared stopped", "yellow"),
        ("unknown since 2026-11-01 14:00 UTC, running 3m ago", "yellow"),
        ("not ready", "yellow"),
        ("ready", "green"),
        ("libvirt: no answer", "red"),
        ("host-key-changed", "red"),
        ("failed: no such file", "red"),
        ("cut short", "red"),
        ("stopped", None),
        (None, None),
    ],
)
def test_the_worst_word_of_a_state_gives_its_colour(state: str | None, colour: str | None) -> None:
    assert colour_of_state(state) == colour
