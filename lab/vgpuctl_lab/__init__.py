# SPDX-License-Identifier: Apache-2.0
"""Emulated GPU hosts on this machine: a real kernel, real sshd and libvirtd, simulated cards (docs/lab.md)."""

from vgpuctl_lab import faults, playing, scenarios, simulated
from vgpuctl_lab.cards import DEFAULT_HOST, Card, CardInterface, HostShape, parse_host
from vgpuctl_lab.folder import LabFolder, default_folder
from vgpuctl_lab.lifecycle import console_log, down, reboot, run, shell_command, status, up
from vgpuctl_lab.records import LabHost

__version__ = "0.2.0"

__all__ = [
    "DEFAULT_HOST",
    "Card",
    "CardInterface",
    "HostShape",
    "LabFolder",
    "LabHost",
    "console_log",
    "default_folder",
    "down",
    "faults",
    "parse_host",
    "playing",
    "reboot",
    "run",
    "scenarios",
    "shell_command",
    "simulated",
    "status",
    "up",
]
