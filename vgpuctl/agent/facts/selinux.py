# SPDX-License-Identifier: Apache-2.0
"""SELinux: its mode, and the labels of the folders that libvirt's storage pools are."""

from typing import List, Optional, Tuple

from vgpuctl.agent.facts import pools
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.diagnostics import PoolLabel
from vgpuctl.agent.wire.envelope import Problem

# selinuxfs, as getenforce(8) reads it: 1 enforcing, 0 permissive; the folder is missing where SELinux is off.
_ENFORCE = "/sys/fs/selinux/enforce"
_MODES = {"1": "enforcing", "0": "permissive"}
_LABEL = "security.selinux"


def read_mode(host: Host) -> Optional[str]:
    """Return `enforcing` or `permissive`, None where SELinux is off."""
    return _MODES.get((host.read_optional(_ENFORCE) or "").strip())


def read_pools(host: Host, unread: List[str]) -> Tuple[PoolLabel, ...]:
    """Return every pool that is a folder with its label, by name; nothing where SELinux is off."""
    if read_mode(host) is None:
        return ()
    found = []
    for name, folder in pools.read_folders(host, unread).items():
        try:
            if host.exists(folder):
                found.append(PoolLabel(name, folder, _type_of(host.read_attribute(folder, _LABEL))))
        except Problem as problem:
            unread.append(problem.message)
    return tuple(found)


def _type_of(label: Optional[str]) -> Optional[str]:
    """Return the type of a label, user:role:type:level."""
    parts = (label or "").split(":")
    return parts[2] if len(parts) > 2 else None
