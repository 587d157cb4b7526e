# SPDX-License-Identifier: Apache-2.0
"""The vGPU types of one GPU and how many of each it can still take, from whatever this host tells about them."""

import re
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from vgpuctl.agent.facts import mdev
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import DisplayLimits, VgpuType, VirtualFunction
from vgpuctl.agent.wire.values import dataclass, replace

# Names: NVIDIA vGPU user guide; time-sliced `A40-8Q`, `T4-2B4`; MIG-backed `A100-1-5C`, `A100-1-5CME`.
_SIZE = re.compile(r"-(?P<mig>\d+-)?(?P<gib>\d{1,18})[ABCQ]\d?(?:ME|NOME|MEALL|GFX)?$")
_VENDOR_PREFIX = re.compile(r"^(?:NVIDIA|GRID) ")
_HALF_GIB = 512
_MEMORY_STEP_MIB = 4096


@dataclass(frozen=True)
class Description:
    """Facts of a type from another source than the device's own folder.

    is_sure: from the running driver, by NVML; vgpuConfig.xml may be that of a driver installed since.
    """

    full_name: str
    framebuffer_mib: Optional[int]
    max_instances: Optional[int]
    display: Optional[DisplayLimits] = None
    is_sure: bool = False


def short_name(full_name: str) -> str:
    """Return a type's name without the vendor's prefix."""
    return _VENDOR_PREFIX.sub("", full_name)


def is_named(full_name: str, profile: str) -> bool:
    """Tell whether a host's name of a type means a short one; some boards print their own name before the type's."""
    return short_name(full_name) == profile or full_name.endswith(f" {profile}")


def size_of_name(name: str) -> Optional[int]:
    """Return the framebuffer in MiB that a type's name promises (`0B` is half a GiB), None when it has no such form."""
    match = _SIZE.search(name)
    if match is None:
        return None
    return int(match["gib"]) * 1024 or _HALF_GIB


def is_mig_backed(name: str) -> bool:
    """Tell whether a type by its name lives in a MIG instance."""
    match = _SIZE.search(name)
    return match is not None and match["mig"] is not None


def read_mdev_types(
    host: Host, address: str, described: Callable[[str], Optional[Description]], note: mdev.Note
) -> List[VgpuType]:
    """Read the types of an mdev parent that is the physical function itself: the driver counts for us."""
    return [
        _type(offered, offered.available, described(_decimal(offered.type_id)))
        for offered in mdev.read_types(host, address, note)
    ]


def read_mdev_vf_types(
    host: Host,
    vfs: Sequence[VirtualFunction],
    used: Dict[str, int],
    described: Callable[[str], Optional[Description]],
    memory_mib: Optional[int],
    rooms: Mapping[str, int],
    note: mdev.Note,
) -> List[VgpuType]:
    """Read the types of a GPU whose VFs are mdev parents. used: {type id: how many exist on the GPU}.

    rooms: {decimal type id: what still fits} of those that something tells exactly (vgpu_room.py).
    """
    found: Dict[str, VgpuType] = {}
    listed: Dict[str, int] = {}
    for vf in vfs:
        if not mdev.offers_types(host, vf.address):
            continue
        for type_id, available in mdev.read_available(host, vf.address, note).items():
            if type_id not in found:
                with mdev.noted(note, f"type {type_id} of {vf.address}"):
                    offered = mdev.read_type(host, vf.address, type_id)
                    found[type_id] = _type(offered, 0, described(_decimal(type_id)))
            if is_free(vf) and available > 0:
                listed[type_id] = listed.get(type_id, 0) + 1
    return with_creatable(found.values(), listed, used, memory_mib, rooms)


def is_free(vf: VirtualFunction) -> bool:
    """Tell whether a VF has no vGPU and nobody holds it."""
    return vf.current_type is None and vf.mdev_uuid is None and not vf.holders


def without_absent_mig(types: Iterable[VgpuType], used: Dict[str, int]) -> List[VgpuType]:
    """Leave out the MIG-backed types for which the GPU has no instance."""
    return [each for each in types if each.creatable or each.type_id in used or not is_mig_backed(each.name)]


def _type(offered: mdev.OfferedType, creatable: int, known: Optional[Description]) -> VgpuType:
    full_name = offered.full_name
    if full_name == offered.type_id and known is not None:
        full_name = known.full_name
    framebuffer = offered.framebuffer_mib or (known.framebuffer_mib if known else None)
    maximum = offered.max_instances or (known.max_instances if known else None)
    return VgpuType(
        offered.type_id,
        short_name(full_name),
        full_name,
        framebuffer or size_of_name(full_name),
        maximum,
        creatable,
        display=offered.display or (known.display if known else None),
    )


def with_creatable(
    types: Iterable[VgpuType],
    listed: Dict[str, int],
    used: Dict[str, int],
    memory_mib: Optional[int],
    rooms: Mapping[str, int],
) -> List[VgpuType]:
    """Say how many more VMs the whole GPU can take of each type (reference 2.2).

    A VF's sysfs only says yes or no, so the answer is the smallest of: free VFs that list the type; what is left
    of its maximum, which types of the same framebuffer share; what is left of the framebuffer. Where `rooms` knows
    a type, its number stands for the last two.
    """
    every = list(types)
    by_id = {each.type_id: each for each in every}
    total = _nominal_memory(every, memory_mib)
    if total is None and not used:
        # Nothing describes the GPU, but while it is empty it lists the type that is the whole card.
        total = max((each.framebuffer_mib or 0 for each in every if not is_mig_backed(each.name)), default=0) or None
    taken = [
        by_id[type_id].framebuffer_mib if type_id in by_id else None
        for type_id, count in used.items()
        for _ in range(count)
    ]
    answer = []
    for each in every:
        bounds = [listed.get(each.type_id, 0)]
        room = rooms.get(_decimal(each.type_id))
        if room is not None:
            answer.append(replace(each, creatable=max(0, min(*bounds, room))))
            continue
        size = each.framebuffer_mib
        if each.max_instances is not None:
            alike = sum(1 for other in taken if other == size) if size else used.get(each.type_id, 0)
            bounds.append(each.max_instances - alike)
        if size and total is not None and None not in taken:
            bounds.append((total - sum(other or 0 for other in taken)) // size)
        answer.append(replace(each, creatable=max(0, min(bounds))))
    return answer


def _nominal_memory(types: Sequence[VgpuType], memory_mib: Optional[int]) -> Optional[int]:
    """Return the memory that profiles are counted against, None when nothing tells it.

    It is the nominal size, at least what any type fills at its maximum: NVML's total lies some hundred MiB to
    3 GiB below it (ECC, reserved) and would refuse the type that is the whole card.
    """
    sizes = [
        each.framebuffer_mib * each.max_instances
        for each in types
        if each.framebuffer_mib and each.max_instances and not is_mig_backed(each.name)
    ]
    if memory_mib is not None:
        sizes.append(-(-memory_mib // _MEMORY_STEP_MIB) * _MEMORY_STEP_MIB)
    return max(sizes) if sizes else None


def _decimal(type_id: str) -> str:
    return type_id.rsplit("-", 1)[-1]
