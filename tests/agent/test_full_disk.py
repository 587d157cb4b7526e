# SPDX-License-Identifier: Apache-2.0
"""A host whose disk is full: a file is written whole or not at all, the error names it, and the lock is still had."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.kernel import FakeKernel
from tests.small_disk import SmallDisk, small_disk
from vgpuctl.agent.host_lock import LOCK
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

MANIFEST = "/etc/vgpuctl/layout.json"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "root", mib=1) as made:
        yield made


def test_a_file_that_does_not_fit_leaves_the_old_one_and_no_other(disk: SmallDisk) -> None:
    host = FakeKernel(disk.path)
    host.put_file(MANIFEST, b"old", 0o644)
    with disk.full(), pytest.raises(Problem) as caught:
        host.put_file(MANIFEST, b"new" * 1000, 0o644)
    assert (caught.value.code, caught.value.path, caught.value.errno) == (ProblemCode.WRITE_REFUSED, MANIFEST, "ENOSPC")
    assert f"{MANIFEST} cannot be written" in caught.value.message
    assert "df -h /etc/vgpuctl" in str(caught.value.hint)
    assert [one.name for one in (disk.path / "etc/vgpuctl").iterdir()] == ["layout.json"]
    assert host.read_bytes(MANIFEST) == b"old"
    host.put_file(MANIFEST, b"new", 0o644)


def test_the_lock_needs_no_space(disk: SmallDisk) -> None:
    with disk.full(), FakeKernel(disk.path).lock():
        assert (disk.path / LOCK.lstrip("/")).read_text() == ""


def test_a_disk_without_inodes_for_the_lock_is_named(disk: SmallDisk) -> None:
    with disk.read_only(), pytest.raises(Problem) as caught, FakeKernel(disk.path).lock():
        pass
    assert (caught.value.code, caught.value.errno) == (ProblemCode.LOCK_REFUSED, "EROFS")
    assert "df -h /run/vgpuctl" in str(caught.value.hint)
