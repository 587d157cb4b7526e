# SPDX-License-Identifier: Apache-2.0
"""The README of vgpuctl-lab: its example for pytest runs as it is written, and its names exist."""

import re
import subprocess
import sys
from pathlib import Path

import vgpuctl_lab as lab
from tests.lab.simulated_fixtures import need_simulated

README = Path(__file__).parents[2] / "lab" / "README.md"
_BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_example_for_pytest_passes_as_written(tmp_path: Path) -> None:
    need_simulated()
    (tmp_path / "test_example.py").write_text(_BLOCKS[0], encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path}/t",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_every_name_of_the_package_in_the_readme_exists() -> None:
    names = set(re.findall(r"\blab\.(\w+)[.(]", "\n".join(_BLOCKS)))
    assert {"up", "run", "down"} <= names
    assert names <= set(lab.__all__)


def test_the_debian_packages_of_the_readme_are_those_of_the_setup() -> None:
    listed = set(re.findall(r"^run (\S+)", (README.parents[1] / "scripts" / "packages.txt").read_text(), re.MULTILINE))
    installed = re.findall(
        r"apt-get install --no-install-recommends ((?:.*\\\n)*.*)", README.read_text(encoding="utf-8")
    )
    assert {word for line in installed for word in line.replace("\\\n", " ").split()} == listed
