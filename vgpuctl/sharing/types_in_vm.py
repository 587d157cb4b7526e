# SPDX-License-Identifier: Apache-2.0
"""Rules of drivers for the vGPU types that one VM may have (nvml.h 13.3)."""

from collections.abc import Collection, Iterable

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.vgpu_abilities import VgpuAbilities
from vgpuctl.model.lease import Share
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gpu_state import GpuState, max_instances_of
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.sharing.offer import Refusal, ShareRequest
from vgpuctl.sharing.types_together import type_id_of

_NOTHING_TOLD = VgpuAbilities()


def refuse_in_vm(share_request: ShareRequest, share: Share, state: GpuState) -> Refusal | None:
    """Say why a vGPU may not be in a VM with its other vGPUs; None when it may.

    A vGPU that is asked for by condition has no type yet, so only those that are named count as others.
    """
    others = [one for one in share_request.vgpus if one is not None]
    found = _alone_in_vm(share.profile, others, len(share_request.vgpus), state.gpu)
    return None if found is None else Refusal(Code.TYPE_ALONE, *found)


def check_in_vm(shares: Iterable[Share], facts: HostFacts) -> str | None:
    """Say why these shares may not be in one VM, by the drivers of their GPUs as they are now; None when they may."""
    vgpus = [one for one in shares if kind_of(one.sharing).takes is Takes.VGPU]
    for one in vgpus:
        gpu = gpu_at(facts, one.gpu)
        found = None if gpu is None else _alone_in_vm(one.profile, [each.profile for each in vgpus], len(vgpus), gpu)
        if found is not None:
            return "; ".join(found)
    return None


def _alone_in_vm(profile: str, others: Collection[str], count: int, gpu: Gpu) -> tuple[str, str] | None:
    """Why a type may not be in a VM with so many vGPUs, of these types as far as they are known, and what helps."""
    abilities = gpu.abilities or _NOTHING_TOLD
    if count < 2:
        return None
    names = sorted({profile, *others})
    alone = [one for one in names if type_id_of(one, gpu) in (abilities.alone_in_vm or ())]
    if alone and len(names) > 1:
        rest = ", ".join(one for one in names if one != alone[0])
        reason = f"its driver lets no other type be in a VM with {alone[0]}, and this one has {rest}"
        return reason, "ask for vGPUs of one type, or make two VMs"
    offered = next((one for one in gpu.types if catalog.short_name(one.name) == profile), None)
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    if abilities.fractional is False and offered is not None and max_instances_of(offered, board) != 1:
        reason = f"its driver takes no {profile} into a VM with several vGPUs, for it is a part of a GPU"
        return reason, "ask for one vGPU, or for types that are whole GPUs"
    return None
