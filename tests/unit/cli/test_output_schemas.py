# SPDX-License-Identifier: Apache-2.0
"""Every command that prints JSON has a published schema of it."""

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import jsonschema

from vgpuctl.cli.contents import file_name
from vgpuctl.cli.forms.json_schema import output_schema
from vgpuctl.cli.main import command as command_line

ROOT = Path(__file__).parents[3]
CLI = ROOT / "vgpuctl" / "cli"
FOLDER = ROOT / "docs" / "schemas" / "output"


@functools.cache
def _schemas() -> Mapping[str, Mapping[str, Any] | None]:
    """The schema of each command that prints JSON."""
    context = click.Context(command_line)
    found = {name: command_line.get_command(context, name) for name in command_line.list_commands(context)}
    return {
        name: output_schema(one)
        for name, one in found.items()
        if one is not None and any(parameter.name in ("form", "as_json") for parameter in one.params)
    }


def test_every_command_that_prints_json_has_a_schema() -> None:
    assert [name for name, schema in _schemas().items() if schema is None] == []


def test_every_published_schema_is_that_of_its_command() -> None:
    published = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FOLDER.glob("*.json")}
    assert published == {file_name(name): schema for name, schema in _schemas().items()}


def test_every_schema_is_a_schema() -> None:
    """Each type is checked once, though many commands have it among their definitions."""
    types: dict[str, Any] = {}
    for schema in filter(None, _schemas().values()):
        own = {key: value for key, value in schema.items() if key != "$defs"}
        types |= {json.dumps(one, sort_keys=True): one for one in (own, *schema.get("$defs", {}).values())}
    assert len(types) > 200
    jsonschema.Draft202012Validator.check_schema({"$defs": types})


def test_commands_print_json_by_the_type_that_they_declare_alone() -> None:
    rooms = [path for path in sorted(CLI.rglob("*.py")) if path.parent.name not in ("shown", "lists")]
    found = [str(path) for path in rooms if re.search(r"\bprint_json\(", path.read_text(encoding="utf-8"))]
    assert (len(rooms) > 100, found) == (True, [])
