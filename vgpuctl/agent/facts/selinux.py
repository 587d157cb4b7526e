# SPDX-License-Identifier: Apache-2.0
"""SELinux: its mode, and the labels of the folders that libvirt's storage pools are."""

from typing import List, Optional, Tuple
from xml.etree import ElementTree

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.diagnostics import PoolLabel
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

# selinuxfs, as getenforce(8) reads it: 1 enforcing, 0 permissive; the folder is missing where SELinux is off.
_ENFORCE = "/sys/fs/selinux/enforce"
_MODES = {"1": "enforcing", "0": "permissive"}
_POOLS = ("/etc/libvirt/storage", "/run/libvirt/storage")
_FOLDER_POOLS = ("dir", "fs", "netfs")
_LABEL = "security.selinux"


def read_mode(host: Host) -> Optional[str]:
    """Return `enforcing` or `permissive`, None where SELinux is off."""
    return _MODES.get((host.read_optional(_ENFORCE) or "").strip())


def read_pools(host: Host, unread: List[str]) -> Tuple[PoolLabel, ...]:
    """Return every pool that is a folder with its label, by name; nothing where SELinux is off."""
    if read_mode(host) is None:
        return ()
    found = {}
    for folder in _POOLS:
        try:
            names = [name for name in host.listdir_optional(folder) or [] if name.endswith(".xml")]
            for name in names:
                pool = _read_pool(host, f"{folder}/{name}")
                if pool is not None:
                    found[pool.pool] = pool
        except Problem as problem:
            unread.append(problem.message)
    return tuple(found[name] for name in sorted(found))


def _read_pool(host: Host, path: str) -> Optional[PoolLabel]:
    try:
        root = ElementTree.fromstring(host.read_optional(path) or "")
    except ElementTree.ParseError as error:
        raise Problem(ProblemCode.UNREADABLE, f"{path} cannot be read: {error}", path=path) from error
    # The state of a running pool has its definition inside.
    pool = root if root.tag == "pool" else root.find(".//pool")
    name, place = (pool.findtext("name"), pool.findtext("target/path")) if pool is not None else (None, None)
    if pool is None or not name or not place or pool.get("type") not in _FOLDER_POOLS or not host.exists(place):
        return None
    label = host.read_attribute(place, _LABEL)
    # user:role:type:level
    parts = (label or "").split(":")
    return PoolLabel(name, place, parts[2] if len(parts) > 2 else None)
