# SPDX-License-Identifier: Apache-2.0
"""Every GPU that NVML shows, with what it knows of each."""

from typing import Any, Dict, List, Optional, Tuple

from vgpuctl.agent.facts import nvml_mig, nvml_migration, nvml_tuning, nvml_vgpu, topology
from vgpuctl.agent.facts.nvml_mig import NvmlMig
from vgpuctl.agent.facts.nvml_vgpu import NvmlType
from vgpuctl.agent.facts.topology import NvmlTopology
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import MIB, Nvml, text
from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.agent.wire.facts import SchedulerFacts
from vgpuctl.agent.wire.migration import GpuMigration
from vgpuctl.agent.wire.tuning import GPU_CLOCKS, MEMORY_CLOCKS, GpuTuning
from vgpuctl.agent.wire.values import dataclass, replace
from vgpuctl.agent.wire.vgpu_abilities import VgpuAbilities


@dataclass(frozen=True)
class NvmlGpu:
    """One GPU. mig: None when it has no MIG. heterogeneous, scheduler: None when the driver does not tell.

    problems: of parts that did not answer and without which nothing can be placed. notes: of the other parts.
    """

    name: Optional[str]
    uuid: Optional[str]
    memory_mib: Optional[int]
    types: Tuple[NvmlType, ...]
    mig: Optional[NvmlMig] = None
    heterogeneous: Optional[bool] = None
    scheduler: Optional[SchedulerFacts] = None
    utilisation_percent: Optional[int] = None
    topology: NvmlTopology = NvmlTopology()
    problems: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    migration: Optional[GpuMigration] = None
    abilities: Optional[VgpuAbilities] = None
    tuning: Optional[GpuTuning] = None
    sm_clock_mhz: Optional[int] = None
    memory_clock_mhz: Optional[int] = None


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


def read_uuid(host: Host, address: str) -> Optional[str]:
    """Return the UUID of one GPU as NVML tells it, None where NVML cannot be used or does not tell it."""
    nvml, _problem = Nvml.open(host)
    if nvml is None:
        return None
    with nvml:
        library = nvml.library
        return text(nvml.if_possible(lambda: library.nvmlDeviceGetUUID(library.nvmlDeviceGetHandleByPciBusId(address))))


def _read_gpu(nvml: Nvml, device: Any) -> NvmlGpu:
    library = nvml.library
    problems: List[str] = []
    notes: List[str] = []

    def ask(what: str, function: Any) -> Any:
        return nvml.part(notes.append, what, lambda: nvml.optional(function, device), None)

    memory = ask("its memory", library.nvmlDeviceGetMemoryInfo)
    heterogeneous = nvml.part(
        problems.append, "its size mode", lambda: nvml_vgpu.read_heterogeneous(nvml, device), None
    )
    gpu = NvmlGpu(
        text(ask("its name", library.nvmlDeviceGetName)),
        text(ask("its UUID", library.nvmlDeviceGetUUID)),
        None if memory is None else int(memory.total) // MIB,
        nvml_vgpu.read_types(nvml, device, notes.append, with_placements=bool(heterogeneous)),
        nvml.part(problems.append, "its MIG mode and profiles", lambda: nvml_mig.read(nvml, device), None),
        heterogeneous,
        nvml.part(notes.append, "its vGPU scheduler", lambda: nvml_vgpu.read_scheduler(nvml, device), None),
        _read_utilisation(nvml, device),
        topology.read_by_nvml(nvml, device, notes.append),
    )
    migration = nvml_migration.read(nvml, device) if gpu.types else None
    abilities = nvml_vgpu.read_abilities(nvml, device, gpu.types)
    return replace(
        gpu,
        problems=tuple(problems),
        notes=tuple(notes),
        migration=migration,
        abilities=abilities,
        tuning=nvml_tuning.read(nvml, device),
        sm_clock_mhz=nvml_tuning.read_clock(nvml, device, GPU_CLOCKS),
        memory_clock_mhz=nvml_tuning.read_clock(nvml, device, MEMORY_CLOCKS),
    )


def _read_utilisation(nvml: Nvml, device: Any) -> Optional[int]:
    """A GPU that does not tell it (in MIG mode none does) is as usable as any other."""
    rates = nvml.if_possible(lambda: nvml.library.nvmlDeviceGetUtilizationRates(device))
    return None if rates is None else int(rates.gpu)
