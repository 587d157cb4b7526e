# SPDX-License-Identifier: Apache-2.0
"""Tell whether a multiset of MIG instances fits on a GPU, and where each goes. The rule is catalog/mig_space.py."""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpuctl.model.layout import WantedInstance
from vgpuctl.model.mig_space import Limit, Part, exceeded, search, window
from vgpuctl.planner.mig_geometry.table import GeometryTable


@dataclass(frozen=True)
class Placed:
    """One instance where it goes."""

    profile: str
    start: int
    size: int

    def __str__(self) -> str:
        return f"{self.profile} at {self.start}:{self.size}"


@dataclass(frozen=True)
class Misfit:
    """Why a multiset does not fit. code: stable, kebab-case."""

    code: str
    reason: str


def check(table: GeometryTable, wanted: Sequence[WantedInstance]) -> Misfit | None:
    """Why these instances cannot be on an empty GPU together, None when they can."""
    return _check_names(table, wanted) or _check_sums(table, wanted) or _check_slots(table, wanted)


def place(table: GeometryTable, wanted: Iterable[WantedInstance], taken: int = 0) -> tuple[Placed, ...] | None:
    """Find a start for every instance, None when there is none. The sums of the rule are not looked at.

    taken: a bit for each memory slot that is not free. The answer is in an order to create them in: the largest first,
    so that it holds too where the driver chooses the start. Raises KeyError for an unknown profile.
    """
    ordered = sorted(wanted, key=lambda one: _hardest_first(table.by_name[one.profile], one))
    parts = [table.by_name[one.profile] for one in ordered]
    allowed = [part.starts if one.start is None else (one.start,) for part, one in zip(parts, ordered, strict=True)]
    starts = search(list(zip(parts, allowed, strict=True)), taken)
    if starts is None:
        return None
    placed = (Placed(part.name, start, part.size) for part, start in zip(parts, starts, strict=True))
    return tuple(sorted(placed, key=lambda one: (-one.size, one.start)))


def occupied(placed: Iterable[tuple[int, int]]) -> int:
    """The bits of the memory slots of these (start, size)."""
    bits = 0
    for start, size in placed:
        bits |= window(start, size)
    return bits


def describe(instances: Iterable[WantedInstance | str]) -> str:
    """A multiset in words: `2 x 1g.10gb + 3g.40gb`."""
    counts = Counter(one if isinstance(one, str) else one.profile for one in instances)
    parts = [f"{count} x {name}" if count > 1 else name for name, count in sorted(counts.items())]
    return " + ".join(parts) or "no instance"


def _check_names(table: GeometryTable, wanted: Sequence[WantedInstance]) -> Misfit | None:
    for one in wanted:
        profile = table.by_name.get(one.profile)
        if profile is None:
            near = difflib.get_close_matches(one.profile, table.by_name, n=1)
            tail = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(table.by_name)}"
            return Misfit("mig-unknown-profile", f"{table.name} has no profile {one.profile}{tail}")
        if one.start is not None and table.knows_placements and one.start not in profile.starts:
            starts = ", ".join(str(start) for start in profile.starts)
            return Misfit("mig-bad-placement", f"{one.profile} cannot begin at slot {one.start}, only at {starts}")
    return None


def _check_sums(table: GeometryTable, wanted: Sequence[WantedInstance]) -> Misfit | None:
    parts = [table.by_name[one.profile] for one in wanted]
    found = exceeded(table.compute_slices, parts)
    if found is None:
        return None
    limit, part = found
    if limit is Limit.COUNT:
        count = parts.count(part)
        return Misfit("mig-too-many", f"{table.name} can have {part.max_count} x {part.name}, not {count}")
    if limit is Limit.SLICES:
        slices = sum(one.slices for one in parts)
        return Misfit(
            "mig-compute-slices", f"{describe(wanted)} needs {slices} compute slices of {table.compute_slices}"
        )
    media = [one.name for one in parts if one.takes_media]
    return Misfit("mig-media-engines", f"one instance of a GPU can have the media engines, not {describe(media)}")


def _check_slots(table: GeometryTable, wanted: Sequence[WantedInstance]) -> Misfit | None:
    if place(table, wanted) is not None:
        return None
    fixed = [one for one in wanted if one.start is not None]
    if fixed and place(table, [WantedInstance(one.profile) for one in wanted]) is not None:
        starts = ", ".join(f"{one.profile} at {one.start}" for one in fixed)
        return Misfit("mig-placements", f"{describe(wanted)} fits, but not with {starts}")
    slots = sum(table.by_name[one.profile].size for one in wanted)
    return Misfit(
        "mig-memory-slots",
        f"{describe(wanted)} does not fit: {slots} memory slots of {table.slots}, each profile only at its own starts",
    )


def _hardest_first(profile: Part, one: WantedInstance) -> tuple[bool, int, int, str, int]:
    return (one.start is None, -profile.size, len(profile.starts), profile.name, one.start or 0)
