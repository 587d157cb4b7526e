# SPDX-License-Identifier: Apache-2.0
"""A share's device on its host, as the facts show it."""

from collections.abc import Sequence

from vgpuctl.agent.wire.facts import Gpu, Holder, HostFacts
from vgpuctl.model.lease import Share
from vgpuctl.sharing.kinds import existing_vgpus


def holders_of(facts: HostFacts, share: Share) -> Sequence[Holder] | None:
    """The processes that hold a share's device; None where the host has no such device."""
    for gpu in facts.gpus:
        if share.mdev_uuid is not None:
            for mdev in gpu.mdevs:
                if mdev.uuid == share.mdev_uuid:
                    return mdev.holders
        elif share.function == gpu.address:
            return gpu.holders
        else:
            for vf in gpu.vfs:
                if vf.address == share.function and _is_made(gpu, share):
                    return vf.holders
    return None


def _is_made(gpu: Gpu, share: Share) -> bool:
    """True if a VF carries the share's vGPU; a plain VF carries none."""
    if share.type_id is None:
        return True
    return any((one.function, one.type_id) == (share.function, share.type_id) for one in existing_vgpus(gpu))
