# SPDX-License-Identifier: Apache-2.0
"""scripts/setup goes on after an interruption, and says on which systems it works."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "scripts/setup"
MAKE, INSTALL = '"$python" -m venv .venv\n', ".venv/bin/python -m pip"


def run(checkout: Path, changes: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script with other text in it, in a checkout that needs no packages."""
    text = SETUP.read_text().replace("need_free_mib=3000", "need_free_mib=1")
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    for file in ("scripts/setup", "scripts/packages.txt", "pyproject.toml", "lab/pyproject.toml"):
        (checkout / file).parent.mkdir(parents=True, exist_ok=True)
        (checkout / file).write_text(text if file == "scripts/setup" else "")
    return subprocess.run(["bash", checkout / "scripts/setup"], capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="scripts/setup goes on only on Debian")
def test_an_environment_whose_making_was_killed_is_made_again(tmp_path: Path) -> None:
    checkout = tmp_path / "a check'out"
    without_pip = MAKE.replace("venv .venv", "venv --without-pip .venv")
    killed = run(checkout, {MAKE: f"{without_pip}kill -KILL $$\n"})
    assert killed.returncode < 0 and (checkout / ".venv/bin/python").exists()
    again = run(checkout, {MAKE: without_pip, INSTALL: "true"})
    assert (again.returncode, again.stderr) == (0, "")
    assert "making .venv" in again.stdout
    third = run(checkout, {MAKE: without_pip, INSTALL: "true"})
    assert third.stdout == "setup: everything is there\n"


def test_a_system_that_is_not_debian_is_told_so(tmp_path: Path) -> None:
    done = run(tmp_path, {"/etc/os-release": "/no/such/file", "$(uname -s)": "Darwin"})
    assert done.returncode == 1
    assert done.stderr.startswith("setup: this is Darwin on ")
