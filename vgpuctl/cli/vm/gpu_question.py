# SPDX-License-Identifier: Apache-2.0
"""The question of create-vm for the GPU of a VM, on a terminal."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vgpuctl.cli.options.vm_options import NO_GPU
from vgpuctl.cli.shown.output import choose, say

if TYPE_CHECKING:
    from vgpuctl.model.vm import VmRequest
    from vgpuctl.usecases.running.services import Services


def ask_for_gpu(opened: "Services", requests: "Sequence[VmRequest]") -> "list[VmRequest]":
    """Ask which GPU share the VMs get, if somebody sits at a terminal and there is a choice.

    requests: one VM, or the same one several times. VMs that exist are not asked about.
    """
    from vgpuctl.catalog import read_gpu_request
    from vgpuctl.usecases.vm.fitting_profiles import fitting_profiles

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return list(requests)
    profiles = fitting_profiles(opened, requests[0])
    if not profiles:
        return list(requests)
    say(f"GPU shares that fit: {', '.join(profiles)}")
    chosen = choose("GPU of the VM", [NO_GPU, *profiles], default=NO_GPU)
    gpus = () if chosen == NO_GPU else (read_gpu_request(chosen),)
    return [replace(one, gpus=gpus) for one in requests]
