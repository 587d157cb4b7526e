# SPDX-License-Identifier: Apache-2.0
"""The vGPU scheduler as it was last set, where NVML does not tell all of it (reference 3.4).

NVML tells the time slice of what is scheduled now, so 0 while no VM runs, and only then can it be set. The note lies in
/run, which goes with the boot like the scheduler.
"""

import json
from typing import Dict, Optional

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.decode import WireError, from_json, to_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import SchedulerFacts

PATH = "/run/vgpuctl/schedulers.json"


def read(host: Host) -> Dict[str, SchedulerFacts]:
    """Return {address: the scheduler that was set last}; a note that cannot be read is none."""
    try:
        found = json.loads(host.read_optional(PATH) or "{}")
        return {str(address): from_json(SchedulerFacts, one) for address, one in found.items()}
    except (Problem, WireError, ValueError, AttributeError):
        return {}


def write(host: Host, address: str, scheduler: SchedulerFacts) -> None:
    """Note what was set. Raises Problem."""
    noted = {**read(host), address: scheduler}
    host.put_file(PATH, json.dumps({key: to_json(one) for key, one in sorted(noted.items())}).encode(), 0o644)


def completed(told: Optional[SchedulerFacts], noted: Optional[SchedulerFacts]) -> Optional[SchedulerFacts]:
    """Return what NVML tells, with the noted time slice where it tells none or resolves the default to a number."""
    if told is None or noted is None or told.policy != noted.policy:
        return told
    return noted if None in (told.time_slice_us, noted.time_slice_us) else told
