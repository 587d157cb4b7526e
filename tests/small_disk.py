# SPDX-License-Identifier: Apache-2.0
"""A real disk of a few MiB that a test can fill and make read-only."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class SmallDisk:
    """A mounted tmpfs."""

    path: Path

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Leave no byte free for the length of the block."""
        ballast = self.path / "ballast"
        with pytest.raises(OSError, match="No space left"), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        try:
            yield
        finally:
            ballast.unlink()

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Refuse every write for the length of the block."""
        subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True)
        try:
            yield
        finally:
            subprocess.run(["mount", "-o", "remount,rw", str(self.path)], check=True)


@contextlib.contextmanager
def small_disk(folder: Path, *, mib: int = 4) -> Iterator[SmallDisk]:
    """Mount a disk at a folder, which is made."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "tmpfs", str(folder)], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
