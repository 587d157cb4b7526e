# SPDX-License-Identifier: Apache-2.0
"""Image files as the agent reads them: by their own bytes, without following what a header names."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from vgpuctl.agent.facts import image
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.image import Qcow2Header

MIB = 2**20


def _make(path: Path, *options: str) -> Path:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options, str(path), "3M"], check=True)
    return path


def test_a_qcow2_file_tells_its_size_and_digest(tmp_path: Path) -> None:
    made = _make(tmp_path / "debian.qcow2")
    (tmp_path / "latest").symlink_to("debian.qcow2")
    file = image.read(Host(str(tmp_path)), "/latest", with_digest=True)
    assert (file.path, file.real_path, file.size_bytes) == ("/latest", "/debian.qcow2", made.stat().st_size)
    assert file.qcow2 == Qcow2Header(3 * MIB)
    assert file.sha256 == hashlib.sha256(made.read_bytes()).hexdigest()
    again = image.read(Host(str(tmp_path)), "/debian.qcow2", with_digest=False)
    assert (again.sha256, again.inode, again.changed_ns) == (None, file.inode, file.changed_ns)
    os.utime(made, (1, 1))
    assert image.read(Host(str(tmp_path)), "/debian.qcow2", with_digest=False).changed_ns != file.changed_ns


def test_what_a_qcow2_file_stands_on_is_told_and_never_opened(tmp_path: Path) -> None:
    _make(tmp_path / "on.qcow2", "-F", "raw", "-u", "-b", "/etc/shadow")
    _make(tmp_path / "split.qcow2", "-o", f"data_file={tmp_path}/data.raw,data_file_raw=on")
    host = Host(str(tmp_path))
    assert image.read(host, "/on.qcow2", with_digest=False).qcow2 == Qcow2Header(3 * MIB, has_backing_file=True)
    split = image.read(host, "/split.qcow2", with_digest=False).qcow2
    assert split == Qcow2Header(3 * MIB, has_data_file=True)


@pytest.mark.parametrize("content", [b"", b"QFI\xfb", b"QFI\xfb" + b"\xff" * 100, b"#!/bin/sh\n" * 20])
def test_other_and_broken_content_is_read_without_harm(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "some.img").write_bytes(content)
    file = image.read(Host(str(tmp_path)), "/some.img", with_digest=False)
    assert file.size_bytes == len(content)
    assert (file.qcow2 is not None) == (len(content) > 32 and content.startswith(b"QFI"))


def test_what_is_no_image_is_refused_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    host = Host(str(tmp_path))
    for path, code in (("/none", "not-found"), ("/folder", "not-an-image"), ("/pipe", "not-an-image")):
        with pytest.raises(Problem) as caught:
            image.read(host, path, with_digest=True)
        assert caught.value.code == code
