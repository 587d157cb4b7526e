# SPDX-License-Identifier: Apache-2.0
"""How a GPU could get a MIG instance that a vGPU type needs and none is left of, by the rule of mig_space."""

from collections.abc import Sequence

from vgpuctl.agent.wire.facts import GpuInstance
from vgpuctl.model.mig_space import Part, Space
from vgpuctl.sharing.gpu_state import GpuState


def remedy_without_instance(profile: str | None, state: GpuState) -> str | None:
    """Say where an instance of this profile fits, if need be after idle ones are deleted; None when none fits."""
    mig = state.gpu.mig
    if profile is None or mig is None or not mig.current or not mig.profiles:
        return f"switch MIG on and create a GPU instance {profile}" if profile else None
    parts = {one.name: Part(one.name, one.compute_slices, one.size, one.starts, one.max_count) for one in mig.profiles}
    if profile not in parts:
        return None
    part = parts[profile]
    best = _space(parts, mig.instances).best_start(part)
    if best is not None:
        return f"create a GPU instance {profile} at slot {best}, where it leaves the most room for others"
    kept = [one for one in mig.instances if one.in_use]
    best = _space(parts, kept).best_start(part)
    if best is None:
        return None
    in_the_way = []
    for idle in (one for one in mig.instances if not one.in_use):
        if _space(parts, [*kept, idle]).fits_at(part, best):
            kept.append(idle)
        else:
            in_the_way.append(f"GPU instance {idle.id} ({idle.profile} at slot {idle.start}, idle)")
    return f"delete {' and '.join(in_the_way)}, then create a {profile} at slot {best}"


def _space(parts: dict[str, Part], instances: Sequence[GpuInstance]) -> Space:
    placed = []
    for one in instances:
        # Of a profile that the driver does not list, the memory slots are known.
        part = parts.get(one.profile) or Part(one.profile, 0, one.size, (one.start,), 1)
        placed.append((part, one.start))
    return Space(max(part.slices for part in parts.values()), tuple(parts.values()), tuple(placed))
