# SPDX-License-Identifier: Apache-2.0
"""The gate of trusted_files.py for a folder of which a program opens what it likes."""

import os
import stat
from contextlib import suppress

from vgpuctl.trusted_files import Trust, judge


def judge_tree(path: str | os.PathLike[str], trust: Trust) -> frozenset[int]:
    """Judge a path as `judge` does, and all that a folder has below it, but for hidden files.

    The files there must belong to trusted users, and links are followed. Raises as `judge`. A file that cannot be
    opened is left out, since the program that reads the folder cannot open it either.
    """
    users = judge(path, trust)
    below = Trust(takes_owner=False, users=users)
    left, entered = [os.fspath(path)], set[tuple[int, int]]()
    while left:
        for entry in _entries(left.pop(), entered):
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                # The group's bits are also the most that an access control list gives: nothing more to look for.
                is_wide = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
                if is_wide or stat.S_ISLNK(status.st_mode) or status.st_uid not in users:
                    judge(entry.path, below)
            left.append(entry.path)
    return users


def _entries(folder: str, entered: set[tuple[int, int]]) -> list[os.DirEntry[str]]:
    """Entries of a folder, ordered by name, without hidden files; empty for a file and for a folder entered before."""
    try:
        found = os.stat(folder)  # noqa: PTH116
        place = (found.st_dev, found.st_ino)
        if not stat.S_ISDIR(found.st_mode) or place in entered:
            return []
        entered.add(place)
        with os.scandir(folder) as entries:
            return sorted((one for one in entries if not one.name.startswith(".")), key=lambda one: one.name)
    except OSError:
        return []
