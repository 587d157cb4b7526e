# SPDX-License-Identifier: Apache-2.0
"""The states of measures with one value for each state. Python 3.9, standard library only.

Numbers and bits are those of nvml.h and libvirt's headers; the names are the measure's labels.
"""

from typing import Dict, Tuple

from vgpuctl.agent.wire.measures import GPU, INSTANCE, VGPU, VM

UNKNOWN = "unknown"
# Sources of a utilization: NVML's rates or samples, GPM, or none.
UTIL, GPM, NO_TELEMETRY = "util", "gpm", "none"
SUPPORT = (UTIL, GPM, NO_TELEMETRY)
# Bits of nvmlDeviceGetCurrentClocksEventReasons.
CLOCK_EVENTS = {
    "gpu_idle": 0x1,
    "applications_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
# Field 230 by number; a later driver may have more.
RECOVERY_ACTIONS = (
    "none",
    "gpu-reset",
    "node-reboot",
    "drain-p2p",
    "drain-and-reset",
    "recover-imex-domain",
    "bus-reset",
    "system-reboot",
)
# NVML_VGPU_SCHEDULER_POLICY_*; 0 is a policy that this NVML does not know.
POLICIES = {"best-effort": 1, "equal-share": 2, "fixed-share": 3}
# NVML_VGPU_SCHEDULER_ARR_* by number.
ARR_MODES = ("default", "off", "on")
# NVML_GRID_LICENSE_STATE_* by number.
LICENSE_STATES = (
    UNKNOWN,
    "uninitialized",
    "unlicensed-unrestricted",
    "unlicensed-restricted",
    "unlicensed",
    "licensed",
)
# virDomainState by number.
DOMAIN_STATES = ("no-state", "running", "blocked", "paused", "shutting-down", "shut-off", "crashed", "suspended")

STATES: Dict[Tuple[str, str], Tuple[str, ...]] = {
    (GPU, "telemetry_support"): SUPPORT,
    (GPU, "clock_event"): tuple(CLOCK_EVENTS),
    (GPU, "scheduler_policy"): (*POLICIES, UNKNOWN),
    (GPU, "scheduler_arr"): (*ARR_MODES, UNKNOWN),
    (GPU, "recovery_action"): (*RECOVERY_ACTIONS, UNKNOWN),
    (INSTANCE, "scheduler_policy"): (*POLICIES, UNKNOWN),
    (INSTANCE, "scheduler_arr"): (*ARR_MODES, UNKNOWN),
    (VGPU, "telemetry_support"): SUPPORT,
    (VGPU, "license_state"): LICENSE_STATES,
    (VM, "state"): DOMAIN_STATES,
}
"""All states of each such measure, by kind of object and measure."""
