# SPDX-License-Identifier: Apache-2.0
"""NVML's calls of the vGPU scheduler, of a GPU or of one GPU instance: the older calls, then the newer ones.

CUDA 13 has replaced the older calls, and a driver may be without them; older drivers do not have the newer ones.
"""

from typing import Any, Callable, Optional, Tuple, TypeVar

from vgpuctl.agent.wire.values import dataclass

T = TypeVar("T")

# NVML_ENGINE_TYPE_GRAPHICS
_GRAPHICS = 1


@dataclass(frozen=True)
class SchedulerState:
    """The scheduler by NVML's numbers. arr: None where the newer call answered, which does not tell the mode."""

    policy: int
    arr: Optional[int]
    time_slice_ns: int


def device_state(library: Any, device: Any) -> SchedulerState:
    """Return the scheduler of a GPU. Raises NVMLError."""

    def newer() -> SchedulerState:
        wanted = _wanted(library, "c_nvmlVgpuSchedulerStateInfo_v2_t")
        return _newer_state(library.nvmlDeviceGetVgpuSchedulerState_v2(device, wanted))

    return _either(library, lambda: _older_state(library, library.nvmlDeviceGetVgpuSchedulerState(device)), newer)


def device_log(library: Any, device: Any) -> Tuple[Any, ...]:
    """Return the entries of a GPU's scheduler log. Raises NVMLError."""

    def newer() -> Tuple[Any, ...]:
        wanted = _wanted(library, "c_nvmlVgpuSchedulerLogInfo_v2_t")
        return _entries(library.nvmlDeviceGetVgpuSchedulerLog_v2(device, wanted))

    return _either(library, lambda: _entries(library.nvmlDeviceGetVgpuSchedulerLog(device)), newer)


def instance_state(library: Any, instance: Any) -> SchedulerState:
    """Return the scheduler of a GPU instance. Raises NVMLError."""

    def older() -> SchedulerState:
        wanted = _wanted(library, "c_nvmlVgpuSchedulerStateInfo_v1_t")
        wanted.version = library.nvmlVgpuSchedulerStateInfo_v1
        return _older_state(library, library.nvmlGpuInstanceGetVgpuSchedulerState(instance, wanted))

    def newer() -> SchedulerState:
        wanted = _wanted(library, "c_nvmlVgpuSchedulerStateInfo_v2_t")
        return _newer_state(library.nvmlGpuInstanceGetVgpuSchedulerState_v2(instance, wanted))

    return _either(library, older, newer)


def instance_log(library: Any, instance: Any) -> Tuple[Any, ...]:
    """Return the entries of a GPU instance's scheduler log. Raises NVMLError."""

    def older() -> Tuple[Any, ...]:
        wanted = _wanted(library, "c_nvmlVgpuSchedulerLogInfo_v1_t")
        wanted.version = library.nvmlVgpuSchedulerLogInfo_v1
        return _entries(library.nvmlGpuInstanceGetVgpuSchedulerLog(instance, wanted))

    def newer() -> Tuple[Any, ...]:
        wanted = _wanted(library, "c_nvmlVgpuSchedulerLogInfo_v2_t")
        return _entries(library.nvmlGpuInstanceGetVgpuSchedulerLog_v2(instance, wanted))

    return _either(library, older, newer)


def _either(library: Any, older: Callable[[], T], newer: Callable[[], T]) -> T:
    """Ask by the older call, and by the newer one where the older is absent. Raises NVMLError."""
    absent = (
        library.NVML_ERROR_NOT_SUPPORTED,
        library.NVML_ERROR_FUNCTION_NOT_FOUND,
        library.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        library.NVML_ERROR_DEPRECATED,
    )
    try:
        return older()
    except library.NVMLError as refusal:
        if refusal.value not in absent:
            raise
        try:
            return newer()
        except library.NVMLError as error:
            if error.value in absent:
                raise refusal from error
            raise


def _wanted(library: Any, name: str) -> Any:
    """Return a structure for an answer; a pynvml that is older than the call has none. Raises NVMLError."""
    made = getattr(library, name, None)
    if made is None:
        raise library.NVMLError(library.NVML_ERROR_FUNCTION_NOT_FOUND)
    wanted = made()
    wanted.engineId = _GRAPHICS
    return wanted


def _older_state(library: Any, answer: Any) -> SchedulerState:
    arr = int(answer.arrMode)
    parameters = answer.schedulerParams
    is_off = arr == library.NVML_VGPU_SCHEDULER_ARR_DISABLE
    chosen = parameters.vgpuSchedData if is_off else parameters.vgpuSchedDataWithARR
    return SchedulerState(int(answer.schedulerPolicy), arr, int(chosen.timeslice))


def _newer_state(answer: Any) -> SchedulerState:
    return SchedulerState(int(answer.schedulerPolicy), None, int(answer.timeslice))


def _entries(answer: Any) -> Tuple[Any, ...]:
    return tuple(answer.logEntries[: int(answer.entriesCount)])
