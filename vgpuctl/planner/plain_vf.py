# SPDX-License-Identifier: Apache-2.0
"""Plain VFs (AMD, Intel): libvirt binds the VF to vfio-pci (`managed='yes'`), so building takes no step of ours."""

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.model.lease import Share
from vgpuctl.model.occupancy import vf_at
from vgpuctl.planner.first_drivers import bind_back, release_functions
from vgpuctl.planner.result import Plan
from vgpuctl.planner.vgpu_checks import vf_surprise


def check(wanted: Share, gpu: Gpu, facts: HostFacts) -> str | None:
    """Why the VF can no longer be given away."""
    surprise = vf_surprise(wanted, gpu)
    if surprise is not None:
        return surprise
    function = vf_at(gpu, wanted.function)
    if not facts.iommu_active or function is None or function.iommu_group is None:
        return f"VF {wanted.function} is in no IOMMU group"
    return None


def build(wanted: Share, gpu: Gpu) -> Plan:
    """No step; the undo brings the VF back to its first driver, should libvirt not have done so."""
    return Plan(
        undo=bind_back(wanted, {}),
        summary=(f"libvirt binds VF {wanted.function} to vfio-pci when the VM starts",),
    )


def release(held: Share, gpu: Gpu | None) -> Plan:
    """Reset the VF and bind it back to its first driver."""
    return release_functions(held, gpu, can_reset=True)
