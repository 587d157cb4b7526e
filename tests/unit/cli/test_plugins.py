# SPDX-License-Identifier: Apache-2.0
"""Commands of other packages are found as importlib.metadata finds them, without its import."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from vgpuctl.cli import plugins
from vgpuctl.errors import FileNotTrusted


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


CODE = ("evil.py", "evil/commands.py", "evil/__pycache__/commands.pyc", "evil/below/data.py", "evil/below")


@pytest.mark.parametrize("wide", [*CODE, "evil", "evil-1.dist-info/entry_points.txt", "__pycache__/evil.{tag}.pyc"])
def test_the_code_of_a_command_that_others_may_write_to_is_not_imported(
    wide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = wide.format(tag=sys.implementation.cache_tag)
    is_package = wide.startswith("evil/") or wide == "evil"
    (tmp_path / "evil-1.dist-info").mkdir()
    target = "evil.commands" if is_package else "evil"
    (tmp_path / "evil-1.dist-info/entry_points.txt").write_text(f"[vgpuctl.commands]\nevil = {target}:command\n")
    for name in (*CODE[1:4], "evil/__init__.py") if is_package else ("evil.py", "__pycache__/other.pyc", wide):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')\ncommand = None\n" if path.suffix == ".py" else "")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    plugins.installed.cache_clear()
    evil = plugins.installed()["evil"]
    plugins.installed.cache_clear()
    path = tmp_path / wide
    path.chmod(path.stat().st_mode | 0o002)
    with pytest.raises(FileNotTrusted, match="may be written to by every user"):
        evil.load()
    assert not (tmp_path / "RAN").exists()


def test_help_imports_neither_importlib_metadata_nor_the_lab() -> None:
    program = (
        "import sys; from vgpuctl.cli.main import run; run(['--help']); "
        "sys.exit(any(name in sys.modules for name in ('importlib.metadata', 'vgpuctl_lab')))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0
