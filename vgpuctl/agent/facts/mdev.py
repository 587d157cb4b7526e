# SPDX-License-Identifier: Apache-2.0
"""Mediated devices (reference 2.1): what a parent offers, and which exist."""

import re
import time
from contextlib import contextmanager
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from vgpuctl.agent.facts import iommu, pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import DisplayLimits
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass

BUS = "/sys/bus/mdev/devices"
DEFINITIONS = "/etc/mdevctl.d"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_FRAMEBUFFER = re.compile(r"framebuffer=(\d{1,18})M")
_GOING_TRIES = 5
_GOING_S = 0.02
_HEADS = re.compile(r"num_heads=(\d{1,18})")
_LIMIT = re.compile(r"frl_config=(\d{1,18})")
_RESOLUTION = re.compile(r"max_resolution=(\d{1,18})x(\d{1,18})")
_MAX_INSTANCE = re.compile(r"max_instance=(\d{1,18})")


@dataclass(frozen=True)
class OfferedType:
    """One type under one parent, as its folder says now."""

    type_id: str
    full_name: str
    available: int
    framebuffer_mib: Optional[int]
    max_instances: Optional[int]
    display: Optional[DisplayLimits] = None


@dataclass(frozen=True)
class ActiveMdev:
    """One mediated device that exists."""

    uuid: str
    parent: str
    type_id: str
    iommu_group: Optional[int]


@dataclass(frozen=True)
class UnreadMdev:
    """One mediated device that could not be read. parent: None when that is not known either."""

    uuid: str
    parent: Optional[str]
    problem: str


Note = Callable[[str], None]
"""Takes a sentence about a part that could not be read."""


def check_uuid(text: str) -> str:
    """Return a UUID in lower case. Raises Problem `bad-uuid`."""
    if not _UUID.fullmatch(text.lower()):
        raise Problem(ProblemCode.BAD_UUID, f"{text!r} is not a UUID")
    return text.lower()


def check_type(text: str) -> str:
    """Return a type's folder name when it can be one. Raises Problem `bad-type`."""
    if not _TYPE.fullmatch(text):
        raise Problem(ProblemCode.BAD_TYPE, f"{text!r} is not the name of an mdev type")
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


def read_types(host: Host, parent: str, note: Note) -> List[OfferedType]:
    """Read every type of a parent; one that cannot be read is left out and noted. Raises Problem."""
    found = []
    for type_id in host.listdir(types_folder(parent)):
        with noted(note, f"type {type_id} of {parent}"):
            found.append(read_type(host, parent, type_id))
    return found


def read_names(host: Host, parent: str) -> Dict[str, str]:
    """Return {type id: name as the driver prints it} of a parent's types that have one."""
    folder = types_folder(parent)
    names = {type_id: host.read_optional(f"{folder}/{type_id}/name") for type_id in host.listdir_optional(folder) or ()}
    return {type_id: name for type_id, name in names.items() if name}


def read_available(host: Host, parent: str, note: Note) -> Dict[str, int]:
    """Return {type id: available instances} of a parent, without the texts that are alike on all VFs of a GPU.

    A type that cannot be read is left out and noted. Raises Problem.
    """
    folder = types_folder(parent)
    found = {}
    for type_id in host.listdir(folder):
        with noted(note, f"type {type_id} of {parent}"):
            found[type_id] = int(host.read(f"{folder}/{type_id}/available_instances"))
    return found


@contextmanager
def noted(note: Note, what: str) -> Iterator[None]:
    """Note what cannot be read in the block, and go on."""
    try:
        yield
    except (Problem, ValueError) as error:
        note(f"{what} could not be read: {error}")


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
        read_display(description),
    )


def read_display(description: str) -> Optional[DisplayLimits]:
    """Read heads, resolution and frame-rate limit from a type's description; None where it has none of them."""
    heads, limit = _HEADS.search(description), _LIMIT.search(description)
    size = _RESOLUTION.search(description)
    if heads is None and limit is None and size is None:
        return None
    return DisplayLimits(
        int(heads[1]) if heads else None,
        (int(size[1]), int(size[2])) if size else None,
        int(limit[1]) if limit else None,
    )


def read_every(host: Host) -> Tuple[List[ActiveMdev], List[UnreadMdev]]:
    """Read every mediated device of the machine, in order of UUID, and return those that could not be read beside."""
    found: List[ActiveMdev] = []
    unread: List[UnreadMdev] = []
    for uuid in host.listdir_optional(BUS) or []:
        try:
            device = read(host, uuid)
        except (Problem, ValueError) as error:
            text = f"mediated device {uuid} could not be read: {error}"
            unread.append(UnreadMdev(uuid, _parent_or_none(host, uuid), text))
            continue
        if device is not None:
            found.append(device)
    return found, unread


def read_of(host: Host, parents: Sequence[str]) -> List[ActiveMdev]:
    """Read the mediated devices of these functions, in order of UUID.

    Raises Problem `unreadable` for one that may be theirs and cannot be read; others' do not matter.
    """
    found, unread = read_every(host)
    for device in unread:
        if device.parent is None or device.parent in parents:
            raise Problem(ProblemCode.UNREADABLE, device.problem, path=f"{BUS}/{device.uuid}")
    return [device for device in found if device.parent in parents]


def read(host: Host, uuid: str) -> Optional[ActiveMdev]:
    """Read one mediated device, None when it does not exist (or goes away while being read).

    Raises Problem `unreadable` for one that exists and shows no type.
    """
    path = f"{BUS}/{uuid}"
    type_id = host.link_name(f"{path}/mdev_type")
    for _ in range(_GOING_TRIES):
        if not host.exists(path):
            return None
        if type_id is not None:
            return ActiveMdev(uuid, _parent(host, uuid), type_id, iommu.read_group_of(host, path))
        # The kernel takes the link away before the device (drivers/vfio/mdev/mdev_core.c, mdev_remove).
        time.sleep(_GOING_S)
        type_id = host.link_name(f"{path}/mdev_type")
    raise Problem(ProblemCode.UNREADABLE, f"mediated device {uuid} shows no type", path=f"{path}/mdev_type")


def _parent(host: Host, uuid: str) -> str:
    return host.real_path(f"{BUS}/{uuid}").rsplit("/", 2)[1]


def _parent_or_none(host: Host, uuid: str) -> Optional[str]:
    """Return the function that an unreadable device is on, None when that cannot be told either."""
    try:
        parent = _parent(host, uuid)
        pci.folder(parent)
    except (Problem, OSError, IndexError):
        return None
    return parent
