# SPDX-License-Identifier: Apache-2.0
"""The JSON of a command, by its declared type.

A module of a command has `_JSON: "JsonOutput[Type]"`, or a `Listing` whose last type is that of a row. mypy checks that
the command prints that type, and `vgpuctl.cli.support.json_schema` makes the command's schema from the same words.
"""

from typing import Generic, TypeVar

from vgpuctl.cli.support.output import print_json

Printed = TypeVar("Printed")


class JsonOutput(Generic[Printed]):
    """Prints values of one type as JSON, or YAML where `-o yaml` was given.

    commands: only the commands of the module that begin so print it.
    """

    def __init__(self, commands: str = "") -> None:
        self.commands = commands

    def print(self, value: Printed, *, indent: int | None = 2) -> None:
        """Print the value; indent None for one line."""
        print_json(value, indent=indent)
