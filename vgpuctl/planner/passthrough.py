# SPDX-License-Identifier: Apache-2.0
"""Whole cards: libvirt binds the functions to vfio-pci (`managed='yes'`), so building takes no step of ours."""

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.steps import BindDriver
from vgpuctl.model.lease import Share
from vgpuctl.planner.first_drivers import VFIO_PCI, bind_back, release_functions
from vgpuctl.planner.result import Plan
from vgpuctl.sharing.whole_card import find_obstacle


def check(wanted: Share, gpu: Gpu, facts: HostFacts) -> str | None:
    """Why the card can no longer be given away as a whole."""
    obstacle = find_obstacle(gpu, facts)
    if obstacle is not None:
        return f"GPU {gpu.address}: {obstacle.reason}"
    companions = tuple(companion.address for companion in gpu.companions)
    if set(companions) != set(wanted.companions):
        return f"GPU {gpu.address} has the companions {', '.join(companions) or 'none'} now"
    return None


def build(wanted: Share, gpu: Gpu) -> Plan:
    """No step; the undo brings every function back to its first driver, should libvirt not have done so.

    libvirt's unbinding would wait for nvidia-persistenced, so where that has the card open the agent binds it before:
    the agent stops the daemon meanwhile, and libvirt takes a card that is on vfio-pci as it is.
    """
    functions = ", ".join((wanted.function, *wanted.companions))
    return Plan(
        steps=(BindDriver((wanted.function,), VFIO_PCI),) if gpu.persistence else (),
        undo=bind_back(wanted, {}),
        summary=(f"libvirt binds {functions} to vfio-pci when the VM starts",),
    )


def release(held: Share, gpu: Gpu | None) -> Plan:
    """Reset the card and bind its functions back to their first drivers."""
    can_reset = gpu is None or (bool(gpu.reset_methods) and not gpu.vfs)
    return release_functions(held, gpu, can_reset=can_reset)
