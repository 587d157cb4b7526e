# SPDX-License-Identifier: Apache-2.0
"""Readings of one GPU through NVML (telemetry reference 2.4)."""

import ctypes
from typing import Any, Optional

from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.readings import nvlink, scheduler
from vgpuctl.agent.readings.fields import read_field
from vgpuctl.agent.readings.instances import Instances
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.wire.measure_states import (
    CLOCK_EVENTS,
    GPM,
    NO_TELEMETRY,
    RECOVERY_ACTIONS,
    SUPPORT,
    UNKNOWN,
    UTIL,
)
from vgpuctl.agent.wire.measures import GPU

# Of what NVML tells, in one unit of ours.
PERCENT, MILLI = 100, 1000
_HERTZ_PER_MHZ = 1_000_000
# NVML's header: the utilization reads high while the memory is cleared.
SCRUBBING_S = 60.0
_UTILIZATIONS = "utilization_ratio memory_activity_ratio"


def read(nvml: Nvml, device: Any, *, loaded_since_s: Optional[float] = None) -> Recorder:
    """Return everything that NVML tells of a GPU. loaded_since_s: seconds since the driver's start, if known."""
    found = Recorder(GPU, nvml.library)
    _read_engines(found, nvml.library, device, _scrubbing(nvml, device, loaded_since_s))
    _read_power(found, nvml.library, device)
    _read_temperatures(found, nvml.library, device)
    _read_clocks(found, nvml.library, device)
    _read_memory_errors(found, nvml.library, device)
    nvlink.read(found, nvml.library, device)
    scheduler.read(found, nvml.library, device)
    return found


def complete(found: Recorder, instances: Instances) -> None:
    """Record what the GPU instances add: in MIG mode the utilization of the GPU is that of its parts."""
    used = instances.utilization()
    if used is not None:
        found.replace_missing("utilization_ratio", used)
    measured = found.measured()
    if used is not None:
        support = GPM
    else:
        is_told = measured.get("utilization_ratio") is not None or not instances.is_on
        support = UTIL if is_told else NO_TELEMETRY
    found.add_states("telemetry_support", SUPPORT, support)


def _scrubbing(nvml: Nvml, device: Any, loaded_since_s: Optional[float]) -> Optional[str]:
    """Return why the utilization means nothing yet: a driver with ECC clears the memory first (reference 2.4)."""
    if loaded_since_s is None or not 0 <= loaded_since_s < SCRUBBING_S:
        return None
    modes = nvml.if_possible(lambda: nvml.library.nvmlDeviceGetEccMode(device))
    if not modes or not modes[0]:
        return None
    return f"the driver was loaded {loaded_since_s:.0f} s ago and is clearing the memory, because ECC is on"


def _read_engines(found: Recorder, library: Any, device: Any, scrubbing: Optional[str]) -> None:
    def rates() -> None:
        answer = library.nvmlDeviceGetUtilizationRates(device)
        found.add("utilization_ratio", answer.gpu / PERCENT)
        found.add("memory_activity_ratio", answer.memory / PERCENT)

    def memory() -> None:
        answer = library.nvmlDeviceGetMemoryInfo(device)
        found.add("framebuffer_total_bytes", answer.total)
        found.add("framebuffer_used_bytes", answer.used)

    if scrubbing is None:
        found.ask(_UTILIZATIONS, rates)
    else:
        found.unread(_UTILIZATIONS, scrubbing)
    found.ask("framebuffer_total_bytes framebuffer_used_bytes", memory)
    for name, function in (
        ("encoder", "nvmlDeviceGetEncoderUtilization"),
        ("decoder", "nvmlDeviceGetDecoderUtilization"),
        ("jpeg", "nvmlDeviceGetJpgUtilization"),
        ("ofa", "nvmlDeviceGetOfaUtilization"),
    ):
        found.ask(
            f"{name}_utilization_ratio",
            lambda: getattr(library, function)(device)[0],  # noqa: B023 - called at once
            per=PERCENT,
        )


def _read_power(found: Recorder, library: Any, device: Any) -> None:
    found.ask("power_watts", lambda: library.nvmlDeviceGetPowerUsage(device), per=MILLI)
    found.ask("power_limit_watts", lambda: library.nvmlDeviceGetEnforcedPowerLimit(device), per=MILLI)
    found.ask("energy_joules", lambda: library.nvmlDeviceGetTotalEnergyConsumption(device), per=MILLI)


def _read_temperatures(found: Recorder, library: Any, device: Any) -> None:

    def threshold() -> float:
        try:
            return float(library.nvmlDeviceGetTemperatureThreshold(device, library.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN))
        except library.NVMLError as error:
            # nvml.h announces that drivers for Ada and later lose it; they tell the distance to it instead.
            if error.value != library.NVML_ERROR_NOT_SUPPORTED:
                raise
            now = library.nvmlDeviceGetTemperature(device, library.NVML_TEMPERATURE_GPU)
            return float(now + library.nvmlDeviceGetMarginTemperature(device))

    found.ask("temperature_celsius", lambda: library.nvmlDeviceGetTemperature(device, library.NVML_TEMPERATURE_GPU))
    found.ask("memory_temperature_celsius", lambda: read_field(library, device, library.NVML_FI_DEV_MEMORY_TEMP))
    found.ask("slowdown_temperature_celsius", threshold)


def _read_clocks(found: Recorder, library: Any, device: Any) -> None:
    def events() -> None:
        try:
            bits = int(library.nvmlDeviceGetCurrentClocksEventReasons(device))
        except library.NVMLError as error:
            if error.value != library.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
            # The name of older drivers.
            bits = int(library.nvmlDeviceGetCurrentClocksThrottleReasons(device))
        for reason, bit in CLOCK_EVENTS.items():
            found.add("clock_event", float(bool(bits & bit)), reason)

    def clock(kind: int) -> int:
        return int(library.nvmlDeviceGetClockInfo(device, kind)) * _HERTZ_PER_MHZ

    found.ask("sm_clock_hertz", lambda: clock(library.NVML_CLOCK_SM))
    found.ask("memory_clock_hertz", lambda: clock(library.NVML_CLOCK_MEM))
    found.ask("clock_event", events)


def _read_memory_errors(found: Recorder, library: Any, device: Any) -> None:
    def errors() -> None:
        counter = library.NVML_VOLATILE_ECC
        corrected = library.nvmlDeviceGetTotalEccErrors(device, library.NVML_MEMORY_ERROR_TYPE_CORRECTED, counter)
        uncorrected = library.nvmlDeviceGetTotalEccErrors(device, library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, counter)
        found.add("ecc_errors", corrected, "corrected")
        found.add("ecc_errors", uncorrected, "uncorrected")

    def rows() -> None:
        corrected, uncorrected, is_pending, has_failed = library.nvmlDeviceGetRemappedRows(device)
        found.add("remapped_rows", corrected, "corrected")
        found.add("remapped_rows", uncorrected, "uncorrected")
        found.add("row_remap_pending", float(bool(is_pending)))
        found.add("row_remap_failed", float(bool(has_failed)))

    def sram() -> float:
        status = library.c_nvmlEccSramErrorStatus_v1_t()
        # pynvml hands it over as it is, and the library wants its address.
        library.nvmlDeviceGetSramEccErrorStatus(device, ctypes.byref(status))
        return float(bool(status.bThresholdExceeded))

    def repairs() -> None:
        channel, tpc = library.nvmlDeviceGetRepairStatus(device)
        found.add("repair_pending", float(bool(channel)), "channel")
        found.add("repair_pending", float(bool(tpc)), "tpc")

    def action() -> None:
        number = int(read_field(library, device, library.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION))
        now = RECOVERY_ACTIONS[number] if number < len(RECOVERY_ACTIONS) else UNKNOWN
        found.add_states("recovery_action", (*RECOVERY_ACTIONS, UNKNOWN), now)

    found.ask("ecc_errors", errors)
    found.ask("remapped_rows row_remap_pending row_remap_failed", rows)
    found.ask("sram_threshold_exceeded", sram)
    found.ask("repair_pending", repairs)
    found.ask("pcie_replays", lambda: library.nvmlDeviceGetPcieReplayCounter(device))
    found.ask("recovery_action", action)
