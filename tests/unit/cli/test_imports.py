# SPDX-License-Identifier: Apache-2.0
"""What a command line imports before it has anything to do: the start of the command is the sum of it.

Each row is a new interpreter. A module that is missing in a table is found here, not by a clock.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

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
    {"vgpuctl", "vgpuctl.cli", "vgpuctl.cli.contents", "vgpuctl.cli.main", "vgpuctl.cli.plugins", "vgpuctl.cli.support"}
    | {f"vgpuctl.cli.support.{name}" for name in ("command_line", "command_section", "log_options")}
)
"""The modules of vgpuctl that `--help`, and completing the name of a command, may import."""
SLOW = frozenset(
    {"asyncio", "csv", "dataclasses", "hashlib", "importlib.metadata", "json", "logging", "pathlib", "uuid", "xml"}
)
"""Of the standard library, what `--help` does not need either."""
LIBRARIES = frozenset(
    {"alembic", "bcrypt", "cheroot", "cryptography", "flask", "grpc", "jinja2", "libvirt", "lightkube", "msgspec"}
    | {"ovs", "paramiko", "platformdirs", "prometheus_client", "psycopg", "pycdlib", "rich", "sqlalchemy", "yaml"}
)
ROOMS_OF_PAGES = frozenset({"cli", "errors", "model"})
"""The rooms that the help page of a list may need."""


def _imported(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, set[str]]:
    """The exit code of a command line, and the modules that it imported beside those of click."""
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    code, *modules = done.stderr.splitlines()[-1].split()
    return int(code), set(modules)


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
