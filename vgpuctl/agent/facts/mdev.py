# SPDX-License-Identifier: Apache-2.0
"""Mediated devices (reference 2.1): what a parent offers, and which exist."""

import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

from vgpuctl.agent.facts import iommu, pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem

BUS = "/sys/bus/mdev/devices"
DEFINITIONS = "/etc/mdevctl.d"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_FRAMEBUFFER = re.compile(r"framebuffer=(\d+)M")
_MAX_INSTANCE = re.compile(r"max_instance=(\d+)")


@dataclass(frozen=True)
class OfferedType:
    """One type under one parent, as its folder says now."""

    type_id: str
    full_name: str
    available: int
    framebuffer_mib: Optional[int]
    max_instances: Optional[int]


@dataclass(frozen=True)
class ActiveMdev:
    """One mediated device that exists."""

    uuid: str
    parent: str
    type_id: str
    iommu_group: Optional[int]


def check_uuid(text: str) -> str:
    """Return a UUID in lower case. Raises Problem `bad-uuid`."""
    if not _UUID.fullmatch(text.lower()):
        raise Problem("bad-uuid", f"{text!r} is not a UUID")
    return text.lower()


def check_type(text: str) -> str:
    """Return a type's folder name when it can be one. Raises Problem `bad-type`."""
    if not _TYPE.fullmatch(text):
        raise Problem("bad-type", f"{text!r} is not the name of an mdev type")
    return text


def read_defined(host: Host) -> Tuple[str, ...]:
    """Return the UUIDs that mdevctl has definitions of, `/etc/mdevctl.d/PARENT/UUID` (reference 2.4)."""
    found = {
        name.lower()
        for parent in host.listdir_optional(DEFINITIONS) or ()
        for name in host.listdir_optional(f"{DEFINITIONS}/{parent}") or ()
    }
    return tuple(sorted(name for name in found if _UUID.fullmatch(name)))


def types_folder(parent: str) -> str:
    """Return the folder with the types of a parent."""
    return f"{pci.folder(parent)}/mdev_supported_types"


def offers_types(host: Host, parent: str) -> bool:
    """Tell whether a function is an mdev parent at all."""
    return host.exists(types_folder(parent))


def read_types(host: Host, parent: str) -> List[OfferedType]:
    """Read every type of a parent. Raises Problem."""
    return [read_type(host, parent, type_id) for type_id in host.listdir(types_folder(parent))]


def read_available(host: Host, parent: str) -> Dict[str, int]:
    """Return {type id: available instances} of a parent, without the texts that are alike on all VFs of a GPU."""
    folder = types_folder(parent)
    return {type_id: int(host.read(f"{folder}/{type_id}/available_instances")) for type_id in host.listdir(folder)}


def read_type(host: Host, parent: str, type_id: str) -> OfferedType:
    """Read one type of a parent. NVIDIA's description has the framebuffer and the GPU-wide maximum."""
    path = f"{types_folder(parent)}/{type_id}"
    description = host.read_optional(f"{path}/description") or ""
    framebuffer = _FRAMEBUFFER.search(description)
    maximum = _MAX_INSTANCE.search(description)
    return OfferedType(
        type_id,
        host.read_optional(f"{path}/name") or type_id,
        int(host.read(f"{path}/available_instances")),
        int(framebuffer[1]) if framebuffer else None,
        int(maximum[1]) if maximum else None,
    )


def read_active(host: Host) -> List[ActiveMdev]:
    """Read every mediated device of the machine, in order of UUID."""
    found = [read(host, uuid) for uuid in host.listdir_optional(BUS) or []]
    return [device for device in found if device is not None]


def read(host: Host, uuid: str) -> Optional[ActiveMdev]:
    """Read one mediated device, None when it does not exist (or goes away while being read)."""
    path = f"{BUS}/{uuid}"
    type_id = host.link_name(f"{path}/mdev_type")
    if type_id is None or not host.exists(path):
        return None
    parent = host.real_path(path).rsplit("/", 2)[1]
    return ActiveMdev(uuid, parent, type_id, iommu.read_group_of(host, path))
