# SPDX-License-Identifier: Apache-2.0
"""vGPUs with their promise: what each one uses of it, and what its neighbours cost it."""

from typing import Dict, List, Mapping, Optional, Sequence

from vgpuctl.agent.readings.promise import instance_ratio, promised_ratio, share_utilization, steal_ratios
from vgpuctl.agent.readings.vgpu import RunningVgpu
from vgpuctl.agent.wire.readings import VgpuReadings

_COMPUTED = "promised_ratio share_utilization_ratio steal_ratio"


def complete(
    address: str,
    vgpus: Sequence[RunningVgpu],
    *,
    policy: Optional[str],
    slices: Mapping[int, int],
    all_slices: int,
    devices: Mapping[int, Optional[str]],
) -> List[VgpuReadings]:
    """Return the readings of all running vGPUs of one GPU.

    policy: of the scheduler. slices: compute slices by GPU instance. all_slices: of the GPU. devices: by NVML's number.
    """
    timed = [one for one in vgpus if one.instance is None]
    promises: Dict[int, Optional[float]] = {}
    for one in vgpus:
        if one.instance is None:
            promises[one.number] = promised_ratio(policy, max_instances=one.max_instances, running=len(timed))
        else:
            promises[one.number] = instance_ratio(slices.get(one.instance, 0), all_slices, one.per_instance or 0)
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
