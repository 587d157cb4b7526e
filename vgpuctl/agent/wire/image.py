# SPDX-License-Identifier: Apache-2.0
"""One image file of a host as the agent read it: its size and times, its digest, and what a qcow2 header says.

Python 3.9, standard library only.
"""

from typing import Optional

from vgpuctl.agent.wire.values import dataclass


@dataclass(frozen=True)
class Qcow2Header:
    """The header of a qcow2 file. virtual_bytes: the size the guest sees."""

    virtual_bytes: int
    has_backing_file: bool = False
    has_data_file: bool = False


@dataclass(frozen=True)
class ImageFile:
    """One file or block device of a host.

    real_path: where `path` leads when every link is followed. changed_ns: the inode's change time, which nobody can
    set. sha256: 64 hexadecimal digits, None when it was not asked for. qcow2: None when the content is no qcow2.
    """

    path: str
    real_path: str
    size_bytes: int
    device: int
    inode: int
    changed_ns: int
    sha256: Optional[str] = None
    qcow2: Optional[Qcow2Header] = None
