# SPDX-License-Identifier: Apache-2.0
"""vGPUs through NVML: a GPU's types and its rules for them, mixed sizes (reference 3.3), scheduler (reference 3.4)."""

from functools import partial
from typing import Any, Callable, Iterable, List, Optional, Tuple

from vgpuctl.agent import nvml_scheduler
from vgpuctl.agent.nvml import MIB, Nvml, text
from vgpuctl.agent.wire.facts import DisplayLimits, SchedulerFacts
from vgpuctl.agent.wire.measure_states import POLICIES
from vgpuctl.agent.wire.values import dataclass
from vgpuctl.agent.wire.vgpu_abilities import VgpuAbilities

_NS_PER_US = 1000
_NO_PROFILE = 0xFFFFFFFF
# Numbers of nvmlDeviceVgpuCapability_t, and of nvmlVgpuCapability_t.
_FRACTIONAL_MULTI_VGPU, _MIXED_TYPES, _MIXED_SIZES = 0, 1, 2
_ALONE_IN_VM, _ALONE_BY_TYPE, _ALONE_BY_SIZE = 2, 3, 4


@dataclass(frozen=True)
class NvmlType:
    """A vGPU type as NVML describes it for one GPU.

    mig_profile_id: of the GPU instances it can sit in, None for a time-sliced type; max_per_instance: how many of it
    one instance takes. creatable_starts: in mixed-size mode, where it can still begin, taking placement_size each.
    """

    type_id: str
    full_name: str
    framebuffer_mib: Optional[int]
    max_instances: Optional[int]
    mig_profile_id: Optional[int] = None
    max_per_instance: Optional[int] = None
    creatable_starts: Optional[Tuple[int, ...]] = None
    placement_size: int = 0
    display: Optional[DisplayLimits] = None


def read_types(nvml: Nvml, device: Any, note: Callable[[str], None], *, with_placements: bool) -> Tuple[NvmlType, ...]:
    """Return the types the GPU supports, creatable now or not; one that does not answer is left out and noted.

    Raises NVMLError for a GPU that is lost.
    """
    supported = nvml.library.nvmlDeviceGetSupportedVgpus
    type_ids = nvml.part(note, "its vGPU types", lambda: nvml.optional(supported, device), None) or []
    found = []
    for type_id in type_ids:
        one = nvml.part(
            note,
            f"the vGPU type {_number_of(type_id)}",
            lambda: _read_type(nvml, device, type_id, with_placements=with_placements),  # noqa: B023 - called at once
            None,
        )
        if one is not None:
            found.append(one)
    return tuple(found)


def _number_of(type_id: Any) -> int:
    return int(getattr(type_id, "value", type_id))


def _read_display(nvml: Nvml, type_id: Any) -> Optional[DisplayLimits]:
    """Return what a type can show; None where the library does not tell, which keeps nothing from being used."""
    library = nvml.library
    try:
        heads = nvml.optional(library.nvmlVgpuTypeGetNumDisplayHeads, type_id)
        size = nvml.optional(library.nvmlVgpuTypeGetResolution, type_id)
        limit = nvml.optional(library.nvmlVgpuTypeGetFrameRateLimit, type_id)
    except library.NVMLError:
        return None
    if heads is None and size is None and limit is None:
        return None
    return DisplayLimits(heads, None if size is None or not all(size) else (int(size[0]), int(size[1])), limit)


def _read_type(nvml: Nvml, device: Any, type_id: Any, *, with_placements: bool) -> NvmlType:
    library = nvml.library
    size = nvml.optional(library.nvmlVgpuTypeGetFramebufferSize, type_id)
    maximum = nvml.optional(library.nvmlVgpuTypeGetMaxInstances, device, type_id)
    profile_id = nvml.optional(library.nvmlVgpuTypeGetGpuInstanceProfileId, type_id)
    if profile_id == _NO_PROFILE:
        profile_id = None
    per_instance = None
    placements = None
    if profile_id is not None:
        per_instance = nvml.optional(library.nvmlVgpuTypeGetMaxInstancesPerGpuInstance, type_id)
    elif with_placements:
        placements = nvml.optional(library.nvmlDeviceGetVgpuTypeCreatablePlacements, device, type_id)
    return NvmlType(
        str(_number_of(type_id)),
        text(nvml.optional(library.nvmlVgpuTypeGetName, type_id)) or str(type_id),
        None if size is None else int(size) // MIB,
        None if maximum is None else int(maximum),
        None if profile_id is None else int(profile_id),
        None if per_instance is None else int(per_instance),
        None if placements is None else tuple(sorted(placements.placementIds[: placements.count])),
        0 if placements is None else int(placements.placementSize),
        _read_display(nvml, type_id),
    )


def read_abilities(nvml: Nvml, device: Any, types: Iterable[NvmlType]) -> Optional[VgpuAbilities]:
    """Return what the driver allows the GPU's vGPUs; None for a GPU without types.

    A driver that is older than a rule does not tell it. Raises NVMLError for a GPU that is lost.
    """
    library, type_ids = nvml.library, [int(one.type_id) for one in types if one.type_id.isdecimal()]
    if not type_ids:
        return None
    problems: List[str] = []

    def of_gpu(number: int) -> Optional[bool]:
        ask = partial(library.nvmlDeviceGetVgpuCapabilities, device, number)
        return _ability(nvml, problems.append, f"its vGPU capability {number}", ask)

    def of_types(number: int) -> Optional[Tuple[str, ...]]:
        alone = []
        for type_id in type_ids:
            ask = partial(library.nvmlVgpuTypeGetCapabilities, type_id, number)
            told = _ability(nvml, problems.append, f"the capability {number} of its vGPU type {type_id}", ask)
            if told is None:
                return None
            alone += [str(type_id)] if told else []
        return tuple(alone)

    return VgpuAbilities(
        fractional=of_gpu(_FRACTIONAL_MULTI_VGPU),
        mixed_types=of_gpu(_MIXED_TYPES),
        mixed_sizes=of_gpu(_MIXED_SIZES),
        alone_in_vm=of_types(_ALONE_IN_VM),
        alone_by_type=of_types(_ALONE_BY_TYPE),
        alone_by_size=of_types(_ALONE_BY_SIZE),
        problems=tuple(problems),
    )


def _ability(nvml: Nvml, note: Callable[[str], None], what: str, ask: Callable[[], Any]) -> Optional[bool]:
    """Return an answer of yes or no; None where the driver does not know the question."""
    library = nvml.library

    def asked() -> Optional[bool]:
        try:
            told = nvml.optional(ask)
        except library.NVMLError as error:
            if error.value == library.NVML_ERROR_INVALID_ARGUMENT:
                return None
            raise
        return None if told is None else bool(told)

    return nvml.part(note, what, asked, None)


def read_heterogeneous(nvml: Nvml, device: Any) -> Optional[bool]:
    """Return whether mixed-size mode is on, None when the GPU has none now. Raises NVMLError."""
    mode = nvml.optional(nvml.library.nvmlDeviceGetVgpuHeterogeneousMode, device)
    return None if mode is None else bool(mode)


def read_scheduler(nvml: Nvml, device: Any) -> Optional[SchedulerFacts]:
    """Return the scheduler, None when the driver does not tell it. Raises NVMLError."""
    library = nvml.library
    state = nvml.optional(nvml_scheduler.device_state, library, device)
    names = {number: name for name, number in POLICIES.items()}
    if state is None or state.policy not in names:
        return None
    is_fixed_slice = state.arr == library.NVML_VGPU_SCHEDULER_ARR_DISABLE and state.time_slice_ns
    return SchedulerFacts(names[state.policy], state.time_slice_ns // _NS_PER_US if is_fixed_slice else None)


def set_scheduler(nvml: Nvml, device: Any, policy: str, time_slice_us: Optional[int]) -> None:
    """Set the scheduler; with a time slice the adaptive round robin is off. Raises NVMLError."""
    library = nvml.library
    state = library.c_nvmlVgpuSchedulerSetState_t()
    state.schedulerPolicy = POLICIES[policy]
    state.enableARRMode = library.NVML_VGPU_SCHEDULER_ARR_DEFAULT
    if time_slice_us is not None:
        state.enableARRMode = library.NVML_VGPU_SCHEDULER_ARR_DISABLE
        state.schedulerParams.vgpuSchedData.timeslice = time_slice_us * _NS_PER_US
    library.nvmlDeviceSetVgpuSchedulerState(device, state)
