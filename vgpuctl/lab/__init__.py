# SPDX-License-Identifier: Apache-2.0
"""Emulated GPU hosts on this machine: a real kernel, real sshd and libvirtd, simulated cards (docs/lab.md)."""

from vgpuctl.lab import faults, simulated
from vgpuctl.lab.cards import DEFAULT_HOST, Card, CardInterface, HostShape, parse_host
from vgpuctl.lab.folder import LabFolder, default_folder
from vgpuctl.lab.lifecycle import console_log, down, reboot, run, shell_command, status, up
from vgpuctl.lab.records import LabHost

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
    "reboot",
    "run",
    "shell_command",
    "simulated",
    "status",
    "up",
]
