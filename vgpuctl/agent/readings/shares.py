# SPDX-License-Identifier: Apache-2.0
"""vGPUs with their promise: what each one uses of it, and what its neighbours cost it."""

from typing import Dict, List, Mapping, Optional, Sequence

from vgpuctl.agent.readings.instances import Instances
from vgpuctl.agent.readings.promise import EQUAL_SHARE, instance_ratio, promised_ratio, share_utilization, steal_ratios
from vgpuctl.agent.readings.vgpu import ENGINES, RunningVgpu
from vgpuctl.agent.wire.measure_states import GPM, NO_TELEMETRY, SUPPORT
from vgpuctl.agent.wire.readings import VgpuReadings

_COMPUTED = "promised_ratio share_utilization_ratio steal_ratio"


def complete(
    address: str,
    vgpus: Sequence[RunningVgpu],
    *,
    policy: Optional[str],
    instances: Instances,
    devices: Mapping[int, str],
) -> List[VgpuReadings]:
    """Return the readings of all running vGPUs of one GPU.

    policy: of the scheduler. instances: of the GPU, already read. devices: by NVML's number.
    """
    timed = [one for one in vgpus if one.instance is None]
    for one in vgpus:
        if one.instance is not None:
            _record_instance(one, instances)
    promises: Dict[int, Optional[float]] = {}
    for one in vgpus:
        if one.instance is None:
            promises[one.number] = promised_ratio(policy, max_instances=one.max_instances, running=len(timed))
        else:
            # Equal share divides the instance between its running vGPUs.
            is_equal = instances.policies.get(one.instance) == EQUAL_SHARE
            shared_by = sum(other.instance == one.instance for other in vgpus) if is_equal else one.per_instance
            promises[one.number] = instance_ratio(
                instances.slices.get(one.instance, 0), instances.all_slices, shared_by or 0
            )
    used = {one.number: one.found.measured().get("utilization_ratio") for one in vgpus}
    steals = dict(
        zip((one.number for one in timed), steal_ratios([(used[one.number], promises[one.number]) for one in timed]))
    )
    for one in vgpus:
        promised = promises[one.number]
        if promised is None:
            known = "the driver does not tell the scheduler's policy or the profile's maximum"
            one.found.unread(_COMPUTED, known)
            continue
        one.found.add("promised_ratio", promised)
        share = share_utilization(used[one.number], promised)
        steal = steals.get(one.number)
        if share is None:
            one.found.unread("share_utilization_ratio steal_ratio", "the utilization is missing")
            continue
        one.found.add("share_utilization_ratio", share)
        if one.instance is not None:
            one.found.lacks("steal_ratio", "a GPU instance is not shared with other GPU instances")
        elif steal is not None:
            one.found.add("steal_ratio", steal)
    return [
        VgpuReadings(
            gpu=address,
            device=one.device or devices.get(one.number),
            vm_uuid=one.vm_uuid,
            profile=one.profile,
            instance=one.instance,
            measured=one.found.measured(),
        )
        for one in vgpus
    ]


def _record_instance(vgpu: RunningVgpu, instances: Instances) -> None:
    """Record the utilization of a MIG-backed vGPU: GPM has it only of one that has the whole GPU instance."""
    assert vgpu.instance is not None
    if vgpu.per_instance != 1:
        vgpu.found.add_states("telemetry_support", SUPPORT, NO_TELEMETRY)
        vgpu.found.lacks(ENGINES, "neither NVML nor GPM tells it of a vGPU that shares its GPU instance")
        return
    vgpu.found.add_states("telemetry_support", SUPPORT, GPM if instances.has_gpm else NO_TELEMETRY)
    used = instances.utilizations.get(vgpu.instance)
    part = instance_ratio(instances.slices.get(vgpu.instance, 0), instances.all_slices)
    if used is not None and part is not None:
        vgpu.found.add("utilization_ratio", used * part)
    elif instances.why_no_gpm is not None:
        vgpu.found.lacks("utilization_ratio", instances.why_no_gpm)
    else:
        vgpu.found.unread("utilization_ratio", "GPM did not tell it of the GPU instance")
    vgpu.found.lacks(ENGINES, "NVML does not tell it of vGPUs in MIG mode")
