# SPDX-License-Identifier: Apache-2.0
"""Going through folders whose links may lead back: no folder is entered from inside itself, and not too many are."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from vgpuctl.errors import InventoryError

MOST_FOLDERS = 10_000


class FolderWalk:
    """One walk. what: the beginning of its errors, as `inventory `."""

    def __init__(self, what: str = "") -> None:
        self._what = what
        self._above: list[tuple[int, int]] = []
        self._entered = 0

    @contextlib.contextmanager
    def enter(self, folder: Path) -> Iterator[list[Path]]:
        """Give the content of a folder by name, for the length of the block. Raises InventoryError."""
        try:
            status = folder.stat()
            paths = sorted(folder.iterdir(), key=lambda path: os.fsencode(path.name))
        except OSError as exc:
            raise InventoryError(f"{self._what}{folder}: the folder cannot be read: {exc.strerror}") from exc
        place = (status.st_dev, status.st_ino)
        self._entered += 1
        if place in self._above:
            raise InventoryError(f"{self._what}{folder}: the link leads back to a folder that it is in")
        if self._entered > MOST_FOLDERS:
            raise InventoryError(f"{self._what}{folder}: more than {MOST_FOLDERS} folders; see where links lead")
        self._above.append(place)
        yield paths
        self._above.pop()
