# SPDX-License-Identifier: Apache-2.0
"""MIG devices by their names: `2g.10gb` fills a GPU instance, `1c.2g.10gb` takes one of its two compute slices.

Devices of a profile share GPU instances as far as they fit.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from vgpuctl import catalog
from vgpuctl.model.layout import WantedInstance
from vgpuctl.model.mig_space import Part, exceeded, search

_PART = re.compile(r"([1-9]\d{0,8})c\.([1-9]\d{0,8})(g\..+)")
_SLICES = re.compile(r"([1-9]\d{0,8})g\.")


def split_name(name: str) -> tuple[str, int]:
    """The profile of the GPU instance, and the compute slices of a part of it; 0 for one that fills it."""
    match = _PART.fullmatch(name)
    if match is None:
        return name, 0
    return match[2] + match[3], 0 if match[1] == match[2] else int(match[1])


def part_problem(name: str) -> str | None:
    """The reason why a part of a GPU instance does not exist, None for a whole one and for a known part."""
    profile, part = split_name(name)
    if not part or _fits([part], slices_of(profile)):
        return None
    known = ", ".join(f"{one.slices}c" for one in catalog.compute_instance_profiles(slices_of(profile))) or "no parts"
    return f"is no part of {profile}, which can have {known}"


def slices_of(profile: str) -> int:
    """The compute slices of a GPU-instance profile, which its name begins with; 0 for another name."""
    match = _SLICES.match(profile)
    return int(match[1]) if match else 0


def parts_of(profile: str, compute: Sequence[int]) -> tuple[int, ...]:
    """The compute instances of a GPU instance as a layout has them: empty where one fills it, or none is there."""
    return () if tuple(compute) == (slices_of(profile),) else tuple(compute)


def instances_of(
    devices: Mapping[str, int], starts: Mapping[str, Sequence[int]] | None = None
) -> tuple[WantedInstance, ...]:
    """The GPU instances that hold these devices: the largest parts first, each in the first instance with room.

    devices: how many of each name; names of parts are known ones. starts: memory slots by profile, no more than it has
    instances. The answer is sorted by profile; within one, whole instances come first, and slots go to the first ones.
    """
    parts: dict[str, list[tuple[int, ...]]] = {}
    for name, count in devices.items():
        profile, part = split_name(name)
        parts.setdefault(profile, []).extend([(part,) if part else ()] * count)
    found: list[WantedInstance] = []
    for profile, wanted in sorted(parts.items()):
        computes = _packed(wanted, slices_of(profile))
        placed = sorted((starts or {}).get(profile, ()))
        found += [
            WantedInstance(profile, placed[number] if number < len(placed) else None, compute)
            for number, compute in enumerate(computes)
        ]
    return tuple(found)


def devices_of(instances: Sequence[WantedInstance]) -> dict[str, int]:
    """How many devices of each name the instances hold, by name."""
    names = (
        name
        for one in instances
        for name in ([f"{part}c.{one.profile}" for part in one.compute] if one.compute else [one.profile])
    )
    return dict(sorted(Counter(names).items()))


def describe_compute(profile: str, compute: Sequence[int]) -> str:
    """The compute instances of one GPU instance in words: `2 x 1c.2g.10gb`, or the profile where one fills it."""
    counts = devices_of([WantedInstance(profile, compute=tuple(compute))])
    return " + ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())


def _packed(wanted: Sequence[tuple[int, ...]], slices: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()] * sum(not one for one in wanted)
    shared: list[tuple[int, ...]] = []
    for (part,) in sorted((one for one in wanted if one), reverse=True):
        for number, others in enumerate(shared):
            if _fits([*others, part], slices):
                shared[number] = (*others, part)
                break
        else:
            shared.append((part,))
    return found + shared


def _fits(slices_wanted: Sequence[int], slices: int) -> bool:
    """True if compute instances of these slices, the largest first, fit a GPU instance."""
    known = {
        one.slices: Part(f"{one.slices}c", one.slices, one.slices, one.placement_starts, one.max_count)
        for one in catalog.compute_instance_profiles(slices)
    }
    if not known:
        return sum(slices_wanted) <= slices
    if any(one not in known for one in slices_wanted):
        return False
    parts = [known[one] for one in slices_wanted]
    return exceeded(slices, parts) is None and search([(part, part.starts) for part in parts]) is not None
