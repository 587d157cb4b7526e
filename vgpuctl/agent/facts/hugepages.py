# SPDX-License-Identifier: Apache-2.0
"""The pools of huge pages, over all NUMA nodes and of each (Linux admin-guide/mm/hugetlbpage)."""

import re
from typing import Optional, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.memory import HugepageFacts
from vgpuctl.agent.wire.mounts import read_hugetlbfs_sizes

FOLDER = "/sys/kernel/mm/hugepages"
_SIZE = re.compile(r"hugepages-(\d{1,18})kB")
_DEFAULT = re.compile(r"^Hugepagesize:\s*(\d{1,18}) kB", re.MULTILINE)


def read(host: Host, folder: str = FOLDER) -> Tuple[HugepageFacts, ...]:
    """Return the pool of each page size, by size; none where the kernel has no huge pages. Raises Problem.

    folder: of the whole host, or of one NUMA node (`node_folder`).
    """
    found = []
    for name in host.listdir_optional(folder) or []:
        match = _SIZE.fullmatch(name)
        if match:
            free = int(host.read(f"{folder}/{name}/free_hugepages"))
            found.append(HugepageFacts(int(match[1]), int(host.read(f"{folder}/{name}/nr_hugepages")), free))
    return tuple(sorted(found, key=lambda one: one.size_kib))


def read_with_mounts(host: Host) -> Tuple[HugepageFacts, ...]:
    """Return the pools of the whole host, each with whether a hugetlbfs of its size is mounted. Raises Problem."""
    pools = read(host)
    mounts = host.read_optional("/proc/mounts")
    if mounts is None:
        return pools
    sizes = read_hugetlbfs_sizes(mounts, read_usual_kib(host))
    return tuple(HugepageFacts(one.size_kib, one.total, one.free, one.size_kib in sizes) for one in pools)


def read_usual_kib(host: Host) -> Optional[int]:
    """Return the page size that counts where none is named, None where the kernel has no huge pages. Raises Problem."""
    usual = _DEFAULT.search(host.read_optional("/proc/meminfo") or "")
    return int(usual[1]) if usual else None


def node_folder(number: int) -> str:
    """Return the folder that holds the pools of one NUMA node."""
    return f"/sys/devices/system/node/node{number}/hugepages"


def read_count(host: Host, size_kib: int) -> int:
    """Return how many pages of a size the pool has. Raises Problem `not-found` for a size the kernel has not."""
    return int(host.read(path(size_kib)))


def path(size_kib: int) -> str:
    """Return the file that holds the pool's count."""
    return f"{FOLDER}/hugepages-{size_kib}kB/nr_hugepages"
