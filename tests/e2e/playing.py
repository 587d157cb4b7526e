# SPDX-License-Identifier: Apache-2.0
"""Curves that a simulated host plays from now on (docs/lab.md)."""

import time

import vgpuctl_lab as lab
from tests.lab.simulated_fixtures import machine
from vgpuctl_lab.simulated.machine.curves import CURVES


def play(folder: lab.LabFolder, host: str, *lines: str) -> None:
    """Replace the curves of a host: `vgpu:0000:41:00.4 utilization_ratio 0 0:0.5`."""
    path = machine(folder, host).root / CURVES.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([f"start {time.time()}", *lines]) + "\n")
