# SPDX-License-Identifier: Apache-2.0
"""MIG through NVML (reference 5): mode, profiles with their placements, GPU and compute instances."""

import re
from collections import defaultdict
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from vgpuctl.agent.nvml import Nvml, text
from vgpuctl.agent.wire.facts import MigProfileFacts
from vgpuctl.agent.wire.values import dataclass

# Names of profiles, for drivers whose NVML does not tell them; `+me` is how nvidia-smi shows REV1.
_ATTRIBUTES = {
    "1_SLICE_REV1": "+me",
    "2_SLICE_REV1": "+me",
    "1_SLICE_GFX": "+gfx",
    "2_SLICE_GFX": "+gfx",
    "3_SLICE_GFX": "+gfx",
    "4_SLICE_GFX": "+gfx",
    "1_SLICE_NO_ME": "-me",
    "2_SLICE_NO_ME": "-me",
    "1_SLICE_ALL_ME": "+me.all",
    "2_SLICE_ALL_ME": "+me.all",
}
_NAME = re.compile(r"(?:MIG )?(\S+)")
_NO_INSTANCE = 0xFFFFFFFF


@dataclass(frozen=True)
class NvmlInstance:
    """A GPU instance. pids: of processes that compute in it. vgpus: how many running ones sit in it.

    compute: the compute slices of each compute instance, the largest first.
    """

    id: int
    profile: str
    start: int
    size: int
    compute: Tuple[int, ...] = ()
    pids: Tuple[int, ...] = ()
    vgpus: int = 0
    heterogeneous: Optional[bool] = None


@dataclass(frozen=True)
class NvmlMig:
    """MIG of one GPU that has it. problems: of profiles and GPU instances that did not answer and are left out."""

    current: bool
    pending: bool
    instances: Tuple[NvmlInstance, ...] = ()
    profiles: Tuple[MigProfileFacts, ...] = ()
    problems: Tuple[str, ...] = ()


def read(nvml: Nvml, device: Any) -> Optional[NvmlMig]:
    """Read MIG of one GPU, None when it has none. Raises NVMLError."""
    mode = read_mode(nvml, device)
    if mode is None:
        return None
    problems: List[str] = []
    profiles = read_profiles(nvml, device, problems.append)
    instances, unread = read_instances(nvml, device, profiles) if mode[0] else ((), ())
    return NvmlMig(mode[0], mode[1], instances, profiles, (*problems, *unread))


def read_mode(nvml: Nvml, device: Any) -> Optional[Tuple[bool, bool]]:
    """Return whether MIG is on and whether it will be, None when the GPU has none. Raises NVMLError."""
    mode = nvml.optional(nvml.library.nvmlDeviceGetMigMode, device)
    return None if mode is None else (bool(mode[0]), bool(mode[1]))


def read_profiles(nvml: Nvml, device: Any, note: Callable[[str], None]) -> Tuple[MigProfileFacts, ...]:
    """Return the GPU-instance profiles by id; none while MIG is off, when the driver tells no placements.

    A profile that does not answer is left out and noted. Raises NVMLError for a GPU that is lost.
    """
    found = []
    for number in range(nvml.library.NVML_GPU_INSTANCE_PROFILE_COUNT):
        what = f"the GPU instance profile {number}"
        profile = nvml.part(note, what, lambda: _read_profile(nvml, device, number), None)  # noqa: B023 - called at once
        if profile is not None:
            found.append(profile)
    return tuple(sorted(found, key=lambda one: one.profile_id))


def _read_profile(nvml: Nvml, device: Any, number: int) -> Optional[MigProfileFacts]:
    """Read a profile by NVML's number, None if the GPU has no such profile or reports no placements for it."""
    library = nvml.library
    try:
        info = _profile_info(nvml, device, number)
    except library.NVMLError as error:
        # An older driver does not know the later profiles.
        if error.value != library.NVML_ERROR_INVALID_ARGUMENT:
            raise
        return None
    placements = _placements(nvml, device, int(info.id)) if info is not None else []
    if not placements:
        return None
    return MigProfileFacts(
        _profile_name(nvml, device, number, info),
        int(info.id),
        int(info.sliceCount),
        tuple(sorted(int(one.start) for one in placements)),
        int(placements[0].size),
        int(info.instanceCount),
    )


def read_instances(
    nvml: Nvml, device: Any, profiles: Tuple[MigProfileFacts, ...]
) -> Tuple[Tuple[NvmlInstance, ...], Tuple[str, ...]]:
    """Return the GPU instances by their start, with who uses them, and a sentence for each part that does not answer.

    Raises NVMLError for a GPU that is lost.
    """
    problems: List[str] = []
    note = problems.append
    pids: Dict[int, List[int]] = defaultdict(list)
    for process in nvml.part(note, "the processes on it", lambda: _processes(nvml, device), ()):
        instance = getattr(process, "gpuInstanceId", None)
        if instance is not None and instance != _NO_INSTANCE:
            pids[int(instance)].append(int(process.pid))
    vgpus = nvml.part(note, "the GPU instances of its vGPUs", lambda: _count_vgpus(nvml, device), {})
    found: List[NvmlInstance] = []
    for profile in profiles:
        name = profile.name
        for handle in nvml.part(note, f"its GPU instances {name}", lambda: _handles(nvml, device, profile), []):  # noqa: B023
            one = nvml.part(
                note,
                f"a GPU instance {name}",
                lambda: _read_instance(nvml, handle, name, pids, vgpus),  # noqa: B023 - called at once
                None,
            )
            if one is not None:
                found.append(one)
    return tuple(sorted(found, key=lambda one: one.start)), tuple(problems)


def _count_vgpus(nvml: Nvml, device: Any) -> Dict[int, int]:
    """Return {GPU instance: how many running vGPUs sit in it}; a vGPU that ends meanwhile is not counted."""
    library = nvml.library
    found: Dict[int, int] = defaultdict(int)
    for vgpu in nvml.optional(library.nvmlDeviceGetActiveVgpus, device) or ():
        try:
            instance = nvml.optional(library.nvmlVgpuInstanceGetGpuInstanceId, vgpu)
        except library.NVMLError as error:
            if error.value != library.NVML_ERROR_NOT_FOUND:
                raise
            continue
        if instance is not None and instance != _NO_INSTANCE:
            found[int(instance)] += 1
    return found


def _read_instance(
    nvml: Nvml, handle: Any, profile: str, pids: Mapping[int, Sequence[int]], vgpus: Mapping[int, int]
) -> NvmlInstance:
    library = nvml.library
    info = library.nvmlGpuInstanceGetInfo(handle)
    number = int(info.id)
    mode = nvml.optional(library.nvmlGpuInstanceGetVgpuHeterogeneousMode, handle)
    return NvmlInstance(
        number,
        profile,
        int(info.placement.start),
        int(info.placement.size),
        tuple(sorted((slices for _, slices in compute_instances(nvml, handle)), reverse=True)),
        tuple(sorted(set(pids.get(number, ())))),
        vgpus.get(number, 0),
        None if mode is None else bool(mode),
    )


def create(nvml: Nvml, device: Any, profile: MigProfileFacts, start: Optional[int]) -> Any:
    """Create a GPU instance, at a start or where the driver likes, and return its handle. Raises NVMLError."""
    library = nvml.library
    if start is None:
        return library.nvmlDeviceCreateGpuInstance(device, profile.profile_id)
    import ctypes

    placement = library.c_nvmlGpuInstancePlacement_t(start, profile.size)
    return library.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile.profile_id, ctypes.byref(placement))


def create_compute_instance(nvml: Nvml, handle: Any, compute_slices: int) -> None:
    """Create a compute instance of so many slices; that of all slices fills the GPU instance. Raises NVMLError."""
    library = nvml.library
    for number in range(library.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = _compute_profile(nvml, handle, number)
        if info is not None and int(info.sliceCount) == compute_slices:
            library.nvmlGpuInstanceCreateComputeInstance(handle, info.id)
            return
    raise library.NVMLError(library.NVML_ERROR_NOT_SUPPORTED)


def compute_instances(nvml: Nvml, handle: Any) -> List[Tuple[Any, int]]:
    """Return a GPU instance's compute instances, each with its compute slices. Raises NVMLError."""
    library = nvml.library
    found: List[Tuple[Any, int]] = []
    for number in range(library.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = _compute_profile(nvml, handle, number)
        if info is None:
            continue
        count, pointer = _counter()
        array = (library.c_nvmlComputeInstance_t * max(int(info.instanceCount), 1))()
        library.nvmlGpuInstanceGetComputeInstances(handle, info.id, array, pointer)
        found += [(one, int(info.sliceCount)) for one in array[: count.value]]
    return found


def _compute_profile(nvml: Nvml, handle: Any, number: int) -> Any:
    """Return what NVML says of a compute-instance profile, None when the GPU instance has no such one."""
    library = nvml.library
    ask, engines = (
        library.nvmlGpuInstanceGetComputeInstanceProfileInfo,
        library.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
    )
    try:
        return nvml.optional(ask, handle, number, engines) or nvml.optional(ask, handle, number, engines, 1)
    except library.NVMLError as error:
        if error.value != library.NVML_ERROR_INVALID_ARGUMENT:
            raise
        return None


def _profile_info(nvml: Nvml, device: Any, number: int) -> Any:
    """Return what NVML says of a GPU-instance profile, with a name where the driver is new enough."""
    ask = nvml.library.nvmlDeviceGetGpuInstanceProfileInfo
    return nvml.optional(ask, device, number) or nvml.optional(ask, device, number, 1)


def _processes(nvml: Nvml, device: Any) -> List[Any]:
    """Return the processes that compute on a GPU. pynvml refuses the call without a version on older drivers."""
    library = nvml.library
    newer = nvml.optional(library.nvmlDeviceGetComputeRunningProcesses_v3, device)
    return newer if newer is not None else nvml.optional(library.nvmlDeviceGetComputeRunningProcesses_v2, device) or []


def _placements(nvml: Nvml, device: Any, profile_id: int) -> List[Any]:
    library = nvml.library
    ask = library.nvmlDeviceGetGpuInstancePossiblePlacements
    count, pointer = _counter()
    if nvml.optional(ask, device, profile_id, None, pointer) is None or not count.value:
        return []
    array = (library.c_nvmlGpuInstancePlacement_t * count.value)()
    ask(device, profile_id, array, pointer)
    return list(array[: count.value])


def _handles(nvml: Nvml, device: Any, profile: MigProfileFacts) -> List[Any]:
    library = nvml.library
    count, pointer = _counter()
    array = (library.c_nvmlGpuInstance_t * max(profile.max_count, 1))()
    library.nvmlDeviceGetGpuInstances(device, profile.profile_id, array, pointer)
    return list(array[: count.value])


def _counter() -> Tuple[Any, Any]:
    """Return a C counter and the pointer to it that NVML fills. Hosts without NVML do not pay for ctypes."""
    from ctypes import byref, c_uint

    count = c_uint(0)
    return count, byref(count)


def _profile_name(nvml: Nvml, device: Any, number: int, info: Any) -> str:
    """Return the name nvidia-smi prints, without `MIG `; made up as it does where NVML does not tell it."""
    match = _NAME.match(text(getattr(info, "name", None)) or "")
    if match:
        return match[1]
    library = nvml.library
    total_mib = library.nvmlDeviceGetMemoryInfo(device).total / (1 << 20)
    # An instance has some eighths of the GPU's memory, of which some MiB are reserved: NVIDIA go-nvlib's rounding.
    eighths = -(-int(info.memorySizeMB) * 8 // int(total_mib))
    memory_gib = round(eighths / 8 * -(-total_mib // 1024))
    attribute = ""
    for suffix, sign in _ATTRIBUTES.items():
        if getattr(library, f"NVML_GPU_INSTANCE_PROFILE_{suffix}", None) == number:
            attribute = sign
    return f"{info.sliceCount}g.{memory_gib}gb{attribute}"
