# SPDX-License-Identifier: Apache-2.0
"""Many hosts at once on this machine, for fan-out and scheduling: real sshd, agent and libvirt, simulated cards."""

from vgpuctl_lab.simulated.driver_update import update_driver
from vgpuctl_lab.simulated.fleet import (
    MOST_HOSTS,
    SimulatedHostStatus,
    down,
    heed_faults,
    kernel_log,
    names,
    reboot,
    shell_command,
    status,
    up,
)
from vgpuctl_lab.simulated.mix import DEFAULT_MIX
from vgpuctl_lab.simulated.replay import replay

__all__ = [
    "DEFAULT_MIX",
    "MOST_HOSTS",
    "SimulatedHostStatus",
    "down",
    "heed_faults",
    "kernel_log",
    "names",
    "reboot",
    "replay",
    "shell_command",
    "status",
    "up",
    "update_driver",
]
