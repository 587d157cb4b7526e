# SPDX-License-Identifier: Apache-2.0
"""SR-IOV (reference 1.1, 3): how many VFs a function can have, has, and which."""

import re
from typing import List, Optional, Tuple

from vgpuctl.agent.facts import pci
from vgpuctl.agent.host import Host

_VIRTFN = re.compile(r"virtfn(\d{1,18})")


def read_total(host: Host, address: str) -> int:
    """Return how many VFs a function can have; 0 when it is not SR-IOV capable."""
    return int(host.read_optional(f"{pci.folder(address)}/sriov_totalvfs") or "0")


def read_count(host: Host, address: str) -> int:
    """Return how many VFs are enabled; 0 when the function is not SR-IOV capable."""
    return int(host.read_optional(f"{pci.folder(address)}/sriov_numvfs") or "0")


def read_functions(host: Host, address: str) -> List[Tuple[int, str]]:
    """Return (number, address) of the enabled VFs, by number."""
    found = []
    for name in host.listdir(pci.folder(address)):
        match = _VIRTFN.fullmatch(name)
        function = host.link_name(f"{pci.folder(address)}/{name}") if match else None
        if match and function:
            found.append((int(match[1]), function))
    return sorted(found)


def read_physical(host: Host, address: str) -> Optional[str]:
    """Return the physical function a VF belongs to, None when it is none."""
    return host.link_name(f"{pci.folder(address)}/physfn")


def read_migration(host: Host, address: str, driver: Optional[str]) -> Optional[str]:
    """Return the state of a VF's VFIO migration, None where the kernel does not tell it (Linux debugfs-vfio, 6.7).

    Drivers that can migrate are called after their vendor, as `xe-vfio-pci`; vfio-pci itself cannot.
    """
    if driver is None or not driver.replace("-", "_").endswith("_vfio_pci"):
        return None
    told = host.read_optional(f"/sys/kernel/debug/vfio/{address}/migration/state")
    return told.strip()[:80] or None if told is not None else None
