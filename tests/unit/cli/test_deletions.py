# SPDX-License-Identifier: Apache-2.0
"""Commands on things of the store are alike: those that delete, and those that create or change one thing."""

import importlib
from typing import Any

import click
import pytest

from vgpuctl.cli.contents import COMMANDS, FOLDERS, MADE_BY
from vgpuctl.cli.forms.json_schema import output_schema
from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.frame.rehearsal import is_rehearsed
from vgpuctl.cli.main import command as vgpuctl
from vgpuctl.store.names import CompletedKind

_OTHERWISE = {
    "delete-security-rule": "takes rules out of a group, which stays",
    "delete-snapshot": "names a VM and one of its snapshots, of which only the newest can go",
}
DELETING = sorted(
    {one for one in COMMANDS if one.startswith("delete-")} - set(_OTHERWISE) | {"cancel-reservation", "leave-queue"}
)


def _command(name: str) -> click.Command:
    found = vgpuctl.get_command(click.Context(vgpuctl), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", DELETING)
def test_a_command_that_deletes_has_the_options_of_all(name: str) -> None:
    command = _command(name)
    options = {text for one in command.params for text in one.opts}
    assert {"--yes", "--if-exists", "--dry-run", "--json"} <= options
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    assert [one.nargs for one in arguments] == ([] if name in ("delete-gateway", "delete-egress-policy") else [-1])


@pytest.mark.parametrize("name", [*DELETING, "delete-snapshot"])
def test_a_command_that_deletes_answers_with_the_names(name: str) -> None:
    schema = output_schema(_command(name))
    assert schema is not None
    for one in schema.get("anyOf", [schema])[:1]:
        names = {"type": "array", "items": {"type": "string"}}
        assert one["properties"]["deleted"] == one["properties"]["would_delete"] == names
        assert one["properties"]["dry_run"] == {"type": "boolean"}


def _rows() -> list[StoredKind[Any]]:
    modules = {f"vgpuctl.cli.{FOLDERS[name]}.{module}" for name, module in MADE_BY.items()}
    found = [value for one in sorted(modules) for value in vars(importlib.import_module(one)).values()]
    return [one for one in found if isinstance(one, StoredKind)]


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row.word)
def test_a_row_names_a_list_and_completes_by_a_query_of_the_store(row: StoredKind[Any]) -> None:
    assert row.listed_by in COMMANDS
    assert row.word in tuple(CompletedKind) and row.completes


CREATING = sorted(
    {one for one in COMMANDS if one.startswith(("create-", "register-"))}
    | {"reserve", "set-node-pool", "grant-host-pool"}
)
_CREATING_OTHERWISE = {
    "create-certificate": "writes files of this machine",
    "create-snapshot": "names a VM, and answers with the disks that it took",
    "create-vm": "creates several, and answers with each",
}


@pytest.mark.parametrize("name", [one for one in CREATING if one not in _CREATING_OTHERWISE])
def test_a_command_that_creates_one_thing_answers_with_it_and_rehearses(name: str) -> None:
    command = _command(name)
    assert is_rehearsed(command) and "--dry-run" in {text for one in command.params for text in one.opts}
    schema = output_schema(command)
    assert schema is not None
    (run, _ended) = schema["anyOf"]
    assert run["properties"].keys() >= {"changed", "dry_run", "steps"}
    things = run["properties"].keys() - {"changed", "dry_run", "steps", "remarks"}
    assert len(things) == 1
