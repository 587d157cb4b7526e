# SPDX-License-Identifier: Apache-2.0
"""MIG instances as the driver's capabilities show them, without NVML (NVIDIA MIG User Guide, "Device Nodes").

`/proc/driver/nvidia/capabilities/gpuMINOR/mig/giID` is there for each GPU instance.
"""

import re
from typing import List

from vgpuctl.agent.facts import nvidia
from vgpuctl.agent.host import Host

_INSTANCE = re.compile(r"gi[0-9]+")


def read_instances(host: Host, address: str) -> List[str]:
    """Return the names (`gi7`) of a card's GPU instances; none where the driver shows no capabilities of it."""
    minor = nvidia.read_minor(host, address)
    names = host.listdir_optional(f"{nvidia.PROC}/capabilities/gpu{minor}/mig") if minor is not None else None
    return [name for name in names or [] if _INSTANCE.fullmatch(name)]
