# SPDX-License-Identifier: Apache-2.0
"""The two wheels, built from the tracked files without a network: what each contains, and what runs with each."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
# bdist_wheel is a part of setuptools since 70.1; a licence as SPDX needs 77.
_SETUPTOOLS = 77


def _tracked(folder: str) -> list[str]:
    command = ["git", "ls-files", "-z", "--", folder]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [name for name in names if name and (ROOT / name).exists()]


def _release(output: Path, **environment: str) -> dict[str, bytes]:
    """Build sdists and wheels as a release does. Returns the content of each by name."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "release_python.py"), str(output)],
        env={**os.environ, **environment},
        umask=int(environment.get("UMASK", "022"), 8),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in output.iterdir()}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdists and wheels of vgpuctl and vgpuctl-lab."""
    if int(version("setuptools").partition(".")[0]) < _SETUPTOOLS:
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(f"setuptools {_SETUPTOOLS} builds the wheels: pip install -e '.[test]'")
        pytest.skip(f"setuptools {_SETUPTOOLS} builds the wheels: pip install -e '.[test]'")
    folder = tmp_path_factory.mktemp("released")
    _release(folder)
    return folder


@pytest.fixture(scope="module")
def wheels(released: Path) -> tuple[Path, Path]:
    """The wheels of vgpuctl and vgpuctl-lab."""
    (ours,) = released.glob("vgpuctl-*.whl")
    (lab,) = released.glob("vgpuctl_lab-*.whl")
    return ours, lab


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


def test_a_second_build_at_another_time_and_place_has_equal_bytes(released: Path, tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in released.iterdir()}
    again = _release(tmp_path / "again", TZ="Asia/Tokyo", UMASK="077", LC_ALL="C", HOME=str(tmp_path))
    assert {name: again.get(name) == content for name, content in first.items()} == dict.fromkeys(first, True)
    assert len(again) == 4


def test_the_sdist_has_the_changes_and_no_tests(released: Path) -> None:
    (sdist,) = released.glob("vgpuctl-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "LICENSE", "README.md", "templates/vgpuctl-web.service", "vgpuctl/cli/main.py"} <= names
    assert not [name for name in names if name.startswith(("tests", "docs", "lab", "packaging"))]


def _closure(distributions: Iterable[str]) -> dict[str, Distribution]:
    """The installed distributions that these need, with what those need, as their metadata say."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(name), frozenset[str]()) for name in distributions]
    while waiting:
        requirement, extras = waiting.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": one}) for one in extras or {""}):
            continue
        key = canonicalize_name(requirement.name)
        if key in found and not requirement.extras:
            continue
        found[key] = distribution(requirement.name)
        wanted = frozenset({"", *requirement.extras})
        waiting.extend((Requirement(one), wanted) for one in found[key].requires or ())
    return found


_IMPORT_ALL = """
import importlib, pkgutil, vgpuctl
for one in pkgutil.walk_packages(vgpuctl.__path__, "vgpuctl."):
    if not one.name.endswith(("__main__", "migrations.env")) and ".in_guest." not in one.name:
        importlib.import_module(one.name)
        print(one.name)
"""


def test_the_wheel_names_all_libraries_that_it_imports(wheels: tuple[Path, Path], tmp_path: Path) -> None:
    """It has those that the metadata name with all extras, and no other; pip reaches no index."""
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=60)
    (site,) = home.glob("lib/python3*/site-packages")
    for one in _closure(_requirements()).values():
        for name in {file.parts[0] for file in one.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / name).exists():
                (site / name).symlink_to(Path(str(one.locate_file(name))))
    # Its dependencies are checked; one that is missing cannot be fetched.
    command = ["--python", str(home / "bin/python"), "install", "--no-index", "--no-compile", f"{wheels[0]}[all]"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    shown = subprocess.run([home / "bin/vgpuctl", "--version"], capture_output=True, text=True, check=False, timeout=60)
    assert shown.stdout.strip().endswith(wheels[0].name.split("-")[1]), shown.stderr
    imported = subprocess.run(
        [home / "bin/python", "-c", _IMPORT_ALL], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert imported.returncode == 0, imported.stderr
    assert len(imported.stdout.split()) > 300


def _requirements() -> list[str]:
    """The libraries that vgpuctl requires with all of its extras."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    (every,) = map(Requirement, extras["all"])
    return [*project["dependencies"], *(one for extra in every.extras for one in extras[extra])]


def test_the_libraries_of_the_debian_package_are_chosen_and_new_enough() -> None:
    text = (ROOT / "packaging" / "requirements.txt").read_text()
    chosen = {canonicalize_name(name): number for name, number in re.findall(r"^(\S+)==(\S+) \\$", text, re.MULTILINE)}
    wanted = [Requirement(one) for one in _requirements()]
    assert [one for one in wanted if chosen.get(canonicalize_name(one.name)) is None] == []
    assert [one for one in wanted if not one.specifier.contains(chosen[canonicalize_name(one.name)])] == []
    assert text.count("--hash=sha256:") >= len(chosen)
    assert "://" not in text
