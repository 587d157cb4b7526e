# SPDX-License-Identifier: Apache-2.0
"""Mediated devices, on the PF (`mdev`) and on a VF (`mdev-vf`): one is made under the share's function by its UUID."""

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.steps import CreateMdev, DeleteMdev
from vgpuctl.model.lease import Share
from vgpuctl.model.occupancy import existing_vgpus
from vgpuctl.model.sharing import Sharing
from vgpuctl.planner.result import Plan
from vgpuctl.planner.vgpu_checks import carrier_surprise, type_surprise, vf_surprise


def check(wanted: Share, gpu: Gpu, facts: HostFacts) -> str | None:
    """Why the mdev can no longer be made. Its own UUID on the right parent is no surprise: an earlier run made it."""
    for existing in existing_vgpus(gpu):
        if existing.mdev_uuid is not None and existing.mdev_uuid == wanted.mdev_uuid:
            if (existing.function, existing.type_id) == (wanted.function, wanted.type_id):
                return None
            return f"mdev {wanted.mdev_uuid} exists already, of type {existing.type_id} on {existing.function}"
    if wanted.sharing is Sharing.MDEV_VF:
        surprise = vf_surprise(wanted, gpu) or carrier_surprise(wanted, gpu)
        if surprise is not None:
            return surprise
    return type_surprise(wanted, gpu)


def build(wanted: Share, gpu: Gpu) -> Plan:
    """Create the mdev. Raises ValueError when the share has no UUID or no type yet."""
    if wanted.mdev_uuid is None or wanted.type_id is None:
        raise ValueError(f"the share {wanted.profile} on {wanted.function} has no mdev UUID or no type id")
    return Plan(
        steps=(CreateMdev(wanted.function, wanted.type_id, wanted.mdev_uuid),),
        undo=(DeleteMdev(wanted.mdev_uuid),),
        summary=(f"create mdev {wanted.mdev_uuid} of {wanted.profile} ({wanted.type_id}) on {wanted.function}",),
    )


def release(held: Share, gpu: Gpu | None) -> Plan:
    """Delete the mdev if it exists. A share without UUID was never made."""
    if held.mdev_uuid is None:
        return Plan(summary=(f"nothing to release: {held.profile} on {held.function} was never made",))
    if gpu is not None and all(one.mdev_uuid != held.mdev_uuid for one in existing_vgpus(gpu)):
        return Plan(summary=(f"nothing to release: mdev {held.mdev_uuid} does not exist",))
    return Plan(
        steps=(DeleteMdev(held.mdev_uuid),),
        summary=(f"delete mdev {held.mdev_uuid} of {held.profile} on {held.function}",),
    )
