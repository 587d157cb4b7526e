# SPDX-License-Identifier: Apache-2.0
"""Power limit, clocks, ECC and compute mode of a GPU through NVML.

A setting that does not answer keeps nothing from being used: it is noted in the value itself.
"""

from typing import Any, Callable, List, Optional, Tuple

from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.wire.tuning import COMPUTE_MODES, GPU_CLOCKS, ClockDomain, GpuTuning, UnreadSetting, runs_of


def read(nvml: Nvml, device: Any) -> GpuTuning:
    """Read one GPU. Raises NVMLError for a GPU that is lost."""
    library = nvml.library
    unread: List[UnreadSetting] = []

    def ask(name: str, what: str, function: Callable[..., Any]) -> Any:
        def note(problem: str) -> None:
            unread.append(UnreadSetting(name, problem))

        return nvml.part(note, what, lambda: nvml.optional(function, device), None)

    limit = ask("power_limit_mw", "its power limit", library.nvmlDeviceGetPowerManagementLimit)
    default = limits = None
    if limit is not None:
        default = ask("power_default_mw", "its default power limit", library.nvmlDeviceGetPowerManagementDefaultLimit)
        limits = ask("power_limits_mw", "its least power limit", library.nvmlDeviceGetPowerManagementLimitConstraints)
    ecc = ask("ecc", "its ECC mode", library.nvmlDeviceGetEccMode)
    memory = ask("memory_clocks", "its memory clocks", library.nvmlDeviceGetSupportedMemoryClocks)
    clocks = ask("clocks", "its clocks", lambda device: _read_clocks(library, device))
    mode = ask("compute_mode", "its compute mode", library.nvmlDeviceGetComputeMode)
    persistence = ask("persistence", "its persistence mode", library.nvmlDeviceGetPersistenceMode)
    modes = {number: name for name, number in COMPUTE_MODES.items()}
    if mode is not None and int(mode) not in modes:
        unread.append(UnreadSetting("compute_mode", f"NVML tells an unknown compute mode, {int(mode)}"))
    return GpuTuning(
        power_limit_mw=None if limit is None else int(limit),
        power_default_mw=None if default is None else int(default),
        power_limits_mw=None if limits is None else (int(limits[0]), int(limits[1])),
        clocks=runs_of(clocks or ()),
        ecc=None if ecc is None else bool(ecc[0]),
        ecc_pending=None if ecc is None else bool(ecc[1]),
        compute_mode=None if mode is None else modes.get(int(mode)),
        persistence=None if persistence is None else bool(persistence),
        unread=tuple(unread),
        memory_clocks=runs_of(tuple(int(one) for one in memory or ())),
    )


def read_clock(nvml: Nvml, device: Any, domain: ClockDomain) -> Optional[int]:
    """Return the clock of the streaming multiprocessors or the memory in MHz, None where NVML does not tell it."""
    library = nvml.library
    which = library.NVML_CLOCK_SM if domain == GPU_CLOCKS else library.NVML_CLOCK_MEM
    clock = nvml.if_possible(lambda: library.nvmlDeviceGetClockInfo(device, which))
    return None if clock is None else int(clock)


def _read_clocks(library: Any, device: Any) -> Tuple[int, ...]:
    """Return the GPU clocks of every memory clock. Raises NVMLError."""
    found = [library.nvmlDeviceGetSupportedGraphicsClocks(device, memory) for memory in _memory_clocks(library, device)]
    return tuple(int(clock) for clocks in found for clock in clocks)


def _memory_clocks(library: Any, device: Any) -> List[int]:
    """Return the highest memory clock: those below are for an idle GPU, and their GPU clocks are among its."""
    return sorted(int(one) for one in library.nvmlDeviceGetSupportedMemoryClocks(device))[-1:]
