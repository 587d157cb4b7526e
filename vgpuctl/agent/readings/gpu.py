# SPDX-License-Identifier: Apache-2.0
"""Readings of one GPU through NVML."""

from typing import Any

from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.wire.measures import GPU
from vgpuctl.agent.wire.readings import Measured

PERCENT, MILLI = 0.01, 0.001


def read(nvml: Nvml, device: Any) -> Measured:
    """Return everything that NVML tells of a GPU."""
    library = nvml.library
    found = Recorder(GPU, library)

    def rates() -> None:
        answer = library.nvmlDeviceGetUtilizationRates(device)
        found.add("utilization_ratio", answer.gpu * PERCENT)
        found.add("memory_activity_ratio", answer.memory * PERCENT)

    def memory() -> None:
        answer = library.nvmlDeviceGetMemoryInfo(device)
        found.add("framebuffer_total_bytes", answer.total)
        found.add("framebuffer_used_bytes", answer.used)

    found.ask("utilization_ratio memory_activity_ratio", rates)
    found.ask("framebuffer_total_bytes framebuffer_used_bytes", memory)
    found.ask("power_watts", lambda: library.nvmlDeviceGetPowerUsage(device), scale=MILLI)
    found.ask("power_limit_watts", lambda: library.nvmlDeviceGetPowerManagementLimit(device), scale=MILLI)
    found.ask("temperature_celsius", lambda: library.nvmlDeviceGetTemperature(device, library.NVML_TEMPERATURE_GPU))
    return found.measured()
