# SPDX-License-Identifier: Apache-2.0
"""Commands that messages and hints name with arguments can be run as they are written."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from tests.unit.uses_of_names import PACKAGE, files, nodes
from vgpuctl.cli.main import command as command_line

_NAMED = re.compile(r"`vgpuctl ([a-z]+(?:-[a-z]+)*)( [^`]+)`")
_GAP = "VALUE"
"""Stands for what an f-string fills in."""


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every text of a module with its line, each gap of an f-string filled."""
    inner = {id(one) for node in nodes(path) if isinstance(node, ast.JoinedStr) for one in ast.walk(node)}
    for node in nodes(path):
        if isinstance(node, ast.JoinedStr):
            parts = (str(one.value) if isinstance(one, ast.Constant) else _GAP for one in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def _problems(command: click.Command, arguments: str) -> Iterator[str]:
    """Name each option that the arguments lack, and each that the command does not have."""
    words = [word.partition("=")[0] for word in arguments.split()]
    options = {flag: one for one in command.params if isinstance(one, click.Option) for flag in one.opts}
    yield from (f"no option {word}" for word in words if word.startswith("--") and word not in options)
    for option in set(options.values()):
        if option.required and not set(option.opts) & set(words):
            yield f"needs {option.opts[0]}"


def test_commands_that_are_named_with_arguments_have_all_that_they_need() -> None:
    context, problems, count = click.Context(command_line), [], 0
    for path in files():
        for line, text in _texts(path):
            for name, arguments in _NAMED.findall(text):
                command, place = command_line.get_command(context, name), f"{path.relative_to(PACKAGE)}:{line}: {name}"
                found = ["there is none"] if command is None else _problems(command, arguments)
                problems += [f"{place}: {one}" for one in found]
                count += 1
    assert count > 40 and problems == []
