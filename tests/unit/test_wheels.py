# SPDX-License-Identifier: Apache-2.0
"""The two wheels, built from the tracked files without a network: what each contains, and what runs with each."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# bdist_wheel is a part of setuptools since 70.1; lab/pyproject.toml needs 77.
_SETUPTOOLS = 77
_BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


def _tracked(folder: str) -> list[str]:
    command = ["git", "ls-files", "-z", "--", folder]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [name for name in names if name and (ROOT / name).exists()]


def _build(source: Path, output: Path) -> Path:
    output.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, str(output)],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = output.iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheels of vgpuctl and vgpuctl-lab."""
    if int(version("setuptools").partition(".")[0]) < _SETUPTOOLS:
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(f"setuptools {_SETUPTOOLS} builds the wheels: pip install -e '.[test]'")
        pytest.skip(f"setuptools {_SETUPTOOLS} builds the wheels: pip install -e '.[test]'")
    folder = tmp_path_factory.mktemp("wheels")
    for name in _tracked("."):
        if not name.startswith(("tests/", "docs/")):
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / "tree" / name, follow_symlinks=False)
    return _build(folder / "tree", folder / "vgpuctl"), _build(folder / "tree" / "lab", folder / "lab")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed third-party libraries, without vgpuctl and vgpuctl-lab."""
    folder = tmp_path_factory.mktemp("libraries")
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for one in Path(place).iterdir():
            if "vgpuctl" not in one.name:
                (folder / one.name).symlink_to(one)
    return folder


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def _unpack(folder: Path, *wheels: Path) -> Path:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def _run(installed: Path, libraries: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run vgpuctl with nothing importable but these two folders and the standard library."""
    environment = {**os.environ, "PYTHONPATH": f"{installed}:{libraries}"}
    command = [sys.executable, "-S", "-P", "-m", "vgpuctl", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_vgpuctl_carries_neither_the_lab_nor_c_nor_gpl(wheels: tuple[Path, Path]) -> None:
    names = _names(wheels[0])
    assert {name for name in _tracked("vgpuctl") if not (ROOT / name).is_symlink()} <= names
    assert not [name for name in names if "lab" in Path(name).parts[0] or name.endswith((".c", ".h", "Makefile"))]
    with zipfile.ZipFile(wheels[0]) as archive:
        licensed = [name for name in names if b"SPDX-License-Identifier: GPL" in archive.read(name)]
        assert not licensed
        assert not [name for name in names if b"GNU GENERAL PUBLIC LICENSE" in archive.read(name)]


def test_the_lab_carries_all_its_files_and_both_licences(wheels: tuple[Path, Path]) -> None:
    names = _names(wheels[1])
    assert {name.removeprefix("lab/") for name in _tracked("lab/vgpuctl_lab")} <= names
    assert {Path(name).parts[0].partition("-")[0] for name in names} == {"vgpuctl_lab"}
    assert {Path(name).name for name in names if "licenses" in name} == {"Apache-2.0.txt", "GPL-2.0-only.txt"}


def test_help_without_the_lab_does_not_list_it_and_its_command_names_the_package(
    wheels: tuple[Path, Path], libraries: Path, tmp_path: Path
) -> None:
    installed = _unpack(tmp_path, wheels[0])
    listed = _run(installed, libraries, "--help")
    assert (listed.returncode, "create-vm" in listed.stdout) == (0, True), listed.stderr
    assert "From other packages" not in listed.stdout
    refused = _run(installed, libraries, "lab", "up")
    assert refused.returncode == 2
    assert "in the package vgpuctl-lab, which is not installed" in refused.stderr
    assert "pip install vgpuctl-lab" in refused.stderr


def test_the_lab_beside_vgpuctl_adds_its_command(wheels: tuple[Path, Path], libraries: Path, tmp_path: Path) -> None:
    installed = _unpack(tmp_path, *wheels)
    assert "  lab  " in _run(installed, libraries, "--help").stdout
    shown = _run(installed, libraries, "lab", "up", "--help")
    assert (shown.returncode, "--simulated N" in shown.stdout) == (0, True), shown.stderr
