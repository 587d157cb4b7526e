# SPDX-License-Identifier: Apache-2.0
"""Comparison of a share with the live host, which several kinds make before anything is written."""

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.vf_health import VfState, describe, state_of
from vgpuctl.catalog import short_name
from vgpuctl.model.lease import Share
from vgpuctl.sharing.occupancy import LiveGpu, describe_holders, vf_at


def type_surprise(share: Share, gpu: Gpu) -> str | None:
    """Why the type cannot be created now: it is gone, or none is left."""
    offered = next((one for one in gpu.types if short_name(one.name) == share.profile), None)
    if offered is None:
        return f"GPU {gpu.address} does not offer {share.profile} now"
    if gpu.holders:
        return f"GPU {gpu.address} is held by {describe_holders(gpu.holders)}"
    if offered.creatable < 1:
        return f"GPU {gpu.address} can create no more {share.profile}"
    return None


def vf_surprise(share: Share, live: LiveGpu) -> str | None:
    """Why the VF cannot be used now: it is gone, or carries or serves something already."""
    function = vf_at(live.gpu, share.function)
    if function is None:
        return f"GPU {live.gpu.address} has no VF {share.function} any more"
    if function.problem is not None:
        return function.problem
    if function.holders:
        return f"VF {function.address} is held by {describe_holders(function.holders)}"
    for existing in live.vgpus:
        if existing.function == function.address:
            return f"VF {function.address} carries a vGPU already (type {existing.type_id or 'unknown'})"
    return None


def instance_surprise(share: Share, gpu: Gpu) -> str | None:
    """Why no vGPU of the share's type can be made now: it needs a MIG instance that is not there, or MIG is on."""
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    known = None if board is None else catalog.type_by_name(board, share.profile)
    if known is None:
        return None
    if not known.is_mig_backed:
        return f"MIG of GPU {gpu.address} is on, so it makes no {known.name}" if gpu.mig_mode == "enabled" else None
    if any(one.profile == known.gi_profile for one in (gpu.mig.instances if gpu.mig else ())):
        return None
    return (
        f"GPU {gpu.address} has no MIG instance {known.gi_profile}, which {known.name} needs; "
        "`vgpuctl apply-hosts` makes those of the layout"
    )


def carrier_surprise(share: Share, gpu: Gpu) -> str | None:
    """Why NVIDIA's driver makes no vGPU on the VF now: it is sick."""
    function = vf_at(gpu, share.function)
    if function is None:
        return None
    state = state_of(function.driver, function.offers_types)
    return None if state is VfState.HEALTHY else f"VF {function.address} is sick: {describe((state,), 1)}"
