# SPDX-License-Identifier: Apache-2.0
"""The types of the answers in a capture, by what was asked: a method of the agent's `Host`, or a function of NVML.

A capture may come from anybody, and the replay hands its values to the agent, which relies on their types. A question
that is not known here is not asked either.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from vgpuctl.agent.wire.decode import WireError, from_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.recorded import (
    BYTES,
    CODE,
    HANDLE,
    NUMBER,
    OUT,
    PROBLEM,
    RAISED,
    RESULT,
    STRUCT,
    TEXT,
    TUPLE,
    VALUE,
)
from vgpuctl.typed_json import convert


class _Bytes(msgspec.Struct):
    bytes: str
    encoding: Literal["utf-8", "latin-1"]


class _Image(msgspec.Struct):
    """An image's size and first bytes, or the errno of its refusal."""

    errno: int | msgspec.UnsetType = msgspec.UNSET
    size: int | msgspec.UnsetType = msgspec.UNSET
    head: _Bytes | msgspec.UnsetType = msgspec.UNSET


_HOST: dict[str, Any] = {
    "read_optional": str | None,
    "read_head": _Bytes,
    "read_bytes": _Bytes | None,
    "read_tail": str,
    "open_image": _Image,
    "listdir_optional": list[str] | None,
    "exists": bool,
    "read_attribute": str | None,
    "link": str | None,
    "disk_link": str | None,
    "real_path": str,
    "image_real_path": str,
    "stamp": tuple[int, int, int] | None,
    "owner_of": int | None,
    "user_id": int,
    "process_links": tuple[list[tuple[int, str]], int],
    "find_program": str | None,
    "run": tuple[int, str, str],
    "nvml": bool,
    "python": str,
    "is_root": bool,
    "monotonic": float,
    "uptime": float,
    "cpu_seconds": float,
    "clock_ticks": int,
    "echo": dict[str, int],
    "numbered_log": tuple[bool, list[tuple[int, float, bool, str]], int | None, int],
    "whole_kernel_log": list[str],
    "kernel_records": list[tuple[float, str]] | None,
}
_NVML_TEXTS = """
    nvmlDeviceGetName nvmlDeviceGetUUID nvmlDeviceGetVbiosVersion nvmlSystemGetDriverVersion nvmlSystemGetNVMLVersion
    nvmlVgpuInstanceGetGpuPciId nvmlVgpuInstanceGetMdevUUID nvmlVgpuInstanceGetVmDriverVersion nvmlVgpuTypeGetName
    """
_NVML_NUMBERS = """
    nvmlDeviceGetClockInfo nvmlDeviceGetCount nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetEnforcedPowerLimit
    nvmlDeviceGetGpuInstanceId nvmlDeviceGetMaxMigDeviceCount nvmlDeviceGetPcieReplayCounter nvmlDeviceGetPowerUsage
    nvmlDeviceGetRetiredPagesPendingStatus nvmlDeviceGetTemperature nvmlDeviceGetTemperatureThreshold
    nvmlDeviceGetTotalEccErrors nvmlDeviceGetTotalEnergyConsumption nvmlDeviceGetVgpuHeterogeneousMode
    nvmlVgpuInstanceGetEncoderCapacity nvmlVgpuInstanceGetFrameRateLimit nvmlVgpuInstanceGetGpuInstanceId
    nvmlVgpuInstanceGetType nvmlVgpuTypeGetFrameRateLimit nvmlVgpuTypeGetFramebufferSize
    nvmlVgpuTypeGetGpuInstanceProfileId nvmlVgpuTypeGetMaxInstances nvmlVgpuTypeGetMaxInstancesPerGpuInstance
    nvmlVgpuTypeGetNumDisplayHeads
    """
_NVML_LISTS = """
    nvmlDeviceGetActiveVgpus nvmlDeviceGetDecoderUtilization nvmlDeviceGetEccMode nvmlDeviceGetEncoderUtilization
    nvmlDeviceGetJpgUtilization nvmlDeviceGetMigMode nvmlDeviceGetOfaUtilization nvmlDeviceGetRepairStatus
    nvmlDeviceGetSupportedVgpus
    """
_NVML: dict[str, Any] = {
    **dict.fromkeys(_NVML_TEXTS.split(), str),
    **dict.fromkeys(_NVML_NUMBERS.split(), int),
    **dict.fromkeys(_NVML_LISTS.split(), list[int]),
}
_TEXT_FIELDS = frozenset({"busId", "busIdLegacy", "name", "longName", "shortName", "unit"})
"""Fields of NVML's structs that are text; all others are numbers."""


def check_host_answer(key: str, answer: Mapping[str, Any], path: str) -> None:
    """Check one answer of a host. key: the question, as `read_optional /proc/cmdline`. Raises WireError."""
    if PROBLEM in answer:
        from_json(Problem, answer[PROBLEM], f"{path}.{PROBLEM}")
        return
    kind = _HOST.get(key.partition(" ")[0])
    if kind is None:
        return
    found = _typed(answer.get(VALUE), kind, f"{path}.{VALUE}")
    is_whole = not isinstance(found, _Image) or found.errno is not msgspec.UNSET
    if not is_whole and msgspec.UNSET in (found.size, found.head):
        raise WireError(f"{path}.{VALUE}", "must have errno, or size and head")


def check_nvml_answer(key: str, answer: Mapping[str, Any], path: str) -> None:
    """Check one answer of NVML. key: the call, as `nvmlDeviceGetName(gpu 0000:41:00.0)`. Raises WireError."""
    if CODE in answer or RAISED in answer:
        _typed(answer.get(TEXT, ""), str, f"{path}.{TEXT}")
        if CODE in answer:
            _typed(answer[CODE], int, f"{path}.{CODE}")
        else:
            _typed(answer[RAISED], str, f"{path}.{RAISED}")
        return
    if RESULT not in answer:
        raise WireError(path, f"must have {RESULT}, {CODE} or {RAISED}")
    kind = _NVML.get(key.partition("(")[0])
    if kind is not None:
        _typed(answer[RESULT], kind, f"{path}.{RESULT}")
    else:
        _check_value(answer[RESULT], f"{path}.{RESULT}", is_field=False)
    for place, content in _typed(answer.get(OUT, {}), dict[str, Any], f"{path}.{OUT}").items():
        if not place.isdecimal():
            raise WireError(f"{path}.{OUT}.{place}", "must be the number of an argument")
        _check_value(content, f"{path}.{OUT}.{place}", is_field=True)


def check_nvml_tables(constants: Mapping[str, Any], errors: Mapping[str, Any], path: str) -> None:
    """Check the numbers of NVML's constants and the texts of its error codes. Raises WireError."""
    for name, number in constants.items():
        _typed(number, int | None, f"{path}.constants.{name}")
    for code, text in errors.items():
        if not code.removeprefix("-").isdecimal():
            raise WireError(f"{path}.errors.{code}", "must be a number")
        _typed(text, str, f"{path}.errors.{code}")


def _check_value(value: Any, path: str, *, is_field: bool, is_text: bool = False) -> None:
    """Check a value of NVML. is_field: a field, or filled by the call: a number unless is_text."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            _check_value(one, f"{path}[{number}]", is_field=is_field, is_text=is_text)
    elif not isinstance(value, dict):
        if is_field and value is not None and isinstance(value, str) is not is_text:
            raise WireError(path, f"must be {'text' if is_text else 'a number'}")
    elif TUPLE in value:
        for number, one in enumerate(_typed(value[TUPLE], list[Any], f"{path}.{TUPLE}")):
            _check_value(one, f"{path}.{TUPLE}[{number}]", is_field=False)
    elif STRUCT in value:
        for name, one in _typed(value[STRUCT], dict[str, Any], f"{path}.{STRUCT}").items():
            _check_value(one, f"{path}.{STRUCT}.{name}", is_field=True, is_text=name in _TEXT_FIELDS)
    else:
        tag = next((one for one in (BYTES, NUMBER, HANDLE) if one in value), None)
        if tag is None:
            raise WireError(path, f"must have {STRUCT}, {TUPLE}, {BYTES}, {NUMBER} or {HANDLE}")
        _typed(value[tag], Literal["inf", "-inf", "nan"] if tag == NUMBER else str, f"{path}.{tag}")


def _typed(value: Any, kind: Any, path: str) -> Any:
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        told, _, where = str(error).partition(" - at `$")
        raise WireError(
            f"{path}{where.removesuffix('`')}", f"has another type: {told[:1].lower()}{told[1:]}"
        ) from error
