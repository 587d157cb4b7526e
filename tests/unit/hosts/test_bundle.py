# SPDX-License-Identifier: Apache-2.0
"""The agent is packed once for each installation and user, and nobody else's file is taken for it."""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import vgpuctl
from vgpuctl.hosts import bundle


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/vgpuctl"


def pack_again() -> bundle.Bundle:
    """The agent as another process gets it."""
    bundle._build.cache_clear()
    return bundle.build_agent()


def write(file: Path, data: bytes) -> None:
    """Put data into a file of the cache, with the right digest."""
    file.write_bytes(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)


def test_the_next_process_takes_the_file_that_the_first_has_packed(cache: Path) -> None:
    packed = pack_again()
    [file] = cache.iterdir()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700 and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert pack_again() == packed
    write(file, b"was taken, not packed")
    assert pack_again().data == b"was taken, not packed"


def test_a_damaged_file_is_replaced(cache: Path) -> None:
    packed = pack_again()
    [file] = cache.iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:64], whole[:-1], whole[:-1] + b"?"):
        file.write_bytes(damaged)
        assert pack_again() == packed
        assert file.read_bytes() == whole


def test_a_changed_source_is_packed_under_another_name(cache: Path, tmp_path: Path) -> None:
    pack_again()
    copy = tmp_path / "copy/vgpuctl"
    shutil.copytree(Path(vgpuctl.__file__).parent, copy)
    (copy / "agent/__main__.py").write_text("pass\n")
    program = "from vgpuctl.hosts.bundle import build_agent; print(build_agent().sha256)"
    environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() != pack_again().sha256
    assert len(list(cache.iterdir())) == 2


def by_link(file: Path) -> None:
    other = file.rename(file.with_name("elsewhere"))
    file.symlink_to(other)


def behind_a_link(file: Path) -> None:
    other = file.parent.rename(file.parent.with_name("elsewhere"))
    file.parent.symlink_to(other)


@pytest.mark.parametrize(
    "lay",
    [
        lambda file: file.chmod(0o602),
        lambda file: file.chmod(0o620),
        lambda file: file.parent.chmod(0o777),
        lambda file: file.parent.chmod(0o770),
        by_link,
        behind_a_link,
    ],
    ids=["others-write", "group-writes", "folder-of-all", "folder-of-group", "link", "folder-is-link"],
)
def test_a_file_that_another_user_could_have_written_is_not_taken(cache: Path, lay: Callable[[Path], None]) -> None:
    packed = pack_again()
    [file] = cache.iterdir()
    write(file, b"another program")
    lay(file)
    assert pack_again() == packed


def test_without_a_home_it_is_packed_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack_again()
    (tmp_path / "file").touch()
    for home in (str(tmp_path / "file"), "/proc/none", "/dev/null"):
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        assert pack_again() == packed


def test_files_of_installations_that_were_replaced_go(cache: Path) -> None:
    cache.mkdir(mode=0o700, parents=True)
    for number in range(10):
        (cache / f"packed-agent-{number}").touch()
        os.utime(cache / f"packed-agent-{number}", (number, number))
    (cache / "of-something-else").touch()
    pack_again()
    left = sorted(file.name for file in cache.iterdir() if not file.stat().st_size)
    assert left == ["of-something-else", *(f"packed-agent-{number}" for number in range(3, 10))]
