# SPDX-License-Identifier: Apache-2.0
"""Whole cards: libvirt binds the functions to vfio-pci (`managed='yes'`), so building takes no step of ours."""

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.model.lease import Slice
from vgpuctl.model.occupancy import describe_holders, existing_vgpus, strangers_in_group
from vgpuctl.model.sharing import Sharing
from vgpuctl.planner.first_drivers import bind_back, release_functions
from vgpuctl.planner.result import Plan


def check(wanted: Slice, gpu: Gpu, facts: HostFacts) -> str | None:
    """Why the card can no longer be given away as a whole."""
    if gpu.holders:
        return f"GPU {gpu.address} is held by {describe_holders(gpu.holders)}"
    if gpu.users:
        return f"GPU {gpu.address} is used by the host itself: {describe_holders(gpu.users)}"
    vgpus = existing_vgpus(gpu)
    if vgpus:
        return f"GPU {gpu.address} carries {len(vgpus)} vGPUs"
    if gpu.vfs:
        return f"GPU {gpu.address} has {len(gpu.vfs)} VFs enabled"
    if not facts.iommu_active or gpu.iommu_group is None:
        return f"GPU {gpu.address} is in no IOMMU group"
    strangers = strangers_in_group(gpu)
    if strangers and Sharing.PASSTHROUGH not in gpu.sharing:
        return f"IOMMU group {gpu.iommu_group} of GPU {gpu.address} also holds {', '.join(strangers)}"
    companions = tuple(companion.address for companion in gpu.companions)
    if set(companions) != set(wanted.companions):
        return f"GPU {gpu.address} has the companions {', '.join(companions) or 'none'} now"
    return None


def build(wanted: Slice, gpu: Gpu) -> Plan:
    """No step; the undo brings every function back to its first driver, should libvirt not have done so."""
    functions = ", ".join((wanted.function, *wanted.companions))
    return Plan(
        undo=bind_back(wanted, {}),
        summary=(f"libvirt binds {functions} to vfio-pci when the VM starts",),
    )


def release(held: Slice, gpu: Gpu | None) -> Plan:
    """Reset the card and bind its functions back to their first drivers."""
    can_reset = gpu is None or (bool(gpu.reset_methods) and not gpu.vfs)
    return release_functions(held, gpu, can_reset=can_reset)
