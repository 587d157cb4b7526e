# SPDX-License-Identifier: Apache-2.0
"""Fingerprint of an inventory's files, by which a long run finds that somebody has changed one of them."""

import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from vgpuctl.inventory import sources
from vgpuctl.inventory.ansible_source import InventoryReader
from vgpuctl.inventory.variable_files import BESIDE

ASKED_AGAIN_S = 300
"""Seconds after which a long run asks ansible-core again."""


def fingerprint(
    inventory_sources: Sequence[str | Path], reader: str | None = None
) -> frozenset[tuple[str, int, int, int]]:
    """Path, inode, size and time of change of every file that load_inventory may read; no file is opened.

    Hidden files do not count, nor does what cannot be looked at: load_inventory says why. reader: with `ansible` the
    time counts as well, for what a script or a plugin finds is in no file.
    """
    found: set[tuple[str, int, int, int]] = set()
    if reader == InventoryReader.ANSIBLE:
        found.add(("", 0, 0, int(time.monotonic() // ASKED_AGAIN_S)))
    entered: set[tuple[int, int]] = set()
    wanted = [sources.resolve(source) for source in inventory_sources]
    working = sources.folder_of_sources(wanted)
    beside = set() if working is None else {working}
    for source in wanted:
        if not sources.is_comma_list(source):
            path = Path(source)
            found.update(_files(path, entered))
            beside.add(path if path.is_dir() else path.parent)
    for folder in beside:
        for name in BESIDE:
            found.update(_files(folder / name, entered))
    return frozenset(found)


def _files(path: Path, entered: set[tuple[int, int]]) -> Iterator[tuple[str, int, int, int]]:
    """The file, or the files of a folder and the folders below it. A folder that links lead back to is left out."""
    try:
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            yield str(path), status.st_ino, status.st_size, status.st_mtime_ns
            return
        place = (status.st_dev, status.st_ino)
        below = [] if place in entered else list(path.iterdir())
    except (OSError, ValueError):
        return
    entered.add(place)
    for one in below:
        if not one.name.startswith("."):
            yield from _files(one, entered)
