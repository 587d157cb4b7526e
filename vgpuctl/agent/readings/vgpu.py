# SPDX-License-Identifier: Apache-2.0
"""Readings of the vGPUs of running VMs through NVML (telemetry reference 2.1, 2.2)."""

from typing import Any, Dict, List, Optional

from vgpuctl.agent.nvml import Nvml, text
from vgpuctl.agent.readings.gpu import PERCENT
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.wire.measures import VGPU
from vgpuctl.agent.wire.readings import VgpuReadings

_NO_INSTANCE = 0xFFFFFFFF


def read(nvml: Nvml, device: Any, address: str, unread: List[str]) -> List[VgpuReadings]:
    """Return the readings of every running vGPU of a GPU; one that ends meanwhile is left out."""
    library = nvml.library
    numbers = nvml.part(
        lambda problem: unread.append(f"{address}: {problem}"),
        "its running vGPUs",
        lambda: nvml.optional(library.nvmlDeviceGetActiveVgpus, device),
        None,
    )
    if not numbers:
        return []
    found = []
    utilization = _read_utilization(nvml, device)
    for number in numbers:
        one = nvml.if_possible(lambda: _read_one(nvml, device, address, number, utilization))  # noqa: B023 - called at once
        if one is not None:
            found.append(one)
    return found


def _read_one(nvml: Nvml, device: Any, address: str, number: Any, utilization: Dict[int, Any]) -> VgpuReadings:
    library = nvml.library
    measured = Recorder(VGPU, library)
    type_id = library.nvmlVgpuInstanceGetType(number)
    full_name = text(library.nvmlVgpuTypeGetName(type_id)) or str(type_id)
    instance = nvml.optional(library.nvmlVgpuInstanceGetGpuInstanceId, number)
    instance = None if instance in (None, _NO_INSTANCE) else int(instance)
    vm_uuid, _kind = library.nvmlVgpuInstanceGetVmID(number)
    sample = utilization.get(int(getattr(number, "value", number)))
    if sample is not None:
        measured.add("utilization_ratio", sample.smUtil.uiVal * PERCENT)
    elif instance is not None:
        measured.lacks("utilization_ratio", "the driver tells no utilisation of vGPUs in MIG instances")
    else:
        measured.unread("utilization_ratio", "the driver has no sample of this vGPU yet")
    measured.ask("framebuffer_size_bytes", lambda: library.nvmlVgpuTypeGetFramebufferSize(type_id))
    measured.ask("framebuffer_used_bytes", lambda: library.nvmlVgpuInstanceGetFbUsage(number))
    return VgpuReadings(
        gpu=address,
        device=text(nvml.optional(library.nvmlVgpuInstanceGetMdevUUID, number)),
        vm_uuid=text(vm_uuid) or None,
        profile=full_name.rpartition(" ")[2],
        instance=instance,
        measured=measured.measured(),
    )


def _read_utilization(nvml: Nvml, device: Any) -> Dict[int, Any]:
    """Return the newest sample by vGPU instance."""
    samples: Optional[Any] = nvml.if_possible(lambda: nvml.library.nvmlDeviceGetVgpuUtilization(device, 0))
    return {int(one.vgpuInstance): one for one in samples or ()}
