# SPDX-License-Identifier: Apache-2.0
"""A command takes --yes exactly when docs/conventions.md has it among those that ask."""

import click

from tests.asking import ASKING_FOR_SEVERAL, asking
from vgpuctl.cli.contents import COMMANDS
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
    assert found == asking() | ASKING_FOR_SEVERAL
    assert not asking() & ASKING_FOR_SEVERAL


def test_every_verb_that_ends_something_asks() -> None:
    assert {name for name in COMMANDS if name.startswith(_ENDING)} <= asking()
