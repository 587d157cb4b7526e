# SPDX-License-Identifier: Apache-2.0
"""NVML's metadata of vGPUs and GPUs, and its comparison of both.

pynvml has these calls with buffers of a fixed size: where the library's answer is longer, it would write past their
end. So they are made here, with a buffer of the size that the library asks for.
"""

from ctypes import byref, c_ubyte, c_uint
from typing import Any, Callable, Tuple

from vgpuctl.agent.wire.migration import LONGEST_METADATA
from vgpuctl.agent.wire.values import dataclass

_CAN_MIGRATE = 0x1
_DRIVER_SIZE = 80
# nvmlVgpuMetadata_t and nvmlVgpuPgpuMetadata_t (nvml.h): where the fields are, in bytes.
_VGPU_GUEST_DRIVER, _VGPU_CAPS, _VGPU_GUEST_VERSION, _VGPU_OPAQUE_SIZE, _VGPU_OPAQUE = 12, 196, 200, 204, 208
_GPU_HOST_DRIVER, _GPU_CAPS, _GPU_VERSIONS, _GPU_OPAQUE_SIZE, _GPU_OPAQUE = 8, 88, 112, 120, 124


@dataclass(frozen=True)
class VgpuMetadata:
    """nvmlVgpuMetadata_t without its opaque part. guest_driver: empty without one."""

    guest_driver: str
    can_migrate: bool
    guest_version: int


@dataclass(frozen=True)
class PgpuMetadata:
    """nvmlVgpuPgpuMetadata_t without its opaque part."""

    host_driver: str
    can_migrate: bool
    versions: Tuple[int, int]


def read_vgpu(library: Any, instance: Any) -> bytes:
    """Return nvmlVgpuMetadata_t of a vGPU of a running VM. Raises NVMLError."""
    return _answer(library, library._nvmlGetFunctionPointer("nvmlVgpuInstanceGetMetadata"), instance)


def read_gpu(library: Any, device: Any) -> bytes:
    """Return nvmlVgpuPgpuMetadata_t of a GPU. Raises NVMLError."""
    return _answer(library, library._nvmlGetFunctionPointer("nvmlDeviceGetVgpuMetadata"), device)


def read_signature(library: Any, device: Any) -> str:
    """Return the text by which NVIDIA's tools compare GPUs. Raises NVMLError."""
    text = _answer(library, library._nvmlGetFunctionPointer("nvmlDeviceGetPgpuMetadataString"), device)
    return text.split(b"\0")[0].decode("ascii", "replace")


def vgpu_metadata(data: bytes) -> VgpuMetadata:
    """Read nvmlVgpuMetadata_t. Raises ValueError for what is none."""
    _check(data, _VGPU_OPAQUE_SIZE, _VGPU_OPAQUE)
    return VgpuMetadata(
        _text(data, _VGPU_GUEST_DRIVER),
        bool(_number(data, _VGPU_CAPS) & _CAN_MIGRATE),
        _number(data, _VGPU_GUEST_VERSION),
    )


def gpu_metadata(data: bytes) -> PgpuMetadata:
    """Read nvmlVgpuPgpuMetadata_t. Raises ValueError for what is none."""
    _check(data, _GPU_OPAQUE_SIZE, _GPU_OPAQUE)
    versions = (_number(data, _GPU_VERSIONS), _number(data, _GPU_VERSIONS + 4))
    return PgpuMetadata(_text(data, _GPU_HOST_DRIVER), bool(_number(data, _GPU_CAPS) & _CAN_MIGRATE), versions)


def compare(library: Any, vgpu: bytes, gpu: bytes) -> Tuple[int, int]:
    """Ask NVML whether a vGPU can go to a GPU: nvmlVgpuPgpuCompatibility_t's two numbers.

    gpu: of another host, so its sizes are checked before the library reads it. Raises NVMLError, and ValueError for
    what is no metadata.
    """
    vgpu_metadata(vgpu)
    gpu_metadata(gpu)
    ask = library._nvmlGetFunctionPointer("nvmlGetVgpuCompatibility")
    found = (c_uint * 2)()
    both = [(c_ubyte * len(one)).from_buffer_copy(one) for one in (vgpu, gpu)]
    code = ask(both[0], both[1], byref(found))
    if code != library.NVML_SUCCESS:
        raise library.NVMLError(code)
    return int(found[0]), int(found[1])


def _answer(library: Any, ask: Callable[..., int], subject: Any) -> bytes:
    """Ask for the size of an answer, then for the answer. Raises NVMLError."""
    size = c_uint(0)
    code = ask(subject, None, byref(size))
    if code == library.NVML_ERROR_INSUFFICIENT_SIZE and size.value <= LONGEST_METADATA:
        buffer = (c_ubyte * size.value)()
        code = ask(subject, buffer, byref(size))
        if code == library.NVML_SUCCESS:
            return bytes(buffer)[: size.value]
    raise library.NVMLError(code if code != library.NVML_SUCCESS else library.NVML_ERROR_UNKNOWN)


def _check(data: bytes, size_at: int, opaque_at: int) -> None:
    """Refuse metadata whose opaque part does not end with it. Raises ValueError."""
    if not opaque_at <= len(data) <= LONGEST_METADATA or _number(data, size_at) > len(data) - opaque_at:
        raise ValueError(f"{len(data)} bytes are no metadata of NVML")


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _text(data: bytes, at: int) -> str:
    return data[at : at + _DRIVER_SIZE].split(b"\0")[0].decode("ascii", "replace")
