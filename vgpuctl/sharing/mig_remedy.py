# SPDX-License-Identifier: Apache-2.0
"""How a GPU could get a MIG instance that a vGPU type needs and none is left of, by the rule of mig_space."""

from collections import Counter
from collections.abc import Sequence

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import GpuInstance
from vgpuctl.model.mig_space import Part, Space
from vgpuctl.sharing.gpu_state import GpuState


def remedy_without_instance(profile: str | None, state: GpuState) -> str | None:
    """Say where an instance of this profile fits, if need be after idle ones that nobody was promised are deleted.

    None when none fits."""
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
    idle = [one for one in mig.instances if not one.in_use]
    spare = Counter(one.profile for one in idle)
    spare.subtract(_promised(state))
    fixed = [one for one in mig.instances if one.in_use]
    while (best := _space(parts, fixed).best_start(part)) is not None:
        in_the_way, kept = list[GpuInstance](), list(fixed)
        for one in idle:
            if one in fixed:
                continue
            (kept if _space(parts, [*kept, one]).fits_at(part, best) else in_the_way).append(one)
        going = Counter(one.profile for one in in_the_way)
        needed = next((one for one in in_the_way if going[one.profile] > spare[one.profile]), None)
        if needed is None:
            names = (f"GPU instance {one.id} ({one.profile} at slot {one.start}, idle)" for one in in_the_way)
            return f"delete {' and '.join(names)}, then create a {profile} at slot {best}"
        fixed.append(needed)
    return None


def _promised(state: GpuState) -> Counter[str]:
    """How many instances of each profile vGPUs will need that are promised and not made yet."""
    names = Counter(held.name for held in state.vgpus if not held.seen and held.name is not None)
    found = Counter[str]()
    for name, count in names.items():
        known = catalog.type_by_name(state.board, name) if state.board else None
        if known is not None and known.gi_profile is not None:
            found[known.gi_profile] += -(-count // (known.max_per_gi or 1))
    return found


def _space(parts: dict[str, Part], instances: Sequence[GpuInstance]) -> Space:
    placed = []
    for one in instances:
        # Of a profile that the driver does not list, the memory slots are known.
        part = parts.get(one.profile) or Part(one.profile, 0, one.size, (one.start,), 1)
        placed.append((part, one.start))
    return Space(max(part.slices for part in parts.values()), tuple(parts.values()), tuple(placed))
