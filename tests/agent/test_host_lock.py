# SPDX-License-Identifier: Apache-2.0
"""The host's lock: no other local user can hold, block or redirect it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sshd_fixture import let_others_in
from vgpuctl.agent.host import Host
from vgpuctl.agent.host_lock import FOLDER, LOCK
from vgpuctl.agent.wire.envelope import Problem

STRANGER = 61999
OLD_PLACE = "run/lock/vgpuctl.lock"
_HOLD = """
import fcntl, os, sys
os.setgid({user}); os.setuid({user})
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
_TAKE = """
import os, sys
from vgpuctl.agent import host_lock
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
os.setgid({user}); os.setuid({user})
try:
    with Host(sys.argv[1]).lock(0):
        print("taken")
except Problem as problem:
    print(problem.code, problem.hint)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine's root that any local user can reach, with /run as distributions have it."""
    if os.geteuid() != 0:
        pytest.skip("another user's files need root")
    let_others_in(tmp_path)
    (tmp_path / "run/lock").mkdir(parents=True)
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "run/lock").chmod(0o1777)
    return tmp_path


@contextmanager
def held_by_a_stranger(path: Path) -> Iterator[None]:
    argv = [sys.executable, "-c", _HOLD.format(user=STRANGER), str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield
        other.stdin.close()
        other.wait(10)


def take_as_a_stranger(root: Path) -> str:
    argv = [sys.executable, "-c", _TAKE.format(user=STRANGER), str(root)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def refusal(root: Path) -> Problem:
    with pytest.raises(Problem) as caught, Host(str(root)).lock(0):
        raise AssertionError("the lock was given")
    return caught.value


def test_a_file_that_another_user_locks_blocks_nobody(root: Path) -> None:
    with held_by_a_stranger(root / OLD_PLACE), Host(str(root)).lock(0):
        assert (root / LOCK.lstrip("/")).read_text() == f"{os.getpid()}\n"


def test_the_first_run_without_become_blocks_nobody(root: Path) -> None:
    assert take_as_a_stranger(root) == "lock-refused let the agent run as root: ansible_become=true"
    assert sorted(path.name for path in (root / "run").rglob("*")) == ["lock"]
    with Host(str(root)).lock(0):
        pass
    assert take_as_a_stranger(root).startswith("lock-refused ")


def test_nobody_else_can_open_the_lock(root: Path) -> None:
    folder, lock = root / FOLDER.lstrip("/"), root / LOCK.lstrip("/")
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    lock.touch()
    lock.chmod(0o666)
    with Host(str(root)).lock(0):
        assert (folder.stat().st_mode & 0o7777, lock.stat().st_mode & 0o7777) == (0o755, 0o600)


def test_a_folder_or_lock_of_another_user_is_refused(root: Path) -> None:
    folder, lock = root / FOLDER.lstrip("/"), root / LOCK.lstrip("/")
    folder.mkdir()
    lock.touch()
    os.chown(lock, STRANGER, STRANGER)
    assert (refusal(root).code, refusal(root).errno) == ("lock-refused", "EPERM")
    lock.unlink()
    os.chown(folder, STRANGER, STRANGER)
    assert str(STRANGER) in refusal(root).message
    assert FOLDER in str(refusal(root).hint)


def test_no_link_is_followed(root: Path) -> None:
    elsewhere = root / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder, lock = root / FOLDER.lstrip("/"), root / LOCK.lstrip("/")
    folder.symlink_to(elsewhere)
    assert refusal(root).code == "lock-refused"
    folder.unlink()
    folder.mkdir()
    lock.symlink_to(elsewhere / "file")
    assert refusal(root).errno == "ELOOP"
    assert list(elsewhere.iterdir()) == []
