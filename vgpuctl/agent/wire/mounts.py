# SPDX-License-Identifier: Apache-2.0
"""The text of /proc/mounts, as the agent and the probe by plain sh have it."""

import re
from typing import Dict, Optional, Set

from vgpuctl.agent.wire.values import dataclass

# The kernel prints `pagesize=2M` and `pagesize=1024M` (fs/hugetlbfs/inode.c).
_MOUNTED = re.compile(r"(?:^|,)pagesize=([0-9]{1,12})([KMGkmg])")
_KIB = {"K": 1, "M": 1 << 10, "G": 1 << 20}
# `nas:/vms` of NFS and CephFS, `//nas/vms` of CIFS, `nas:vms` of GlusterFS; not `tmpfs` or `overlay`.
_OF_NETWORK = re.compile(r"^//|[:=]")


def read_hugetlbfs_sizes(mounts: str, default_kib: Optional[int]) -> Set[int]:
    """Return the page sizes in KiB of every hugetlbfs in the text of /proc/mounts; without `pagesize` the default's."""
    found = set()
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 4 or words[2] != "hugetlbfs":
            continue
        size = _MOUNTED.search(words[3])
        if size:
            found.add(int(size[1]) * _KIB[size[2].upper()])
        elif default_kib is not None:
            found.add(default_kib)
    return found


@dataclass(frozen=True)
class Mount:
    """One mount. source: what is mounted, such as a device or `nas:/vms`. type: of its file system."""

    source: str
    place: str
    type: str

    def name(self) -> str:
        """The file system's name: the source of one that other hosts can mount too, else the place."""
        is_local = self.source.startswith("/") and not self.source.startswith("//")
        return self.place if is_local or not _OF_NETWORK.search(self.source) else self.source


class Mounts:
    """The mounts of a host, by the text of /proc/mounts, which is parsed once."""

    def __init__(self, text: str) -> None:
        self._by_place: Dict[str, Mount] = {}
        for line in text.splitlines():
            fields = line.split(" ")
            if len(fields) >= 3:
                # The kernel writes blanks, tabs, line ends and backslashes as octal numbers (fs/proc_namespace.c).
                place = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1])
                # Of several at one place, the last one is seen.
                self._by_place[place.rstrip("/")] = Mount(fields[0], place, fields[2])

    def of(self, path: str) -> Optional[Mount]:
        """Return the mount that has a path; None where none has it."""
        place = path.rstrip("/")
        while place and place not in self._by_place:
            place = place.rpartition("/")[0]
        return self._by_place.get(place) if path.startswith("/") else None

    def name_of(self, path: str) -> str:
        """Return the name of the file system that has a path; the path itself where no mount has it."""
        mount = self.of(path)
        return path if mount is None else mount.name()


def mount_of(mounts: str, path: str) -> Optional[Mount]:
    """Return the mount that has a path, by the text of /proc/mounts; None where that has none."""
    return Mounts(mounts).of(path)


def filesystem_of(mounts: str, path: str) -> Optional[str]:
    """Return the type of the file system that has a path, by the text of /proc/mounts; None where that has none."""
    mount = mount_of(mounts, path)
    return None if mount is None else mount.type
