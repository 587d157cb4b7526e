# SPDX-License-Identifier: Apache-2.0
"""Every GPU that NVML shows, with what it knows of each."""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from vgpuctl.agent.facts import nvml_mig, nvml_vgpu
from vgpuctl.agent.facts.nvml_mig import NvmlMig
from vgpuctl.agent.facts.nvml_vgpu import NvmlType
from vgpuctl.agent.nvml import Nvml, normalise_bus_id, text
from vgpuctl.agent.wire.facts import SchedulerFacts

_MIB = 1 << 20


@dataclass(frozen=True)
class NvmlGpu:
    """One GPU. mig: None when it has no MIG. heterogeneous, scheduler: None when the driver does not tell."""

    name: Optional[str]
    uuid: Optional[str]
    memory_mib: Optional[int]
    types: Tuple[NvmlType, ...]
    mig: Optional[NvmlMig] = None
    heterogeneous: Optional[bool] = None
    scheduler: Optional[SchedulerFacts] = None
    utilisation_percent: Optional[int] = None


def read(nvml: Nvml) -> Tuple[Dict[str, NvmlGpu], List[str]]:
    """Return {address: GPU} of the GPUs that answer, and a sentence for each that does not."""
    library = nvml.library
    found: Dict[str, NvmlGpu] = {}
    problems: List[str] = []
    for index in range(nvml.if_possible(library.nvmlDeviceGetCount) or 0):
        try:
            device = library.nvmlDeviceGetHandleByIndex(index)
            bus_id = library.nvmlDeviceGetPciInfo(device).busId
            found[normalise_bus_id(text(bus_id) or "")] = _read_gpu(nvml, device)
        except library.NVMLError as error:
            problems.append(f"NVML: GPU {index} does not answer: {error}")
    return found, problems


def _read_gpu(nvml: Nvml, device: Any) -> NvmlGpu:
    library = nvml.library
    memory = nvml.optional(library.nvmlDeviceGetMemoryInfo, device)
    heterogeneous = nvml_vgpu.read_heterogeneous(nvml, device)
    return NvmlGpu(
        text(nvml.optional(library.nvmlDeviceGetName, device)),
        text(nvml.optional(library.nvmlDeviceGetUUID, device)),
        None if memory is None else int(memory.total) // _MIB,
        nvml_vgpu.read_types(nvml, device, with_placements=bool(heterogeneous)),
        nvml_mig.read(nvml, device),
        heterogeneous,
        nvml_vgpu.read_scheduler(nvml, device),
        _read_utilisation(nvml, device),
    )


def _read_utilisation(nvml: Nvml, device: Any) -> Optional[int]:
    """A GPU that does not tell it (in MIG mode none does) is as usable as any other."""
    rates = nvml.if_possible(lambda: nvml.library.nvmlDeviceGetUtilizationRates(device))
    return None if rates is None else int(rates.gpu)
