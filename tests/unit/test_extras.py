# SPDX-License-Identifier: Apache-2.0
"""The extras of the package vgpuctl: what a command says where the libraries of one are not installed."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vgpuctl.errors import MissingExtra
from vgpuctl.extras import EXTRAS

ROOT = Path(__file__).parents[2]
_WITHOUT = """
import sys
from importlib.machinery import PathFinder

away, found = sys.argv.pop(1).split(","), PathFinder.find_spec
PathFinder.find_spec = lambda name, *others: None if name in away else found(name, *others)
"""
_RUN = f"{_WITHOUT}\nfrom vgpuctl.cli.main import main\nmain()"
_IMPORT_WHAT_COMMANDS_IMPORT = f"""{_WITHOUT}
import ast, importlib, inspect, json
from vgpuctl.cli.contents import COMMANDS
from vgpuctl.cli.main import command
from vgpuctl.errors import MissingExtra
from vgpuctl.extras import EXTRAS, name_missing_extras

name_missing_extras()
failed = {{}}
for name in COMMANDS:
    source = inspect.getsource(sys.modules[command.get_command(None, name).callback.__module__])
    for one in ast.walk(ast.parse(source)):
        if isinstance(one, ast.ImportFrom):
            try:
                importlib.import_module(one.module)
            except MissingExtra as error:
                failed.setdefault(name, set()).add(error.hint.partition("[")[2].partition("]")[0])
print(json.dumps({{name: sorted(extras) for name, extras in failed.items()}}))
"""
ALL = [module for modules in EXTRAS.values() for module in modules]
NEED = {
    "serve exporter": ["monitoring"],
    "report": ["monitoring"],
    "serve autoscaler": ["clusters"],
    "serve extender": ["clusters", "monitoring"],
    "view": ["monitoring"],
    "serve web": ["monitoring"],
}
"""What commands import themselves: `report` for --html, `view` for --web. Others open OVN, a cluster or PostgreSQL."""


def _python(program: str, away: Sequence[str], *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program that finds everything but these modules."""
    command = [sys.executable, "-c", program, ",".join(away), *arguments]
    environment = {**os.environ, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a store with a tenant, which needed no extra to be made."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
    environment = {"VGPUCTL_DATABASE_URL": url, "VGPUCTL_OVN_NORTHBOUND": "tcp:127.0.0.1:1"}
    made = _python(_RUN, ALL, "create-tenant", "acme", **environment)
    assert made.returncode == 0, made.stderr
    return environment


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("clusters", "serve autoscaler --tenant acme"),
        ("clusters", "serve extender"),
        ("monitoring", "serve exporter"),
        ("monitoring", "report --html report.html"),
        ("monitoring", "serve web"),
        ("ovn", "create-network lan --tenant acme --cidr 192.0.2.0/24"),
        ("postgresql", "list-vms --database postgresql://127.0.0.1:1/fleet"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(extra: str, arguments: str, store: Mapping[str, str]) -> None:
    done = _python(_RUN, EXTRAS[extra], *arguments.split(), **store)
    assert done.returncode == MissingExtra.exit_code, done.stderr
    error, hint = done.stderr.splitlines()[-2:]
    assert any(f"error: this command needs the Python library {one}, which" in error for one in EXTRAS[extra]), error
    assert f"pip install 'vgpuctl[{extra}]'" in hint


def test_all_other_commands_import_what_they_use_without_any_extra() -> None:
    done = _python(_IMPORT_WHAT_COMMANDS_IMPORT, ALL)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == NEED


def _names(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(one).name) for one in requirements}


def _required_by(distributions: Iterable[str]) -> set[str]:
    return {name for one in distributions for name in _names(distribution(one).requires or ())}


def test_the_modules_of_an_extra_are_those_of_its_libraries() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    owners = packages_distributions()
    owned = {one: _names(owners[one.partition(".")[0]]) for one in ALL}
    always = _names(project["dependencies"])
    for extra, modules in EXTRAS.items():
        own = _names(extras[extra])
        theirs = _required_by(own)
        assert all(owned[one] & (own | theirs) for one in modules), (
            "each is of such a library, or of one that it requires"
        )
        assert own <= _required_by(always).union(*owned.values()), "the error for each library names an extra"
        assert not own & always
    (every,) = map(Requirement, extras["all"])
    assert (every.name, every.extras) == ("vgpuctl", set(EXTRAS))
