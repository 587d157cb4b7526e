# SPDX-License-Identifier: Apache-2.0
"""NVML through the bundled pynvml: what NVIDIA's driver knows of its GPUs and vGPU types.

`Nvml.open` answers with a problem's text where the library or the driver is missing; such a host is read without it.
It is closed before anything else wants a GPU: whoever has NVML initialised has the GPUs' nodes open.
"""

import re
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Tuple, Type, TypeVar

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem

T = TypeVar("T")
_MIB = 1 << 20
_BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


@dataclass(frozen=True)
class NvmlType:
    """A vGPU type as NVML describes it for one GPU."""

    type_id: str
    full_name: str
    framebuffer_mib: Optional[int]
    max_instances: Optional[int]


@dataclass(frozen=True)
class NvmlGpu:
    """One GPU. mig_mode, mig_pending: `enabled`, `disabled`, or None when the GPU has no MIG."""

    name: Optional[str]
    uuid: Optional[str]
    memory_mib: Optional[int]
    mig_mode: Optional[str]
    mig_pending: Optional[str]
    types: Tuple[NvmlType, ...]


class Nvml:
    """An open NVML; use it as a context manager."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @staticmethod
    def open(host: Host) -> Tuple[Optional["Nvml"], Optional[str]]:
        """Initialise the host's NVML and return (nvml, None), or (None, why it cannot be used)."""
        try:
            library = host.nvml()
        except Problem as problem:
            return None, problem.message
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            return None, f"NVML cannot be used: {error}"
        return Nvml(library), None

    def __enter__(self) -> "Nvml":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._if_possible(self._library.nvmlShutdown)

    def driver_version(self) -> Optional[str]:
        """Return the driver's version."""
        return _text(self._if_possible(self._library.nvmlSystemGetDriverVersion))

    def nvml_version(self) -> Optional[str]:
        """Return the library's version."""
        return _text(self._if_possible(self._library.nvmlSystemGetNVMLVersion))

    def gpus(self) -> Tuple[Dict[str, NvmlGpu], List[str]]:
        """Return {address: GPU} of the GPUs that answer, and a sentence for each that does not."""
        library = self._library
        found: Dict[str, NvmlGpu] = {}
        problems: List[str] = []
        for index in range(self._if_possible(library.nvmlDeviceGetCount) or 0):
            try:
                handle = library.nvmlDeviceGetHandleByIndex(index)
                bus_id = library.nvmlDeviceGetPciInfo(handle).busId
                found[normalise_bus_id(_text(bus_id) or "")] = self._read_gpu(handle)
            except library.NVMLError as error:
                problems.append(f"NVML: GPU {index} does not answer: {error}")
        return found, problems

    def _read_gpu(self, handle: Any) -> NvmlGpu:
        library = self._library
        memory = self._optional(library.nvmlDeviceGetMemoryInfo, handle)
        mig = self._optional(library.nvmlDeviceGetMigMode, handle)
        types = self._optional(library.nvmlDeviceGetSupportedVgpus, handle) or []
        return NvmlGpu(
            _text(self._optional(library.nvmlDeviceGetName, handle)),
            _text(self._optional(library.nvmlDeviceGetUUID, handle)),
            None if memory is None else int(memory.total) // _MIB,
            None if mig is None else _mode(mig[0]),
            None if mig is None else _mode(mig[1]),
            tuple(self._read_type(handle, type_id) for type_id in types),
        )

    def _read_type(self, handle: Any, type_id: int) -> NvmlType:
        library = self._library
        size = self._optional(library.nvmlVgpuTypeGetFramebufferSize, type_id)
        maximum = self._optional(library.nvmlVgpuTypeGetMaxInstances, handle, type_id)
        return NvmlType(
            str(int(getattr(type_id, "value", type_id))),
            _text(self._optional(library.nvmlVgpuTypeGetName, type_id)) or str(type_id),
            None if size is None else int(size) // _MIB,
            None if maximum is None else int(maximum),
        )

    def _if_possible(self, function: Callable[[], T]) -> Optional[T]:
        """Return None for what the library as a whole does not answer."""
        try:
            return function()
        except self._library.NVMLError:
            return None

    def _optional(self, function: Callable[..., T], *arguments: object) -> Optional[T]:
        """Return None for what this GPU or this library has not; every other error is the caller's."""
        library = self._library
        try:
            return function(*arguments)
        except library.NVMLError as error:
            absent = (
                library.NVML_ERROR_NOT_SUPPORTED,
                library.NVML_ERROR_FUNCTION_NOT_FOUND,
                library.NVML_ERROR_NO_PERMISSION,
            )
            if error.value in absent:
                return None
            raise


def normalise_bus_id(bus_id: str) -> str:
    """Return NVML's `00000000:C1:00.0` as sysfs writes it, `0000:c1:00.0`."""
    match = _BUS_ID.fullmatch(bus_id.lower())
    return f"{int(match[1], 16):04x}:{match[2]}" if match else bus_id.lower()


def _mode(value: int) -> str:
    return "enabled" if value else "disabled"


def _text(value: object) -> Optional[str]:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None
