# SPDX-License-Identifier: Apache-2.0
"""NVML with every call and its answer noted. The agent gets NVML's own answers.

Handles are noted by what they stand for (`gpu 0000:41:00.0`, `gpu …/gi1`), since their values mean nothing elsewhere.
"""

import ctypes
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

from vgpuctl.agent.wire.recorded import (
    BYTES,
    CODE,
    HANDLE,
    OUT,
    OUTPUT,
    RAISED,
    RESULT,
    STRUCT,
    TEXT,
    TUPLE,
    AnswerLog,
    number_to_json,
)

_INSTANCES = ("c_nvmlGpuInstance_t", "c_nvmlComputeInstance_t")
_DEEPEST = 8


class RecordedNvml:
    """Stands before the functions of `library`, pynvml or what answers in its place."""

    def __init__(self, library: Any, log: AnswerLog, constants: Dict[str, Any], errors: Dict[str, str]) -> None:
        self._library = library
        self._log = log
        self._constants = constants
        self._errors = errors
        self._handles: Dict[Any, str] = {}
        # Python may give the identity of an object that has gone to another one.
        self._kept: List[Any] = []
        instances = (getattr(library, name, None) for name in _INSTANCES)
        self._instance_types = tuple(kind for kind in instances if isinstance(kind, type))

    def __getattr__(self, name: str) -> Any:
        try:
            found = getattr(self._library, name)
        except AttributeError:
            self._constants[name] = None
            raise
        if name == "_nvmlGetFunctionPointer":
            return lambda function: partial(self._call, function, found(function))
        if isinstance(found, type):
            return found
        if callable(found):
            return partial(self._call, name, found)
        self._constants[name] = found
        if name.startswith("NVML_ERROR_"):
            self._errors[str(found)] = str(self._library.NVMLError(found))
        return found

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        key = f"{name}({', '.join(self._described(one) for one in arguments)})"
        try:
            result = function(*arguments)
        except self._library.NVMLError as error:
            self._log.add(key, {CODE: error.value, TEXT: str(error)})
            raise
        except (AttributeError, TypeError, ValueError) as error:
            self._log.add(key, {RAISED: type(error).__name__, TEXT: str(error)})
            raise
        self._name_result(name, key, arguments, result)
        filled = {str(place): self._noted(_content(one), 0) for place, one in enumerate(arguments) if self._is_out(one)}
        self._log.add(key, {RESULT: self._noted(result, 0), **({OUT: filled} if filled else {})})
        return result

    def _described(self, value: Any) -> str:
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._described(one) for one in value)}]"
        name = self._handles.get(_identity(value))
        if name is not None:
            return name
        if isinstance(value, ctypes._SimpleCData):
            return str(value.value)
        return OUTPUT

    def _is_out(self, value: Any) -> bool:
        return self._described(value) == OUTPUT

    def _name_result(self, function: str, key: str, arguments: Tuple[Any, ...], result: Any) -> None:
        """Name the handles of an answer by what they stand for."""
        parent = self._described(arguments[0]) if arguments else ""
        if function.startswith("nvmlDeviceGetHandleBy"):
            self._name(result, self._device_name(result, key))
        elif function == "nvmlDeviceGetMigDeviceHandleByIndex":
            self._name(result, f"{parent}/mig{arguments[1]}")
        elif function == "nvmlDeviceGetGpuInstanceById":
            self._name(result, f"{parent}/gi{arguments[1]}")
        elif function == "nvmlGpmSampleAlloc":
            self._name(result, "sample")
        elif function == "nvmlDeviceGetGpuInstances":
            for place, handle in enumerate(arguments[2]):
                if handle:
                    self._name(handle, self._instance_name(handle, parent, f"{arguments[1]}.{place}"))

    def _name(self, handle: Any, name: str) -> None:
        self._handles[_identity(handle)] = name
        self._kept.append(handle)

    def _device_name(self, handle: Any, key: str) -> str:
        try:
            bus = self._library.nvmlDeviceGetPciInfo(handle).busId
        except self._library.NVMLError:
            return f"gpu of {key}"
        return f"gpu {(bus.decode() if isinstance(bus, bytes) else str(bus)).lower()}"

    def _instance_name(self, handle: Any, parent: str, place: str) -> str:
        try:
            return f"{parent}/gi{int(self._library.nvmlGpuInstanceGetInfo(handle).id)}"
        except (self._library.NVMLError, ValueError):
            # Places of the array that were not filled.
            return f"{parent}/none{place}"

    def _noted(self, value: Any, depth: int) -> Any:
        """Return a value as JSON: numbers, texts, lists, structs by their fields, handles by their names."""
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return number_to_json(value)
        if isinstance(value, bytes):
            return {BYTES: value.decode(errors="replace")}
        if isinstance(value, ctypes._SimpleCData):
            return self._noted(value.value, depth)
        name = self._handles.get(_identity(value))
        if name is not None or depth > _DEEPEST:
            return {HANDLE: name}
        if isinstance(value, tuple):
            return {TUPLE: [self._noted(one, depth + 1) for one in value]}
        if isinstance(value, (list, ctypes.Array)):
            return [self._noted(one, depth + 1) for one in value]
        return {STRUCT: {field: self._noted(getattr(value, field), depth + 1) for field in _fields(value)}}


def _content(value: Any) -> Any:
    """Return what `byref` points at; other arguments are filled themselves."""
    content = getattr(value, "_obj", value)
    return content


def _fields(value: Any) -> List[str]:
    fields = getattr(type(value), "_fields_", None)
    if fields is not None:
        return [one[0] for one in fields]
    return [name for name in getattr(value, "__dict__", {}) if not name.startswith("_")]


def _identity(value: Any) -> Any:
    """Return what tells one handle from another: the address of a pointer, the bytes of a struct, else the object."""
    if isinstance(value, ctypes._Pointer):
        return "pointer", ctypes.cast(value, ctypes.c_void_p).value
    if isinstance(value, ctypes.Structure):
        return type(value), bytes(value)
    try:
        return type(value), hash(value)
    except TypeError:
        return type(value), id(value)
