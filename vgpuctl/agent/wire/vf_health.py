# SPDX-License-Identifier: Apache-2.0
"""Health of SR-IOV on one of NVIDIA's cards: a count of VFs proves nothing. Pure; Python 3.9, standard library only.

A VF can carry a vGPU when it is bound to `nvidia` and offers types. The agent asks about sysfs, planner, scheduler and
doctor ask about facts; all get their answer here.
"""

from collections import Counter
from enum import Enum
from typing import Iterable, Optional, Tuple

from vgpuctl.agent.wire.facts import Gpu, VirtualFunction

NVIDIA_VENDOR = "10de"
DRIVER = "nvidia"
# sriov-manage borrows the PF for this driver; a function found on it was left there.
PF_STUB = "pci-pf-stub"


class VfState(str, Enum):
    """State of one VF. UNREGISTERED: it is on `nvidia`, which offers no types on it."""

    HEALTHY = "healthy"
    NO_DRIVER = "no-driver"
    ON_STUB = "on-stub"
    UNREGISTERED = "unregistered"
    OTHER_DRIVER = "other-driver"


_SAYINGS = {
    VfState.NO_DRIVER: "without a driver",
    VfState.ON_STUB: f"on {PF_STUB}",
    VfState.UNREGISTERED: f"on {DRIVER} without vGPU types",
    VfState.OTHER_DRIVER: "on another driver",
}


def state_of(driver: Optional[str], offers_types: Optional[bool]) -> VfState:
    """Return the state of one VF of NVIDIA's. offers_types: None if it was not read, which counts as healthy."""
    if driver is None:
        return VfState.NO_DRIVER
    if driver == PF_STUB:
        return VfState.ON_STUB
    if driver != DRIVER:
        return VfState.OTHER_DRIVER
    return VfState.UNREGISTERED if offers_types is False else VfState.HEALTHY


def is_usable(function: VirtualFunction) -> bool:
    """Tell whether a VF of NVIDIA's can carry a vGPU; whether one is on it already is another question."""
    return function.problem is None and state_of(function.driver, function.offers_types) is VfState.HEALTHY


def sick_states(gpu: Gpu) -> Tuple[VfState, ...]:
    """Return the state of every VF of a card that can carry no vGPU now, by VF; nothing for other vendors' cards."""
    if gpu.vendor_id != NVIDIA_VENDOR:
        return ()
    states = (state_of(one.driver, one.offers_types) for one in gpu.vfs if one.problem is None)
    return tuple(state for state in states if state is not VfState.HEALTHY)


def describe(states: Iterable[VfState], total: int) -> str:
    """Say it in words: `3 of 32 VFs are without a driver, 1 of 32 on pci-pf-stub`."""
    counted = Counter(states)
    parts = [f"{counted[state]} of {total} VFs {words}" for state, words in _SAYINGS.items() if counted[state]]
    return ", ".join(parts)
