# SPDX-License-Identifier: Apache-2.0
"""Rules of a GPU's driver for the vGPU types that may be on it together (nvml.h 13.3).

The driver's own list of creatable types follows the same rules; here a promise that nothing was built of counts too.
"""

from collections.abc import Sequence

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gpu_state import GpuState, HeldVgpu
from vgpuctl.sharing.offer import Refusal


def mixes_sizes(gpu: Gpu, board: catalog.Board | None) -> bool | None:
    """True if the GPU can have mixed sizes: as its driver says, else as the catalogue knows; None where neither does.

    With MIG on, or without its VFs, a GPU has none, which says nothing of the same GPU in another mode (reference 3.3).
    """
    told = None if gpu.abilities is None else gpu.abilities.mixed_sizes
    if told is False and (gpu.mig_mode == "enabled" or (gpu.total_vfs and not gpu.vfs)):
        told = None
    return told if told is not None or board is None else board.mixed_size


def refuse_beside(
    profile: str, framebuffer_mib: int | None, others: Sequence[HeldVgpu], state: GpuState
) -> Refusal | None:
    """Say why a time-sliced type may not be on the GPU beside these vGPUs; None when it may."""
    abilities = state.gpu.abilities
    if abilities is None:
        return None
    of_other_type = [one for one in others if one.name != profile]
    of_other_size = [one for one in of_other_type if one.framebuffer_mib != framebuffer_mib]
    for there, alone, what in (
        (of_other_type, abilities.alone_by_type, "type"),
        (of_other_size, abilities.alone_by_size, "size"),
    ):
        ids = {type_id_of(name, state.gpu) for name in (profile, *(one.name for one in there))}
        if there and ids & set(alone or ()):
            return _refuse(profile, there, f"its driver lets one of them be beside no other {what}")
    if of_other_type and abilities.mixed_types is False:
        return _refuse(profile, of_other_type, "its driver runs one type at a time")
    return None


def _refuse(profile: str, there: Sequence[HeldVgpu], rule: str) -> Refusal:
    names = ", ".join(sorted({one.name or "an unknown type" for one in there}))
    reason = f"it carries {names}, and {profile} cannot be beside it: {rule}"
    return Refusal(Code.TYPE_ALONE, reason, f"ask for {names}, for another GPU, or delete the VMs that use it")


def type_id_of(profile: str | None, gpu: Gpu) -> str | None:
    """The decimal id of a type, which the driver's rules name."""
    found = next((one.type_id for one in gpu.types if catalog.short_name(one.name) == profile), None)
    return None if found is None else found.rsplit("-", 1)[-1]
