# SPDX-License-Identifier: Apache-2.0
"""Commands of other packages are found as importlib.metadata finds them, without its import."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from vgpuctl.cli import plugins


def test_the_installed_packages_add_what_importlib_metadata_says() -> None:
    plugins.installed.cache_clear()
    known = {one.name: one.value for one in entry_points(group=plugins.GROUP)}
    assert {name: one.target for name, one in plugins.installed().items()} == known
    assert "lab" in known


def test_a_package_adds_a_command_with_its_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "more-1.0.dist-info"
    package.mkdir()
    (package / "entry_points.txt").write_text(
        "[console_scripts]\nmore = more:main\n\n[vgpuctl.commands]\nmore = more_commands:command\n\n[other]\nx = y:z\n"
    )
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: more\nSummary: Do more\n")
    (tmp_path / "more_commands.py").write_text("command = 'the command'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    plugins.installed.cache_clear()
    more = plugins.installed()["more"]
    plugins.installed.cache_clear()
    assert (more.text, more.load()) == ("Do more.", "the command")
    assert "x" not in plugins.installed()
    plugins.installed.cache_clear()


def test_help_imports_neither_importlib_metadata_nor_the_lab() -> None:
    program = (
        "import sys; from vgpuctl.cli.main import run; run(['--help']); "
        "sys.exit(any(name in sys.modules for name in ('importlib.metadata', 'vgpuctl_lab')))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0
