# SPDX-License-Identifier: Apache-2.0
"""Readings of the vGPUs of running VMs through NVML (telemetry reference 2.1, 2.2)."""

import calendar
import ctypes
import re
from typing import Any, Dict, List, Optional, Tuple

from vgpuctl.agent.nvml import Nvml, text
from vgpuctl.agent.readings.gpu import PERCENT
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.wire.measure_states import LICENSE_STATES, NO_TELEMETRY, SUPPORT, UTIL
from vgpuctl.agent.wire.measures import VGPU
from vgpuctl.agent.wire.readings import NOT_MEASURABLE, NOT_READABLE
from vgpuctl.agent.wire.values import dataclass

_EXPIRY_VALID = 2
_NO_EXPIRY = {
    0: "the driver does not tell the end of the licence",
    1: "the end of the licence is invalid",
    3: "the licence of this product has no end",
    4: "the licence is permanent",
}
_MICRO = 1_000_000
_NO_INSTANCE = 0xFFFFFFFF
# The guest says it: any text could come, and each one is a label of a metric.
_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,5}){1,4}")
_NO_GUEST_DRIVER = "Not Available"
_ENGINES = (
    ("utilization_ratio", "smUtil"),
    ("memory_activity_ratio", "memUtil"),
    ("encoder_utilization_ratio", "encUtil"),
    ("decoder_utilization_ratio", "decUtil"),
)
_NEWER_ENGINES = (("jpeg_utilization_ratio", "jpgUtil"), ("ofa_utilization_ratio", "ofaUtil"))
ENGINES = " ".join(name for name, _ in (*_ENGINES, *_NEWER_ENGINES))


@dataclass(frozen=True)
class RunningVgpu:
    """One vGPU of a running VM as NVML has it. number: NVML's. device: the mdev's UUID, None where NVML has none.

    instance: the GPU instance that it sits in. max_instances: of its type on the GPU; per_instance: in one GPU
    instance.
    """

    number: int
    type_id: int
    device: Optional[str]
    vm_uuid: Optional[str]
    profile: str
    instance: Optional[int]
    max_instances: Optional[int]
    per_instance: Optional[int]
    guest_address: Optional[str]
    found: Recorder


@dataclass(frozen=True)
class Samples:
    """The newest sample of each vGPU by NVML's number, or the kind and reason why there is none of any."""

    by_number: Dict[int, Any]
    missing: Optional[Tuple[str, str]] = None


def read(nvml: Nvml, device: Any, address: str, unread: List[str]) -> List[RunningVgpu]:
    """Return every running vGPU of a GPU with its measures; one that ends meanwhile is left out."""
    library = nvml.library
    handles = nvml.part(
        lambda problem: unread.append(f"{address}: {problem}"),
        "its running vGPUs",
        lambda: nvml.optional(library.nvmlDeviceGetActiveVgpus, device),
        None,
    )
    if not handles:
        return []
    found = []
    samples = _read_samples(library, device)
    for handle in handles:
        try:
            found.append(_read_one(nvml, device, handle, samples))
        except library.NVMLError as error:
            if error.value == library.NVML_ERROR_GPU_IS_LOST:
                raise
            if error.value != library.NVML_ERROR_NOT_FOUND:
                unread.append(f"{address}: NVML does not tell a running vGPU: {error} (NVML {error.value})")
    return found


def _read_one(nvml: Nvml, device: Any, handle: Any, samples: Samples) -> RunningVgpu:
    library = nvml.library
    found = Recorder(VGPU, library)
    type_id = library.nvmlVgpuInstanceGetType(handle)
    full_name = text(library.nvmlVgpuTypeGetName(type_id)) or str(type_id)
    instance = nvml.optional(library.nvmlVgpuInstanceGetGpuInstanceId, handle)
    instance = None if instance in (None, _NO_INSTANCE) else int(instance)
    vm_uuid, _kind = library.nvmlVgpuInstanceGetVmID(handle)
    number = _number_of(handle)
    if instance is None:
        _record_sample(found, number, samples)
    per_instance = None
    if instance is not None:
        per_instance = nvml.if_possible(lambda: library.nvmlVgpuTypeGetMaxInstancesPerGpuInstance(type_id))
    found.ask("framebuffer_size_bytes", lambda: library.nvmlVgpuTypeGetFramebufferSize(type_id))
    found.ask("framebuffer_used_bytes", lambda: _framebuffer_used(library, handle))
    _read_encoder(found, library, handle)
    _read_license(found, library, handle)
    _read_guest_driver(found, library, handle)
    mdev = text(nvml.if_possible(lambda: library.nvmlVgpuInstanceGetMdevUUID(handle)))
    return RunningVgpu(
        number=number,
        type_id=_number_of(type_id),
        device=mdev.lower() if mdev else None,
        vm_uuid=text(vm_uuid) or None,
        profile=full_name.rpartition(" ")[2],
        instance=instance,
        max_instances=nvml.if_possible(lambda: library.nvmlVgpuTypeGetMaxInstances(device, type_id)),
        per_instance=None if per_instance is None else int(per_instance),
        guest_address=text(nvml.if_possible(lambda: library.nvmlVgpuInstanceGetGpuPciId(handle))),
        found=found,
    )


def _read_samples(library: Any, device: Any) -> Samples:
    """Ask for the utilization of all vGPUs of a GPU; older drivers know only the older call."""
    try:
        try:
            answer = library.nvmlDeviceGetVgpuInstancesUtilizationInfo(device, 0)
        except library.NVMLError as error:
            newer = (library.NVML_ERROR_FUNCTION_NOT_FOUND, library.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
            if error.value not in newer:
                raise
            answer = library.nvmlDeviceGetVgpuUtilization(device, 0)
    except library.NVMLError as error:
        is_absent = error.value in (library.NVML_ERROR_NOT_SUPPORTED, library.NVML_ERROR_FUNCTION_NOT_FOUND)
        return Samples({}, (NOT_MEASURABLE if is_absent else NOT_READABLE, f"{error} (NVML {error.value})"))
    newest: Dict[int, Any] = {}
    for one in answer or ():
        before = newest.get(int(one.vgpuInstance))
        if before is None or one.timeStamp >= before.timeStamp:
            newest[int(one.vgpuInstance)] = one
    return Samples(newest)


def _framebuffer_used(library: Any, handle: Any) -> int:
    """Return the bytes of framebuffer that the guest uses. Raises NVMLError.

    pynvml's nvmlVgpuInstanceGetFbUsage has room for 32 bits, so 5 GB would be 0.7 GB; nvml.h has `unsigned long long`.
    """
    used = ctypes.c_ulonglong()
    code = library._nvmlGetFunctionPointer("nvmlVgpuInstanceGetFbUsage")(handle, ctypes.byref(used))
    if code != library.NVML_SUCCESS:
        raise library.NVMLError(code)
    return used.value


def _record_sample(found: Recorder, number: int, samples: Samples) -> None:
    sample = samples.by_number.get(number)
    is_absent = samples.missing is not None and samples.missing[0] == NOT_MEASURABLE
    found.add_states("telemetry_support", SUPPORT, NO_TELEMETRY if is_absent else UTIL)
    if sample is not None:
        for name, member in (*_ENGINES, *_NEWER_ENGINES):
            value = getattr(sample, member, None)
            if value is None:
                found.lacks(name, "this driver does not tell it of vGPUs")
            else:
                found.add(name, value.uiVal / PERCENT)
    elif samples.missing is None:
        found.unread(ENGINES, "the driver has no sample of this vGPU yet")
    elif is_absent:
        found.lacks(ENGINES, samples.missing[1])
    else:
        found.unread(ENGINES, samples.missing[1])


def _read_encoder(found: Recorder, library: Any, handle: Any) -> None:
    def statistics() -> None:
        sessions, frames, latency_us = library.nvmlVgpuInstanceGetEncoderStats(handle)
        found.add("encoder_sessions", sessions)
        found.add("encoder_frame_rate_hertz", frames)
        found.add("encoder_latency_seconds", latency_us / _MICRO)

    found.ask("encoder_sessions encoder_frame_rate_hertz encoder_latency_seconds", statistics)
    found.ask("encoder_capacity_ratio", lambda: library.nvmlVgpuInstanceGetEncoderCapacity(handle), per=PERCENT)
    found.ask("frame_rate_limit_hertz", lambda: library.nvmlVgpuInstanceGetFrameRateLimit(handle))


def _read_license(found: Recorder, library: Any, handle: Any) -> None:
    def license_info() -> None:
        answer = library.nvmlVgpuInstanceGetLicenseInfo_v2(handle)
        state = int(answer.currentState)
        now = LICENSE_STATES[state] if state < len(LICENSE_STATES) else LICENSE_STATES[0]
        found.add_states("license_state", LICENSE_STATES, now)
        end = answer.licenseExpiry
        if int(end.status) != _EXPIRY_VALID:
            reason = _NO_EXPIRY.get(int(end.status), "the driver tells no end that vgpuctl knows")
            found.lacks("license_expiry_timestamp_seconds", reason)
            return
        moment = (end.year, end.month, end.day, end.hour, end.min, end.sec)
        try:
            found.add("license_expiry_timestamp_seconds", calendar.timegm(moment))
        except ValueError:
            found.unread("license_expiry_timestamp_seconds", f"the end of the licence is no date: {moment}")

    found.ask("license_state license_expiry_timestamp_seconds", license_info)


def _read_guest_driver(found: Recorder, library: Any, handle: Any) -> None:
    def version() -> None:
        told = text(library.nvmlVgpuInstanceGetVmDriverVersion(handle)) or ""
        if not told or told == _NO_GUEST_DRIVER:
            found.unread("guest_driver_info", "the guest's driver is not loaded yet")
        elif _VERSION.fullmatch(told):
            found.add("guest_driver_info", 1, told)
        else:
            found.unread("guest_driver_info", "the guest tells a text that is no version")

    found.ask("guest_driver_info", version)


def _number_of(handle: Any) -> int:
    return int(getattr(handle, "value", handle))
