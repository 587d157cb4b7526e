# SPDX-License-Identifier: Apache-2.0
"""IOMMU groups (reference 1.3): whether the IOMMU works, who shares a group, who does not belong in it."""

from typing import List, Optional, Tuple

from vgpuctl.agent.facts import pci
from vgpuctl.agent.host import Host


def is_active(host: Host) -> bool:
    """Tell whether an IOMMU is working."""
    return bool(host.listdir_optional("/sys/class/iommu"))


def read_group(host: Host, address: str) -> Optional[int]:
    """Return the IOMMU group of a function, None when it has none."""
    return read_group_of(host, pci.folder(address))


def read_group_of(host: Host, device: str) -> Optional[int]:
    """Return the IOMMU group of a device given by its sysfs folder, None when it has none."""
    name = host.link_name(f"{device}/iommu_group")
    return None if name is None else int(name)


def read_members(host: Host, group: Optional[int]) -> Tuple[str, ...]:
    """Return the addresses of the functions in a group, in order."""
    if group is None:
        return ()
    return tuple(host.listdir_optional(f"/sys/kernel/iommu_groups/{group}/devices") or ())


def find_strangers(host: Host, members: Tuple[str, ...], own: Tuple[str, ...]) -> List[str]:
    """Return the group's endpoints that are not the card's own functions; bridges do not count."""
    return [member for member in members if member not in own and not pci.is_bridge(host, member)]
