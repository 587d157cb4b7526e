# SPDX-License-Identifier: Apache-2.0
"""The first files of an emulated host: busybox, a few modules, our init, and what makes the host this host."""

import lzma
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from vgpuctl.errors import LabError
from vgpuctl_lab.builds import IN_HOST
from vgpuctl_lab.kernel import Kernel

# Modules that the root file system needs.
ROOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_blk", "crc32c_generic", "ext4", "virtio_net")
_FILE, _FOLDER, _LINK, _CHARACTER_DEVICE = 0o100000, 0o040000, 0o120000, 0o020000
_BUSYBOX = (Path("/bin/busybox"), Path("/usr/bin/busybox-static"))


class Archive:
    """A cpio archive in the `newc` format that the kernel unpacks (Documentation/driver-api/early-userspace)."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._folders: set[str] = set()
        self._count = 0

    def add(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Add a file of root's, and the folders it lies in."""
        self._add_parents(path)
        self._append(path, _FILE | mode, content)

    def add_folder(self, path: str, mode: int = 0o755) -> None:
        """Add a folder of root's, and the folders it lies in."""
        self._add_parents(path)
        if path not in self._folders:
            self._folders.add(path)
            self._append(path, _FOLDER | mode, b"")

    def add_link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add_parents(path)
        self._append(path, _LINK | 0o777, target.encode())

    def add_character_device(self, path: str, major: int, minor: int) -> None:
        """Add a device node, which needs no privilege in an archive."""
        self._add_parents(path)
        self._append(path, _CHARACTER_DEVICE | 0o600, b"", (major, minor))

    def finished(self) -> bytes:
        """The archive's bytes."""
        self._append("TRAILER!!!", 0, b"")
        return b"".join(self._parts)

    def _add_parents(self, path: str) -> None:
        parent = os.path.dirname(path)  # noqa: PTH120  (archive paths, not this machine's)
        if parent:
            self.add_folder(parent)

    def _append(self, path: str, mode: int, content: bytes, device: tuple[int, int] = (0, 0)) -> None:
        self._count += 1
        name = path.encode() + b"\0"
        fields = (self._count, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name), 0)
        header = b"070701" + "".join(f"{field:08X}" for field in fields).encode()
        self._parts += [_padded(header + name), _padded(content)]


def initramfs(kernel: Kernel, host_files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """The initramfs of one host. host_files: path under `/run/lab` in the host, content, mode."""
    archive = Archive()
    for folder in ("dev", "proc", "sys", "lower", "upper", "newroot"):
        archive.add_folder(folder)
    archive.add_character_device("dev/console", 5, 1)
    archive.add("bin/busybox", busybox(), 0o755)
    archive.add_link("bin/sh", "busybox")
    archive.add("init", (IN_HOST / "init").read_bytes(), 0o755)
    add_modules(archive, kernel.modules)
    for path, (content, mode) in host_files.items():
        archive.add(f"lab/{path}", content, mode)
    return archive.finished()


def guest_initramfs() -> bytes:
    """The initramfs of a tiny guest: busybox and a first process that lists its PCI devices on the console."""
    archive = Archive()
    archive.add_folder("dev")
    archive.add_character_device("dev/console", 5, 1)
    archive.add("bin/busybox", busybox(), 0o755)
    archive.add("init", (IN_HOST / "guest-init").read_bytes(), 0o755)
    return archive.finished()


def add_modules(archive: Archive, modules: Path, names: Sequence[str] = ROOT_MODULES) -> None:
    """Add some modules of a kernel and what they depend on to `modules/`, and `modules/order` with their order.

    modules: the folder with `modules.dep`. Debian 13 compresses the files, which busybox cannot insert.
    """
    order = []
    for file in modules_in_order((modules / "modules.dep").read_text(), names):
        name, content = Path(file).name, (modules / file).read_bytes()
        if name.endswith(".xz"):
            name, content = name.removesuffix(".xz"), lzma.decompress(content)
        archive.add(f"modules/{name}", content)
        order.append(name)
    archive.add("modules/order", "".join(f"{name}\n" for name in order).encode())


def modules_in_order(dependencies: str, names: Sequence[str] = ROOT_MODULES) -> list[str]:
    """The files of some modules, each after what it depends on; those that the root file system needs without `names`.

    dependencies: the text of `modules.dep`, whose lines list the nearest dependency first. It does not list the
    kernel's built-in modules.
    """
    lines: dict[str, tuple[str, list[str]]] = {}
    for line in dependencies.splitlines():
        file, _, after = line.partition(":")
        lines[re.sub(r"\.ko.*", "", Path(file).name).replace("-", "_")] = (file, after.split())
    ordered: list[str] = []
    for name in names:
        if name in lines:
            file, needed = lines[name]
            ordered += [one for one in (*reversed(needed), file) if one not in ordered]
    return ordered


def busybox() -> bytes:
    """This machine's statically linked busybox. Raises LabError without one."""
    for path in _BUSYBOX:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if b"/ld-linux" not in content:
            return content
    raise LabError(
        "no statically linked busybox on this machine", hint="run `make setup`, or apt-get install busybox-static"
    )


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
