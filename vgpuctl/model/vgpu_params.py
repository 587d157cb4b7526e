# SPDX-License-Identifier: Apache-2.0
"""Parameters of NVIDIA's vGPU plugin, one text per vGPU (reference vdi-guests, section 3)."""

from enum import StrEnum

from vgpuctl.errors import UsageError

VgpuParams = tuple[tuple[str, str], ...]
"""Name and value, sorted by name."""


class VgpuParam(StrEnum):
    """The parameters that NVIDIA documents; all are 0 or 1."""

    DISABLE_VNC = "disable_vnc"
    ENABLE_DEBUGGING = "enable_debugging"
    ENABLE_PROFILING = "enable_profiling"
    ENABLE_UVM = "enable_uvm"
    FRAME_RATE_LIMITER = "frame_rate_limiter"


def parse_vgpu_param(text: str, /, *, what: str = "vgpu_params") -> tuple[str, str]:
    """Read `frame_rate_limiter=0`. Raises UsageError."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or name not in tuple(VgpuParam) or value not in ("0", "1"):
        raise UsageError(
            f"{what}: {text[:80]!a} is no parameter of a vGPU",
            hint=f"write NAME=0 or NAME=1, where NAME is one of {', '.join(VgpuParam)}",
        )
    return name, value


def show_vgpu_param(pair: tuple[str, str]) -> str:
    """Write a parameter as it is read."""
    return "=".join(pair)
