# SPDX-License-Identifier: Apache-2.0
"""libvirt's storage pools that are folders, by libvirt's own files, and the room of their file systems.

Pools of other kinds, such as LVM or RBD, are left out: libvirt tells their room as of their last refresh, and no file
of the host tells it now.
"""

from typing import Dict, List, Optional, Sequence, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.memory import ACTIVE_POOLS, DEFINED_POOLS, PoolSpace
from vgpuctl.agent.wire.mounts import Mounts
from vgpuctl.agent.wire.problem_codes import ProblemCode

_FOLDER_POOLS = ("dir", "fs", "netfs")
_POOLS_AT_MOST, _NAME_AT_MOST = 64, 128
# Of all pools together; one that does not answer takes a part of it, and none the next time.
_LIMIT_S = 10.0


class FileSystems:
    """The file systems of a host in one reading. silent: folders of pools that did not answer."""

    def __init__(self, mounts: str = "") -> None:
        self.mounts = Mounts(mounts)
        self.silent: List[str] = []

    def is_silent(self, path: str) -> bool:
        """Tell whether a path is in a pool whose file system did not answer."""
        return any(path.startswith(folder.rstrip("/") + "/") for folder in self.silent)


def read_folders(
    host: Host, unread: List[str], places: Sequence[str] = (DEFINED_POOLS, ACTIVE_POOLS)
) -> Dict[str, str]:
    """Return the folder of each pool that is one, by the pool's name; nobody looks if it is there."""
    found: Dict[str, str] = {}
    for place in places:
        names: List[str] = []
        try:
            names = host.listdir_optional(place) or []
        except Problem as problem:
            unread.append(problem.message)
        for name in names:
            try:
                found.update(_read_pool(host, f"{place}/{name}") if name.endswith(".xml") else {})
            except Problem as problem:
                unread.append(problem.message)
    return {name: found[name] for name in sorted(found)}


def read_spaces(host: Host, unread: List[str], filesystems: Optional[FileSystems] = None) -> Tuple[PoolSpace, ...]:
    """Return the room of every active pool that is a folder, by name.

    libvirt keeps the state of a pool that it started. One whose folder is there when libvirt starts is active without
    (storage_driver.c, storagePoolUpdateStateCallback; seen with 9.0), so what is defined counts too where it is there.
    One whose file system does not answer, as of a server that is gone, is a sentence in `unread`, and silent.
    """
    filesystems = filesystems or FileSystems(host.read_optional("/proc/mounts") or "")
    found = []
    end_s = host.monotonic() + _LIMIT_S
    started = read_folders(host, unread, (ACTIVE_POOLS,))
    defined = read_folders(host, unread, (DEFINED_POOLS,))
    for name, folder in sorted({**defined, **started}.items())[:_POOLS_AT_MOST]:
        if host.monotonic() > end_s:
            unread.append(f"the room of storage pool {name} was not read: others took {_LIMIT_S:g} s")
            filesystems.silent.append(folder)
            continue
        try:
            place, total, available = host.space(folder)
        except Problem as problem:
            if name not in started and problem.errno == "ENOENT":
                continue  # it is not active
            unread.append(f"the room of storage pool {name} cannot be read: {problem.message}")
            filesystems.silent.append(folder)
            continue
        filesystem = filesystems.mounts.name_of(place)
        if len(filesystem) <= _NAME_AT_MOST:
            found.append(PoolSpace(name, folder, filesystem, total, available))
    return tuple(found)


def _read_pool(host: Host, path: str) -> Dict[str, str]:
    from xml.etree import ElementTree  # readings of a host without pools do without it

    try:
        root = ElementTree.fromstring(host.read_optional(path) or "")
    except ElementTree.ParseError as error:
        raise Problem(ProblemCode.UNREADABLE, f"{path} cannot be read: {error}", path=path) from error
    # The state of a running pool has its definition inside.
    pool = root if root.tag == "pool" else root.find(".//pool")
    name, place = (pool.findtext("name"), pool.findtext("target/path")) if pool is not None else (None, None)
    if pool is None or not name or not place or pool.get("type") not in _FOLDER_POOLS:
        return {}
    return {name: place} if len(name) <= _NAME_AT_MOST else {}
