# SPDX-License-Identifier: Apache-2.0
"""A user without a home, as in many containers: nothing is read from there, and what has to be there is told."""

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import vgpuctl
import vgpuctl_lab
from vgpuctl.cli.main import run as run_here
from vgpuctl.errors import UsageError
from vgpuctl.user_folders import UserFolder, expanded

NOBODY = 3_000_000_123
"""A user that no password database has."""
_CAPABILITY = "+dac_read_search"
AS_NOBODY = (
    *("setpriv", "--reuid", str(NOBODY), "--regid", "1", "--clear-groups"),
    # The checkout may lie in a folder that is closed to others.
    *("--inh-caps", _CAPABILITY, "--ambient-caps", _CAPABILITY, "--", sys.executable),
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes a user that does not exist")


def run(arguments: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run vgpuctl as a user without a home."""
    return subprocess.run(
        [*AS_NOBODY, "-m", "vgpuctl", *arguments],
        cwd="/",
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@needs_root
def test_a_user_without_a_home_uses_a_store_that_is_named() -> None:
    of_postgresql = run(["list-vms"], VGPUCTL_DATABASE_URL="postgresql://127.0.0.1:1/d?service=s")
    assert "definition of service" in of_postgresql.stderr
    named = run(["list-vms"], VGPUCTL_DATABASE_URL="sqlite:////no-such-folder/store.db")
    assert (named.returncode, named.stderr.splitlines()[0]) == (
        6,
        "error: the store's folder /no-such-folder does not exist",
    )
    unnamed = run(["list-vms"])
    assert (unnamed.returncode, unnamed.stderr.splitlines()) == (
        2,
        [
            "error: the store, which no option names, would be in the home folder of this user, who has none",
            "hint: set HOME or XDG_DATA_HOME to an absolute path",
        ],
    )


@needs_root
def test_a_user_without_a_home_has_no_cache_for_the_agent() -> None:
    program = "from vgpuctl.hosts.bundle import build_agent; print(len(build_agent().data))"
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    done = subprocess.run([*AS_NOBODY, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert int(done.stdout) > 0, done.stderr


def test_a_folder_that_is_named_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert UserFolder.DATA.find() == UserFolder.DATA.require("the store") == tmp_path / "vgpuctl"


@pytest.mark.parametrize("text", ["~no-such-user-here/file", "~\0/file"])
def test_the_home_of_nobody_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="begins with the home folder of a user who has none"):
        expanded(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["lab", "--folder", "~no-such-user-here/lab", "status"],
        ["lab", "--folder", "~no-such-user-here/lab", "down"],
        ["lab", "play", "sim-001", "~no-such-user-here/scenario.yml"],
        ["lab", "--folder", "~no-such-user-here/lab", "play", "sim-001"],
        ["lab", "--folder", "~no-such-user-here/lab", "fault", "sim-001", "--list"],
        ["lab", "--folder", "~no-such-user-here/lab", "licence-server", "status"],
    ],
)
def test_the_lab_tells_of_the_home_of_nobody(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(arguments) == 2
    assert "begins with the home folder of a user who has none" in capsys.readouterr().err


@needs_root
@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["lab", "status"], {}),
        (["lab", "status"], {"VGPUCTL_LAB_FOLDER": "~/lab"}),
        (["lab", "play", "sim-001"], {}),
        (["lab", "--folder", "~/lab", "status"], {}),
    ],
)
def test_the_lab_of_a_user_without_a_home_says_so(arguments: list[str], variables: dict[str, str]) -> None:
    done = run(arguments, **variables)
    assert done.returncode == 2 and "home folder of" in done.stderr, done


def test_homes_and_the_working_folder_are_looked_up_at_one_place() -> None:
    """Anything else is an unexpected error for a user without a home, or in a folder that was deleted."""
    found = set()
    for package in (vgpuctl, vgpuctl_lab):
        root = Path(str(package.__file__)).parent
        for file in root.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Attribute) and node.attr in ("expanduser", "home", "cwd"):
                    found.add((file.relative_to(root.parent).as_posix(), node.attr))
                if isinstance(node, ast.Import | ast.ImportFrom) and "platformdirs" in ast.unparse(node):
                    found.add((file.relative_to(root.parent).as_posix(), "platformdirs"))
    assert found == {("vgpuctl/user_folders.py", name) for name in ("expanduser", "cwd", "platformdirs")}
