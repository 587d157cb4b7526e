# SPDX-License-Identifier: Apache-2.0
"""How many more vGPUs of a type fit where NVML tells more than a maximum: MIG, mixed sizes (reference 2.2)."""

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from vgpuctl.agent.facts.holders import OpenNodes
from vgpuctl.agent.facts.mig import read_vgpus
from vgpuctl.agent.facts.nvml_gpus import NvmlGpu
from vgpuctl.agent.facts.nvml_mig import NvmlInstance, NvmlMig
from vgpuctl.agent.facts.nvml_vgpu import NvmlType
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import VgpuType
from vgpuctl.agent.wire.values import replace


def read(host: Host, address: str, gpu: Optional[NvmlGpu], nodes: OpenNodes) -> Dict[str, int]:
    """Return {decimal type id: room} of the types that NVML tells so much of; others are not in it."""
    if gpu is None:
        return {}
    rooms = {
        each.type_id: _placements_left(each.creatable_starts, each.placement_size)
        for each in gpu.types
        if each.creatable_starts is not None
    }
    if gpu.mig is None or not gpu.mig.current:
        return rooms
    sitting = {
        instance: tuple(type_id.rpartition("-")[2] for type_id, _ in vgpus)
        for instance, vgpus in read_vgpus(host, address, nodes).items()
    }
    known = {each.type_id: each for each in gpu.types}
    for each in gpu.types:
        if each.mig_profile_id is not None:
            rooms[each.type_id] = _instance_room(each, gpu.mig, sitting, known)
    return rooms


def with_starts(types: Sequence[VgpuType], gpu: Optional[NvmlGpu]) -> List[VgpuType]:
    """Return the types with the places at which one can begin, in mixed-size mode."""
    known = {each.type_id: each for each in gpu.types} if gpu is not None else {}
    answer = []
    for one in types:
        told = known.get(one.type_id.rpartition("-")[2])
        if told is not None and told.creatable_starts is not None:
            one = replace(one, creatable_starts=told.creatable_starts, placement_size=told.placement_size)
        answer.append(one)
    return answer


def _instance_room(
    wanted: NvmlType, mig: NvmlMig, sitting: Mapping[int, Sequence[str]], known: Mapping[str, NvmlType]
) -> int:
    """Count what the instances of the type's profile still take; one instance has one size, unless sizes are mixed."""
    names = [profile.name for profile in mig.profiles if profile.profile_id == wanted.mig_profile_id]
    room = 0
    for instance in mig.instances:
        if instance.profile not in names:
            continue
        there = sitting.get(instance.id, ())
        sizes = {known[one].framebuffer_mib for one in there if one in known}
        if sizes <= {wanted.framebuffer_mib} or instance.heterogeneous:
            room += max((wanted.max_per_instance or 1) - _taken(instance, there), 0)
    return room


def _taken(instance: NvmlInstance, there: Sequence[str]) -> int:
    # One that a driver without gpu_instance_id does not place is at least known to run.
    return max(len(there), instance.vgpus)


def _placements_left(starts: Tuple[int, ...], size: int) -> int:
    """Return how many vGPUs of a size fit into the starts that are free now, each beside the others."""
    count, end = 0, 0
    for start in starts:
        if start >= end:
            count, end = count + 1, start + size
    return count
