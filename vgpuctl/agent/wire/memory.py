# SPDX-License-Identifier: Apache-2.0
"""Facts of a host's memory and disks: its NUMA nodes, huge pages, room of pools. Python 3.9, standard library only."""

from typing import Optional, Tuple

from vgpuctl.agent.wire.values import dataclass

DEFINED_POOLS = "/etc/libvirt/storage"
ACTIVE_POOLS = "/run/libvirt/storage"
"""libvirt's folder with a file for each storage pool that it started."""


@dataclass(frozen=True)
class HugepageFacts:
    """The pool of one huge page size, over all NUMA nodes.

    is_mounted: True if a hugetlbfs of this page size is mounted, without which libvirt gives no guest such pages; None
    when the agent did not look, as for the pools of single nodes.
    """

    size_kib: int
    total: int
    free: int
    is_mounted: Optional[bool] = None


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node of the host. cpus: a kernel CPU list, empty for a node of memory alone (CXL, a GPU's memory).

    memory_available_mib: about what a program could get there, None when the kernel does not tell. hugepages: its part
    of the pools. cores: a kernel CPU list of the threads of each core that has several, `0,32`.
    """

    number: int
    cpus: str
    memory_mib: int
    memory_available_mib: Optional[int] = None
    hugepages: Tuple[HugepageFacts, ...] = ()
    cores: Tuple[str, ...] = ()


@dataclass(frozen=True)
class PoolSpace:
    """The room of an active storage pool that is a folder or a volume group of LVM.

    filesystem: the one that has the folder: its source where other hosts can mount it too (`nas:/vms`), else the place
    where it is mounted; `/dev/vg0` of a volume group. available_bytes: for programs without the rights of root.
    is_group: True of a volume group, whose disks are logical volumes.
    """

    pool: str
    path: str
    filesystem: str
    total_bytes: int
    available_bytes: int
    is_group: bool = False


@dataclass(frozen=True)
class UnmeasuredPool:
    """An active storage pool whose room is not known. type: libvirt's, such as `rbd`.

    is_readable: False where nothing on the host tells the room of this type now; True where it did not answer.
    """

    pool: str
    type: str
    is_readable: bool


@dataclass(frozen=True)
class PoolRooms:
    """The active storage pools of a host, by name: those whose room is known, and the others."""

    spaces: Tuple[PoolSpace, ...] = ()
    unmeasured: Tuple[UnmeasuredPool, ...] = ()
