# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vendor-specific VFIO (reference 4): the type set on a VF, and the types it can still take."""

from typing import Dict, List, Mapping, Optional, Sequence, Set

from vgpuctl.agent.facts import mdev, pci, vgpu_types
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import VgpuType, VirtualFunction, unnamed
from vgpuctl.agent.wire.problem_codes import ProblemCode

NO_TYPE = "0"


def current_path(address: str) -> str:
    """Return the file that holds a VF's type."""
    return f"{pci.folder(address)}/nvidia/current_vgpu_type"


def is_offered(host: Host, address: str) -> bool:
    """Tell whether a VF is handed out by its `nvidia` folder."""
    return host.exists(f"{pci.folder(address)}/nvidia/creatable_vgpu_types")


def read_current(host: Host, address: str) -> str:
    """Return the decimal type id set on a VF, `0` for none. Raises Problem."""
    text = host.read(current_path(address)).strip()
    if not text.isdigit():
        raise Problem(ProblemCode.UNREADABLE, f"{current_path(address)} reads {text!r}", path=current_path(address))
    return text


def read_set(host: Host, address: str) -> Optional[str]:
    """Return the type that is set on a VF of this kind, None for none. Raises Problem."""
    current = read_current(host, address)
    return None if current == NO_TYPE else current


def read_creatable(host: Host, address: str) -> Dict[str, str]:
    """Return {type id: name} of what a VF can still take; empty when nothing (only the header is left)."""
    return _creatable(_read_list(host, address))


def _read_list(host: Host, address: str) -> str:
    return host.read(f"{pci.folder(address)}/nvidia/creatable_vgpu_types")


def _creatable(text: str) -> Dict[str, str]:
    found = {}
    for line in text.splitlines():
        type_id, colon, name = line.partition(":")
        if colon and type_id.strip().isdigit():
            found[type_id.strip()] = name.strip()
    return found


def check_type(text: str) -> str:
    """Return a decimal type id. Raises Problem `bad-type`."""
    if not (text.isascii() and text.isdigit()):
        raise Problem(ProblemCode.BAD_TYPE, f"{text!r} is not a decimal vGPU type id")
    return text.lstrip("0") or NO_TYPE


def read_types(
    host: Host,
    vfs: Sequence[VirtualFunction],
    used: Dict[str, int],
    described: Dict[str, vgpu_types.Description],
    memory_mib: Optional[int],
    rooms: Mapping[str, int],
    note: mdev.Note,
) -> List[VgpuType]:
    """Read the types of a GPU with vendor-specific VFIO.

    A free VF lists what is creatable now, a used one nothing; so types that are used or not creatable come from
    `described` (vgpuConfig.xml, NVML).
    """
    names = {type_id: description.full_name for type_id, description in described.items()}
    # All free VFs of a card have the same list: how many have which one.
    lists: Dict[str, int] = {}
    for vf in vfs:
        if is_offered(host, vf.address):
            with mdev.noted(note, f"VF {vf.address}"):
                text = _read_list(host, vf.address)
                lists[text] = lists.get(text, 0) + vgpu_types.is_free(vf)
    listed: Dict[str, int] = {}
    told: Set[str] = set()
    for text, count in lists.items():
        for type_id, name in _creatable(text).items():
            names[type_id] = name
            told.add(type_id)
            if count:
                listed[type_id] = listed.get(type_id, 0) + count
    for type_id in used:
        names.setdefault(type_id, unnamed(type_id))
    types = []
    for type_id in sorted(names, key=int):
        known = described.get(type_id)
        framebuffer = known.framebuffer_mib if known else None
        types.append(
            VgpuType(
                type_id,
                vgpu_types.short_name(names[type_id]),
                names[type_id],
                framebuffer or vgpu_types.size_of_name(names[type_id]),
                known.max_instances if known else None,
                0,
                display=known.display if known else None,
                is_guessed=type_id not in told and known is not None and not known.is_sure,
            )
        )
    return vgpu_types.with_creatable(types, listed, used, memory_mib, rooms)
