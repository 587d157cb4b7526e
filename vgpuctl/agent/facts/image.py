# SPDX-License-Identifier: Apache-2.0
"""An image file: read by its own bytes, never through a program that would follow what its header names."""

import hashlib
import os
import struct
from typing import BinaryIO, Optional

from vgpuctl.agent.file_problems import read_problem
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.image import ImageFile, Qcow2Header
from vgpuctl.agent.wire.problem_codes import ProblemCode

_CHUNK_BYTES = 1 << 20
# QEMU docs/interop/qcow2.txt: magic, version, backing_file_offset, backing_file_size, cluster_bits, size. The name of
# the backing file is not read: it is whatever a guest could write there.
_HEADER = struct.Struct(">4sIQIIQ")
_INCOMPATIBLE_FEATURES = 72
_EXTERNAL_DATA_FILE = 1 << 2


def read(host: Host, path: str, *, with_digest: bool) -> ImageFile:
    """Read one image. The digest costs a read of the whole file.

    Raises Problem: `not-found`, `unreadable`, `not-an-image` for a folder, pipe or socket.
    """
    try:
        with host.open_image(path) as file:
            status = os.fstat(file.fileno())
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            header = _qcow2_header(file)
            return ImageFile(
                path,
                host.image_real_path(path),
                size,
                status.st_dev,
                status.st_ino,
                status.st_ctime_ns,
                _digest(host, file) if with_digest else None,
                header,
            )
    except FileNotFoundError:
        raise Problem(ProblemCode.NOT_FOUND, f"{path} does not exist", path=path, errno="ENOENT") from None
    except OSError as error:
        raise read_problem(path, error) from error


def _qcow2_header(file: BinaryIO) -> Optional[Qcow2Header]:
    head = file.read(_INCOMPATIBLE_FEATURES + 8)
    if len(head) < _HEADER.size or head[:4] != b"QFI\xfb":
        return None
    _magic, version, backing_offset, _backing_bytes, _cluster_bits, size = _HEADER.unpack_from(head)
    features = 0
    if version >= 3 and len(head) >= _INCOMPATIBLE_FEATURES + 8:
        (features,) = struct.unpack_from(">Q", head, _INCOMPATIBLE_FEATURES)
    return Qcow2Header(size, backing_offset != 0, bool(features & _EXTERNAL_DATA_FILE))


def _digest(host: Host, file: BinaryIO) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while True:
        chunk = file.read(_CHUNK_BYTES)
        if not chunk:
            return digest.hexdigest()
        digest.update(chunk)
        host.wait(0)
