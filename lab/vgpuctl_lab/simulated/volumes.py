# SPDX-License-Identifier: Apache-2.0
"""Contents of a simulated host's small volumes, such as seeds; libvirt's test driver has none.

A volume that is larger than a seed has no content here, as before: a disk of a simulated guest is empty.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from vgpuctl_lab.folder import write_private
from vgpuctl_lab.simulated.libvirt_wire import read_text

_MOST_BYTES = 4 << 20
_PART = 1 << 18


class VolumeContents:
    """The contents, in `folder/POOL/NAME`; whoever starts the lab alone can read them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._uploads: dict[int, tuple[Path | None, bytearray]] = {}

    def begin(self, serial: int, body: bytes) -> None:
        """Let an upload begin. body: of its call, which begins with a remote_nonnull_storage_vol."""
        self._uploads[serial] = (self._path(body), bytearray())

    def take(self, serial: int, data: bytes) -> None:
        """Take a part of an upload; what is too much is dropped with all before it."""
        path, content = self._uploads.get(serial, (None, bytearray()))
        if path is not None and len(content) + len(data) <= _MOST_BYTES:
            content += data
        elif path is not None:
            self._uploads[serial] = (None, bytearray())

    def end(self, serial: int) -> None:
        """Keep what was uploaded."""
        path, content = self._uploads.pop(serial, (None, bytearray()))
        if path is not None and content:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(path, bytes(content))

    def parts(self, body: bytes) -> Iterator[bytes]:
        """The content of a volume in parts; none without content. body: of a call, as for `begin`."""
        path = self._path(body)
        content = path.read_bytes() if path is not None and path.is_file() else b""
        for offset in range(0, len(content), _PART):
            yield content[offset : offset + _PART]

    def delete(self, body: bytes) -> None:
        """Drop the content of a volume that was deleted."""
        path = self._path(body)
        if path is not None:
            path.unlink(missing_ok=True)

    def of_optical_drives(self, xml: str) -> bytes:
        """The contents of a guest's optical drives, one after the other."""
        found = b""
        for source in ElementTree.fromstring(xml).iterfind("devices/disk[@device='cdrom']/source"):
            name = PurePosixPath(source.get("file") or source.get("volume") or "").name
            for path in sorted(self._folder.glob("*/*")):
                if path.name == name:
                    found += path.read_bytes()
        return found

    def clear(self) -> None:
        """Drop everything."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, body: bytes) -> Path | None:
        """Where a volume's content is; None for a name with a slash or a leading dot."""
        pool, end = read_text(body)
        name, _ = read_text(body, end)
        if any("/" in one or one.startswith(".") or not one for one in (pool, name)):
            return None
        return self._folder / pool / name
