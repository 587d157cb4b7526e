# SPDX-License-Identifier: Apache-2.0
"""A path of the machine, as seen from this process: the machine's root may be a test's folder."""

import os


class MachineRoot:
    """The root of one machine. writes: how often this process has tried to write to the machine."""

    def __init__(self, root: str = "/") -> None:
        self.root = os.path.abspath(root)
        self.writes = 0

    def path(self, path: str) -> str:
        """Return where a path of the machine lies on this one."""
        return path if self.root == "/" else self.root + path

    def image_real_path(self, path: str) -> str:
        """Return where a path of the disk leads when all its links are followed, as seen on the machine."""
        return self.seen(os.path.realpath(self.path(path)))

    def seen(self, place: str) -> str:
        """Return a place of this process as a path of the machine."""
        return "/" + os.path.relpath(place, self.root).lstrip("/") if self.root != "/" else place
