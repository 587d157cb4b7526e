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


_AGAINST_MIGRATION = (VgpuParam.ENABLE_DEBUGGING, VgpuParam.ENABLE_PROFILING, VgpuParam.ENABLE_UVM)


def parse_vgpu_param(text: str, /, *, what: str = "vgpu_params") -> tuple[str, str]:
    """Read `frame_rate_limiter=0`. Raises UsageError."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or name not in tuple(VgpuParam) or value not in ("0", "1"):
        raise UsageError(
            f"{what}: {text[:80]!a} is no parameter of a vGPU",
            hint=f"write NAME=0 or NAME=1, where NAME is one of {', '.join(VgpuParam)}",
        )
    return name, value


def merge_params(under: VgpuParams, over: VgpuParams) -> VgpuParams:
    """Both, sorted by name; where both have a name, the value of `over` counts."""
    return tuple(sorted((dict(under) | dict(over)).items()))


def params_text(params: VgpuParams) -> str:
    """Write parameters as the driver's file `vgpu_params` has them: `enable_uvm=1,frame_rate_limiter=0`."""
    return ",".join(map(show_vgpu_param, params))


def params_against_migration(params: VgpuParams) -> list[str]:
    """The names of those that keep a vGPU from live migration (NVIDIA vGPU user guide, "vGPU migration")."""
    return [name for name, value in params if value == "1" and name in _AGAINST_MIGRATION]


def show_vgpu_param(pair: tuple[str, str]) -> str:
    """Write a parameter as it is read."""
    return "=".join(pair)
