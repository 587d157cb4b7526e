# SPDX-License-Identifier: Apache-2.0
"""Comparison of a share with the live host, which several kinds make before anything is written."""

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.vf_health import VfState, describe, state_of
from vgpuctl.catalog import short_name
from vgpuctl.model.lease import Share
from vgpuctl.sharing.occupancy import LiveGpu, describe_holders, vf_at


def type_surprise(share: Share, gpu: Gpu) -> str | None:
    """Why the type cannot be created now: it is gone, its id is another (drivers differ), or none is left."""
    offered = next((one for one in gpu.types if short_name(one.name) == share.profile), None)
    if offered is None:
        return f"GPU {gpu.address} does not offer {share.profile} now"
    if offered.type_id != share.type_id:
        return f"{share.profile} is type {offered.type_id} now, not {share.type_id}"
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


def carrier_surprise(share: Share, gpu: Gpu) -> str | None:
    """Why NVIDIA's driver makes no vGPU on the VF now: it is sick."""
    function = vf_at(gpu, share.function)
    if function is None:
        return None
    state = state_of(function.driver, function.offers_types)
    return None if state is VfState.HEALTHY else f"VF {function.address} is sick: {describe((state,), 1)}"
