# SPDX-License-Identifier: Apache-2.0
"""Each help page ends with two examples or more, which are command lines that the command takes."""

from pathlib import Path

import click
import pytest

from vgpuctl.cli.contents import COMMANDS
from vgpuctl.cli.frame.command_line import begin
from vgpuctl.cli.main import command as command_line
from vgpuctl.cli.main import examples_of

_LONGEST_MEANING = 60


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_two_examples_that_it_takes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VGPUCTL_CONFIG", "")
    parent = click.Context(command_line, info_name="vgpuctl")
    command = command_line.get_command(parent, name)
    assert command is not None
    examples = examples_of(name)
    assert len({one.line for one in examples}) >= 2, "two examples in the examples.py of its folder"
    for one in examples:
        begin()
        first, found, arguments = command_line.resolve_command(parent, list(one.arguments))
        assert first == name and found is not None
        assert 0 < len(one.meaning) <= _LONGEST_MEANING and not one.meaning.endswith(".")
        command.make_context(name, arguments, parent=parent)
    begin()
