# SPDX-License-Identifier: Apache-2.0
"""The promised share of a vGPU, and what its neighbours cost it. Pure: the exporter and the host's textfile share it.

Ratios are parts of the compute time of the whole GPU.
"""

from typing import List, Optional, Sequence, Tuple

BEST_EFFORT, EQUAL_SHARE, FIXED_SHARE = "best-effort", "equal-share", "fixed-share"
# NVML tells whole per cent, rounded down for each vGPU: a GPU without idle time rarely adds up to 1.
SATURATED_RATIO = 0.95
ACTIVE_RATIO = 0.01


def promised_ratio(policy: Optional[str], *, max_instances: Optional[int], running: int) -> Optional[float]:
    """Return what a time-sliced vGPU is promised, None if nobody knows.

    policy: of the scheduler. max_instances: of the profile on this GPU. running: vGPUs of running VMs on the GPU, this
    one included. Fixed share gives each vGPU the part of its profile, used or not. Best effort promises the same part,
    and lends idle time. Equal share divides the GPU between the running vGPUs.
    """
    if policy == EQUAL_SHARE and running > 0:
        return 1 / running
    if policy in (BEST_EFFORT, FIXED_SHARE) and max_instances:
        return 1 / max_instances
    return None


def instance_ratio(slices: int, all_slices: int, per_instance: int = 1) -> Optional[float]:
    """Return what a MIG-backed vGPU is promised: the compute slices of its instance, shared by equal vGPUs in it."""
    return slices / all_slices / per_instance if slices and all_slices and per_instance else None


def share_utilization(used: Optional[float], promised: Optional[float]) -> Optional[float]:
    """Return the use of a promise: 1 uses exactly what was promised."""
    return None if used is None or not promised else used / promised


def steal_ratios(shares: Sequence[Tuple[Optional[float], Optional[float]]]) -> List[Optional[float]]:
    """Return what the neighbours cost each vGPU of one GPU, None without its use or promise.

    shares: (used, promised) of every running vGPU of the GPU. A vGPU loses time if the GPU has none left, the vGPU is
    active and below its promise, and neighbours are above theirs: the smaller of what it lacks and what they have too
    much. That is an upper bound, because nobody outside the guest sees how much the guest wanted.
    """
    is_saturated = sum(used for used, _ in shares if used is not None) >= SATURATED_RATIO
    excesses = [0.0 if used is None or promised is None else max(used - promised, 0.0) for used, promised in shares]
    excess = sum(excesses)
    found: List[Optional[float]] = []
    for used, promised in shares:
        if used is None or promised is None:
            found.append(None)
        elif is_saturated and ACTIVE_RATIO <= used < promised:
            found.append(min(promised - used, excess))
        else:
            found.append(0.0)
    return found
