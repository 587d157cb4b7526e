# SPDX-License-Identifier: Apache-2.0
"""The modules that a command line imports before it does anything: their sum is the start of the command.

Each row is a new interpreter. A module that is missing in a table is found here, not by a clock.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stored_fleet import AT, open_stored
from tests.unit.fleet_factory import emulated_a40, host_facts
from vgpuctl.agent.wire.boot import Installed
from vgpuctl.errors import NotFound
from vgpuctl.store.store import open_store

_PROGRAM = """
import sys, click
before = set(sys.modules)
from vgpuctl.cli.main import run
try:
    code = run(sys.argv[1:])
except SystemExit as ended:  # a shell's completion
    code = ended.code
sys.stdout.flush()
print(code, *sorted(set(sys.modules) - before), file=sys.stderr)
"""
OF_HELP = frozenset(
    {"vgpuctl", "vgpuctl.cli", "vgpuctl.cli.contents", "vgpuctl.cli.main", "vgpuctl.cli.plugins"}
    | {"vgpuctl.cli.frame", "vgpuctl.cli.frame.command_line", "vgpuctl.cli.frame.command_section"}
    | {"vgpuctl.cli.options", "vgpuctl.cli.options.log_options"}
)
"""The modules of vgpuctl that `--help`, and completing the name of a command, may import."""
SLOW = frozenset(
    {"asyncio", "csv", "dataclasses", "hashlib", "importlib.metadata", "json", "logging", "pathlib", "uuid", "xml"}
)
"""Of the standard library, what `--help` does not need either."""
LIBRARIES = frozenset(
    {"alembic", "bcrypt", "cheroot", "cryptography", "flask", "grpc", "jinja2", "libvirt", "lightkube", "msgspec"}
    | {"ovs", "paramiko", "platformdirs", "prometheus_client", "psycopg", "pycdlib", "rich", "sqlalchemy", "wsproto"}
    | {"yaml"}
)
OF_STORE = frozenset({"msgspec", "platformdirs", "rich"})
"""The libraries that a command may import to read a store that is there and up to date."""
LISTS: dict[str, frozenset[str]] = {
    "list-disks": frozenset(),
    "list-events": frozenset(),
    "list-external-networks": frozenset(),
    "list-images": frozenset(),
    "list-licence-pools": frozenset({"catalog", "quota"}),
    "list-networks": frozenset(),
    "list-node-pools": frozenset(),
    "list-host-pools": frozenset({"quota"}),
    "list-queue": frozenset(),
    "list-reservations": frozenset(),
    "list-tenants": frozenset({"quota"}),
    "list-vms": frozenset(),
    "show-network": frozenset(),
    "show-usage": frozenset({"catalog", "quota"}),
}
"""Commands that only read the store, with the rooms that each may import beside ROOMS_OF_LISTS."""
SHOWS = ("show-host-pool", "show-tenant", "show-vm")
"""Commands that read the store first."""
ROOMS_OF_LISTS = frozenset(
    {"actor", "agent", "cli", "errors", "local_files", "logs", "model", "store", "typed_json", "usecases"}
    | {"extras", "trusted_files", "user_folders", "wiring"}
)
"""The rooms of a list: no scheduler, planner, sharing kind, inventory, OVN, telemetry or cluster."""
NOT_OF_AN_EMPTY_LIST = frozenset(
    {"asyncio", "hashlib", "socket", "ssl", "vgpuctl.agent.wire.facts", "vgpuctl.hosts.fleet", "vgpuctl.model.image"}
    | {"vgpuctl.model.node_pool", "vgpuctl.model.vpc", "vgpuctl.quota.charge", "vgpuctl.usecases.observed.observations"}
)
"""Modules that take long, and that `list-vms` does not need where there are no VMs."""
ASKING = ("check-hosts", "list-gpus", "list-hosts", "list-partitions", "list-profiles", "plan-hosts")


def _imported(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, set[str]]:
    """The exit code of a command line, and the modules that it imported beside those of click."""
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    code, *modules = done.stderr.splitlines()[-1].split()
    return int(code), set(modules)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an empty store."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
    open_store(url).close()
    return {"VGPUCTL_DATABASE_URL": url}


def _of_vgpuctl(modules: set[str]) -> set[str]:
    return {one for one in modules if one.partition(".")[0] == "vgpuctl"}


def _completing(words: str) -> dict[str, str]:
    return {"_VGPUCTL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--help"], {}),
        (["--version"], {}),
        ([], _completing("vgpuctl list-")),
        ([], _completing("vgpuctl --")),
    ],
    ids=["help", "version", "completing a command", "completing an option"],
)
def test_help_and_the_names_of_commands_import_click_and_tables(
    arguments: list[str], environment: dict[str, str]
) -> None:
    _code, modules = _imported(arguments, environment)
    assert _of_vgpuctl(modules) <= OF_HELP
    assert not {one.partition(".")[0] for one in modules} & LIBRARIES
    assert not modules & SLOW


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_the_store_stays_in_its_rooms_and_imports_no_library_that_it_does_not_need(
    name: str, store: dict[str, str]
) -> None:
    arguments = [name, "acme/blue"] if name == "show-network" else [name, "--json"]
    code, modules = _imported(arguments, store)
    assert code == (NotFound.exit_code if name == "show-network" else 0)
    assert {one.partition(".")[0] for one in modules} & LIBRARIES <= OF_STORE
    rooms = {one.split(".")[1] for one in _of_vgpuctl(modules) if "." in one}
    assert rooms <= ROOMS_OF_LISTS | LISTS[name]


@pytest.mark.parametrize("name", SHOWS)
def test_a_name_that_the_store_lacks_is_told_without_sqlalchemy(name: str, store: dict[str, str]) -> None:
    code, modules = _imported([name, "acme/web" if name == "show-vm" else "acme"], store)
    assert code == NotFound.exit_code
    assert {one.partition(".")[0] for one in modules} & LIBRARIES <= OF_STORE


def test_an_empty_list_of_vms_imports_nothing_of_what_vms_have(store: dict[str, str]) -> None:
    _code, modules = _imported(["list-vms"], store)
    assert not modules & NOT_OF_AN_EMPTY_LIST


def test_a_change_of_the_store_imports_no_sqlalchemy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    open_store(url).close()
    code, modules = _imported(["create-tenant", "acme"], {"VGPUCTL_DATABASE_URL": url})
    assert code == 0
    assert not {"sqlalchemy", "alembic"} & modules


def test_layouts_are_compared_without_a_template_engine_or_a_way_to_hosts(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    declared = "vgpu: {version: 1, gpus: [{match: all, kind: vgpu}], telemetry: {textfile: /var/lib/readings}}\n"
    (tmp_path / "group_vars/all.yml").write_text(declared)
    facts = replace(host_facts([emulated_a40("0000:11:00.0").facts()]), installed=Installed(()))
    with open_stored(tmp_path, ("gpu1",)) as services, services.store.transaction() as session:
        session.save_facts("gpu1", facts, at=AT)
    where = {"VGPUCTL_DATABASE_URL": f"sqlite:///{tmp_path}/store.db"}
    code, modules = _imported(["list-hosts", "--cached", "-i", str(tmp_path / "inventory.yml")], where)
    assert code == 0
    assert "vgpuctl.guests.boot_unit" in modules
    assert not {"jinja2", "libvirt", "paramiko", "sqlalchemy"} & modules


@pytest.mark.parametrize("name", ASKING)
def test_a_missing_inventory_is_told_before_a_use_case_is_imported(name: str, store: dict[str, str]) -> None:
    for arguments in ([], ["--inventory", "/nowhere/hosts.yml"]):
        code, modules = _imported([name, *arguments], store | {"VGPUCTL_INVENTORY": ""})
        assert code in (2, 3)
        assert name.replace("-", "_") not in {one.split(".")[-1] for one in modules if "usecases" in one}
        assert not {"sqlalchemy", "paramiko"} & modules


@pytest.mark.parametrize("words", ["vgpuctl show-vm acme/", "vgpuctl list-vms --host "])
def test_completing_a_name_of_the_store_imports_no_sqlalchemy(words: str, store: dict[str, str]) -> None:
    _code, modules = _imported([], store | _completing(words))
    assert {one.partition(".")[0] for one in modules} & LIBRARIES <= OF_STORE
