# SPDX-License-Identifier: Apache-2.0
"""A command takes --yes exactly when it is in the table of commands that ask."""

import re
from pathlib import Path

import click

from vgpuctl.cli.contents import COMMANDS
from vgpuctl.cli.frame.questions import ASKING, ASKING_FOR_SEVERAL
from vgpuctl.cli.main import command as command_line

_ENDING = ("delete-", "forget-", "offboard-", "prune-", "cancel-", "leave-", "revert-")


def test_the_commands_with_yes_are_those_of_the_table() -> None:
    context = click.Context(command_line)
    found = set()
    for name in COMMANDS:
        one = command_line.get_command(context, name)
        assert one is not None
        if any("--yes" in parameter.opts for parameter in one.params):
            found.add(name)
    assert found == ASKING.keys() | ASKING_FOR_SEVERAL
    assert not ASKING.keys() & ASKING_FOR_SEVERAL


def test_every_verb_that_ends_something_asks() -> None:
    assert {name for name in COMMANDS if name.startswith(_ENDING)} <= ASKING.keys()


def test_the_page_has_every_reason() -> None:
    page = (Path(__file__).parents[4] / "docs" / "conventions.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (it [^|]+) \|$", page, re.M))
    assert rows == {name: f"it {reason}" for name, reason in ASKING.items()}
