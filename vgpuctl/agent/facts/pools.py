# SPDX-License-Identifier: Apache-2.0
"""libvirt's storage pools by libvirt's own files, and the room of those that are folders or volume groups of LVM.

libvirt tells the room of other kinds, such as RBD, as of their last refresh, which says nothing of now.
"""

from typing import Dict, List, Optional, Sequence, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.memory import ACTIVE_POOLS, DEFINED_POOLS, PoolRooms, PoolSpace, UnmeasuredPool
from vgpuctl.agent.wire.mounts import Mounts
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass

_FOLDER_TYPES, _GROUP_TYPE = ("dir", "fs", "netfs"), "logical"
_POOLS_AT_MOST, _NAME_AT_MOST = 64, 128
# Of all pools together; one that does not answer takes a part of it, and none the next time.
_LIMIT_S = 10.0
# --readonly takes no lock and does not ask the device mapper (lvm(8)); "/" is in no group's name.
_VGS = (
    *("vgs", "--readonly", "--noheadings", "--nosuffix", "--units", "b", "--separator", "/"),
    *("-o", "vg_name,vg_size,vg_free"),
)
_VGS_LIMIT_S = 5.0


@dataclass(frozen=True)
class _Pool:
    """One pool. type: libvirt's. place: its folder, also the one of a group's devices. group: of LVM, or its source."""

    name: str
    type: str
    place: str
    group: str

    def is_folder(self) -> bool:
        """Tell whether it is a folder."""
        return self.type in _FOLDER_TYPES and bool(self.place)


class FileSystems:
    """The file systems of a host in one reading. silent: folders of pools that did not answer."""

    def __init__(self, mounts: str = "") -> None:
        self.mounts = Mounts(mounts)
        self.silent: List[str] = []

    def is_silent(self, path: str) -> bool:
        """Tell whether a path is in a pool whose file system did not answer."""
        return any(path.startswith(folder.rstrip("/") + "/") for folder in self.silent)


def read_folders(host: Host, unread: List[str]) -> Dict[str, str]:
    """Return the folder of each pool that is one, by the pool's name; nobody looks if it is there."""
    every = {**_read_pools(host, unread, DEFINED_POOLS), **_read_pools(host, unread, ACTIVE_POOLS)}
    return {name: every[name].place for name in sorted(every) if every[name].is_folder()}


def read_rooms(host: Host, unread: List[str], filesystems: Optional[FileSystems] = None) -> PoolRooms:
    """Return the room of every active pool, by name.

    libvirt keeps the state of a pool that it started. One whose folder is there when libvirt starts is active without
    (storage_driver.c, storagePoolUpdateStateCallback; seen with 9.0), so what is defined counts too where it is there.
    One that does not answer, as the file system of a server that is gone, is a sentence in `unread`.
    """
    filesystems = filesystems or FileSystems(host.read_optional("/proc/mounts") or "")
    spaces: List[PoolSpace] = []
    unmeasured: List[UnmeasuredPool] = []
    started = _read_pools(host, unread, ACTIVE_POOLS)
    defined = _read_pools(host, unread, DEFINED_POOLS)
    every = sorted({**defined, **started}.values(), key=lambda pool: pool.name)
    if len(every) > _POOLS_AT_MOST:
        unread.append(f"the host has {len(every)} storage pools; the first {_POOLS_AT_MOST} are read")
    groups = _Groups(host)
    end_s = host.monotonic() + _LIMIT_S
    for pool in every[:_POOLS_AT_MOST]:
        is_started = pool.name in started
        if pool.type != _GROUP_TYPE and not pool.is_folder():
            if is_started:
                unmeasured.append(UnmeasuredPool(pool.name, pool.type, is_readable=False))
            continue
        if pool.type == _GROUP_TYPE and not is_started and not host.exists(pool.place):
            continue  # it is not active
        try:
            if host.monotonic() > end_s:
                raise Problem(ProblemCode.UNREADABLE, f"others took {_LIMIT_S:g} s")
            space = _read_folder(host, pool, filesystems) if pool.is_folder() else groups.read(pool)
        except Problem as problem:
            if not is_started and pool.is_folder() and problem.errno == "ENOENT":
                continue  # it is not active
            unread.append(f"the room of storage pool {pool.name} cannot be read: {problem.message}")
            unmeasured.append(UnmeasuredPool(pool.name, pool.type, is_readable=True))
            if pool.is_folder():
                filesystems.silent.append(pool.place)
            continue
        if len(space.filesystem) <= _NAME_AT_MOST:
            spaces.append(space)
    return PoolRooms(tuple(spaces), tuple(unmeasured))


def _read_folder(host: Host, pool: _Pool, filesystems: FileSystems) -> PoolSpace:
    place, total, available = host.space(pool.place)
    return PoolSpace(pool.name, pool.place, filesystems.mounts.name_of(place), total, available)


class _Groups:
    """The volume groups of LVM, asked once, and only where a pool is one."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._told: Optional[Dict[str, List[Tuple[int, int]]]] = None
        self._problem: Optional[Problem] = None

    def read(self, pool: _Pool) -> PoolSpace:
        """Return the room of a pool's group. Raises Problem."""
        if self._told is None:
            self._told = {}
            try:
                self._told = self._ask()
            except Problem as problem:
                self._problem = problem
        if self._problem is not None:
            raise self._problem
        sizes = self._told.get(pool.group, [])
        if len(sizes) != 1:
            said = "no volume group" if not sizes else f"{len(sizes)} volume groups"
            raise Problem(ProblemCode.UNREADABLE, f"vgs tells of {said} {pool.group}")
        ((total, free),) = sizes
        return PoolSpace(pool.name, pool.place, f"/dev/{pool.group}", total, free, is_group=True)

    def _ask(self) -> Dict[str, List[Tuple[int, int]]]:
        done = self._host.run(_VGS, timeout_s=_VGS_LIMIT_S)
        found: Dict[str, List[Tuple[int, int]]] = {}
        for line in done.output.splitlines():
            name, *sizes = line.strip().split("/")
            if len(sizes) == 2 and all(size.isdecimal() and len(size) < 20 for size in sizes):
                found.setdefault(name, []).append((int(sizes[0]), int(sizes[1])))
        if done.status != 0 and not found:
            said = (done.errors.strip().splitlines() or ["nothing"])[-1].strip()[:200]
            raise Problem(ProblemCode.UNREADABLE, f"vgs ended with {done.status} and said {said}")
        return found


def _read_pools(host: Host, unread: List[str], place: str) -> Dict[str, _Pool]:
    """Return the pools of libvirt's files in a folder, by name."""
    found: Dict[str, _Pool] = {}
    names: Sequence[str] = ()
    try:
        names = host.listdir_optional(place) or ()
    except Problem as problem:
        unread.append(problem.message)
    for name in names:
        try:
            pool = _read_pool(host, f"{place}/{name}") if name.endswith(".xml") else None
        except Problem as problem:
            unread.append(problem.message)
            continue
        if pool is not None:
            found[pool.name] = pool
    return found


def _read_pool(host: Host, path: str) -> Optional[_Pool]:
    from xml.etree import ElementTree  # readings of a host without pools do without it

    try:
        root = ElementTree.fromstring(host.read_optional(path) or "")
    except ElementTree.ParseError as error:
        raise Problem(ProblemCode.UNREADABLE, f"{path} cannot be read: {error}", path=path) from error
    # The state of a running pool has its definition inside.
    pool = root if root.tag == "pool" else root.find(".//pool")
    name = pool.findtext("name") if pool is not None else None
    if pool is None or not name or len(name) > _NAME_AT_MOST:
        return None
    place, source = pool.findtext("target/path") or "", pool.findtext("source/name")
    return _Pool(name, pool.get("type", ""), place, source or name)
