# SPDX-License-Identifier: Apache-2.0
"""Every list of the command line: its columns, what a terminal of 80 columns shows of them, and unknown tenants."""

import importlib
from pathlib import Path

import click
import pytest

from vgpuctl.cli.contents import COMMANDS, FOLDERS, MADE_BY
from vgpuctl.cli.lists.listing import Listing
from vgpuctl.cli.main import command as vgpuctl
from vgpuctl.cli.main import run
from vgpuctl.cli.shown.table_text import TableColumn, table_text
from vgpuctl.errors import NotFound
from vgpuctl.store.store import open_store

LISTS = [*sorted(name for name in COMMANDS if name.startswith("list-")), "show-usage"]
_NAMED = ("HOST", "VM", "GPU", "TENANT", "POOL", "NETWORK", "CIDR", "PROFILE", "ADDRESS", "TARGET", "NODE", "IMAGE")
_TYPICAL = {
    "HOST": "gpu-host-12",
    "GPU": "0000:41:00.0",
    "TENANT": "acme-corp",
    "VM": "trainer-12",
    "CIDR": "10.0.0.0/24",
}
"""Names of usual lengths; other cells are as wide as their heading."""


def _listings(name: str) -> list["Listing[object, object]"]:
    module = importlib.import_module(f"vgpuctl.cli.{FOLDERS[name]}.{MADE_BY.get(name, name.replace('-', '_'))}")
    return [one for one in vars(module).values() if isinstance(one, Listing)]


@pytest.mark.parametrize("name", LISTS)
def test_every_list_command_has_a_table_of_columns(name: str) -> None:
    assert _listings(name)


@pytest.mark.parametrize("name", LISTS)
def test_every_list_fits_80_columns_and_keeps_what_names_a_row(name: str) -> None:
    for listing in _listings(name):
        columns = [one for one in listing.columns if not one.is_wide]
        headings = [TableColumn(one.heading, one.drops, one.is_text) for one in columns]
        row = [_TYPICAL.get(one.heading, "x" * (40 if one.is_text else len(one.heading))) for one in columns]
        made = table_text(headings, [row], 80)
        assert max(len(line) for _, line in made.lines) <= 80
        assert columns[0].heading not in made.left_out
        assert len(columns) - len(made.left_out) >= min(len(columns), 4)


@pytest.mark.parametrize("name", LISTS)
def test_names_and_addresses_are_never_shortened(name: str) -> None:
    for listing in _listings(name):
        assert not [one.heading for one in listing.columns if one.is_text and one.heading in _NAMED]


@pytest.mark.parametrize("name", LISTS)
def test_no_two_columns_of_a_list_have_the_same_name(name: str) -> None:
    for listing in _listings(name):
        names = [one.name for one in listing.columns]
        assert len(set(names)) == len(names)
        assert all(names)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty store."""
    file = tmp_path_factory.mktemp("store") / "store.db"
    open_store(f"sqlite:///{file}").close()
    return file


def _of_tenants() -> list[str]:
    """The lists that can be of one tenant, without the events: they outlive their tenant."""
    found = {name: vgpuctl.get_command(click.Context(vgpuctl), name) for name in COMMANDS if name.startswith("list-")}
    has_tenant = {name for name, one in found.items() if one and any(each.name == "tenant" for each in one.params)}
    return sorted(has_tenant - {"list-events", "list-snapshots"})


@pytest.mark.parametrize("name", _of_tenants())
def test_a_tenant_that_is_not_there_is_told_and_no_empty_list(
    name: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--tenant", "nobody", "--database", f"sqlite:///{store}"]) == NotFound.exit_code
    assert "nobody" in capsys.readouterr().err
