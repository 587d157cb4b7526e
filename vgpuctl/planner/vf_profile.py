# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vendor-specific VFIO: the type's decimal id is written to the VF's `current_vgpu_type` (reference 4)."""

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.steps import SetVgpuType
from vgpuctl.model.lease import Share
from vgpuctl.model.libvirt_version import refuse_vendor_vfio
from vgpuctl.model.occupancy import has_type, vf_at
from vgpuctl.planner.result import Plan
from vgpuctl.planner.vgpu_checks import carrier_surprise, type_surprise, vf_surprise


def check(wanted: Share, gpu: Gpu, facts: HostFacts) -> str | None:
    """Why the VF can no longer take the type."""
    return (
        refuse_vendor_vfio(facts.libvirt_version)
        or vf_surprise(wanted, gpu)
        or carrier_surprise(wanted, gpu)
        or type_surprise(wanted, gpu)
    )


def build(wanted: Share, gpu: Gpu) -> Plan:
    """Set the type on the VF. Raises ValueError when the share has no type."""
    if wanted.type_id is None:
        raise ValueError(f"the share {wanted.profile} on {wanted.function} has no type id")
    return Plan(
        steps=(SetVgpuType(wanted.function, wanted.type_id),),
        undo=(SetVgpuType(wanted.function, "0"),),
        summary=(f"set vGPU type {wanted.type_id} ({wanted.profile}) on VF {wanted.function}",),
    )


def release(held: Share, gpu: Gpu | None) -> Plan:
    """Take the type away. A VF that is gone, free, or carries a type vgpuctl did not set is left as it is."""
    if gpu is not None:
        function = vf_at(gpu, held.function)
        if function is None:
            return Plan(summary=(f"nothing to release: VF {held.function} does not exist",))
        if not has_type(function):
            return Plan(summary=(f"nothing to release: VF {held.function} carries no vGPU",))
        if function.current_type != held.type_id:
            found = f"type {function.current_type}, not {held.type_id}"
            return Plan(summary=(f"VF {held.function} is left as it is: it carries {found}",))
    return Plan(
        steps=(SetVgpuType(held.function, "0"),),
        summary=(f"take vGPU {held.profile} from VF {held.function}",),
    )
