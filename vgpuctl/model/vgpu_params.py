# SPDX-License-Identifier: Apache-2.0
"""Parameters of vGPUs and VFs, one text per device: of NVIDIA's vGPU plugin, and of Intel's driver `xe`.

Sources: NVIDIA vGPU user guide, "vGPU plugin parameters"; Linux Documentation/ABI/testing/sysfs-driver-intel-xe-sriov.
"""

import re
from enum import StrEnum

from vgpuctl.errors import UsageError
from vgpuctl.model.units import MIB, exact_mib, parse_mib

VgpuParams = tuple[tuple[str, str], ...]
"""Name and value, sorted by name."""


class VgpuParam(StrEnum):
    """The parameters of a vGPU that NVIDIA documents; all are 0 or 1."""

    DISABLE_VNC = "disable_vnc"
    ENABLE_DEBUGGING = "enable_debugging"
    ENABLE_PROFILING = "enable_profiling"
    ENABLE_UVM = "enable_uvm"
    FRAME_RATE_LIMITER = "frame_rate_limiter"


class VfParam(StrEnum):
    """The parameters of a VF that can be set in the folder `sriov_admin` of the driver `xe`, while a VM runs.

    exec_quantum_ms: the VF's time slice, 0 for no limit. preempt_timeout_us: the time until work that does not give way
    is ended, 0 for no limit. The driver lets nobody change a VF's `sched_priority`. `vram_quota` is not set: the
    guest's driver reads its size when it loads.
    """

    EXEC_QUANTUM_MS = "exec_quantum_ms"
    PREEMPT_TIMEOUT_US = "preempt_timeout_us"


class FunctionParam(StrEnum):
    """Parameters that a host's layout sets for each function of a card with the driver `xe`; VfParam are a VM's own.

    sched_priority: `low` runs with work queued alone, `normal` always, `high` next. vram_quota: bytes of the card's
    memory, of a VF alone.
    """

    EXEC_QUANTUM_MS = "exec_quantum_ms"
    PREEMPT_TIMEOUT_US = "preempt_timeout_us"
    SCHED_PRIORITY = "sched_priority"
    VRAM_QUOTA = "vram_quota"


_PRIORITIES = ("low", "normal", "high")
_AGAINST_MIGRATION = (VgpuParam.ENABLE_DEBUGGING, VgpuParam.ENABLE_PROFILING, VgpuParam.ENABLE_UVM)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_MOST = 2**32 - 1


def parse_vgpu_param(text: str, /, *, what: str = "vgpu_params") -> tuple[str, str]:
    """Read `frame_rate_limiter=0` or `exec_quantum_ms=20`. Raises UsageError."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or name not in (*VgpuParam, *VfParam):
        is_known, hint = False, f"write NAME=VALUE, where NAME is one of {', '.join((*VgpuParam, *VfParam))}"
    elif name in tuple(VgpuParam):
        is_known, hint = value in ("0", "1"), f"write {name}=0 or {name}=1"
    else:
        is_known, hint = _is_number(value), f"{name} is a whole number up to {_MOST}, 0 for no limit"
    if not is_known:
        raise UsageError(f"{what}: {text[:80]!a} is no parameter of a vGPU or VF", hint=hint)
    return name, value


def parse_function_param(text: str, /, *, what: str = "vf_params") -> tuple[str, str]:
    """Read `exec_quantum_ms=20`, `sched_priority=normal` or `vram_quota=4GiB`, in bytes then. Raises UsageError."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or name not in tuple(FunctionParam):
        is_known, hint = False, f"write NAME=VALUE, where NAME is one of {', '.join(FunctionParam)}"
    elif name == FunctionParam.VRAM_QUOTA:
        return name, str(parse_mib(value, what=f"{what}: {name}") * MIB)
    elif name == FunctionParam.SCHED_PRIORITY:
        is_known, hint = value in _PRIORITIES, f"{name} is one of {', '.join(_PRIORITIES)}"
    else:
        is_known, hint = _is_number(value), f"{name} is a whole number up to {_MOST}, 0 for no limit"
    if not is_known:
        raise UsageError(f"{what}: {text[:80]!a} is no parameter of a function", hint=hint)
    return name, value


def show_function_param(pair: tuple[str, str]) -> str:
    """Write a parameter of a function as it is read."""
    name, value = pair
    is_size = name == FunctionParam.VRAM_QUOTA and value.isdigit() and int(value) % MIB == 0 and int(value) > 0
    return f"{name}={exact_mib(int(value) // MIB)}" if is_size else f"{name}={value}"


def _is_number(value: str) -> bool:
    return _NUMBER.fullmatch(value) is not None and int(value) <= _MOST


def merge_params(under: VgpuParams, over: VgpuParams) -> VgpuParams:
    """Both, sorted by name; where both have a name, the value of `over` counts."""
    return tuple(sorted((dict(under) | dict(over)).items()))


def params_text(params: VgpuParams) -> str:
    """Write parameters as the driver's file `vgpu_params` has them: `enable_uvm=1,frame_rate_limiter=0`."""
    return ",".join(map(show_vgpu_param, params))


def split_params(text: str | None) -> VgpuParams:
    """Split what a driver says of a device into names and values, whatever they are."""
    pairs = (one.partition("=") for one in (text or "").split(",") if one)
    return tuple((name, value) for name, _, value in pairs)


def params_against_migration(params: VgpuParams) -> list[str]:
    """The names of those that keep a vGPU from live migration (NVIDIA vGPU user guide, "vGPU migration")."""
    return [name for name, value in params if value == "1" and name in _AGAINST_MIGRATION]


def change_while_used(before: VgpuParams, after: VgpuParams) -> bool:
    """True if the devices take the change while a VM runs on them."""
    return all(name in tuple(VfParam) for name, _ in {*before} ^ {*after})


def show_vgpu_param(pair: tuple[str, str]) -> str:
    """Write a parameter as it is read."""
    return "=".join(pair)
