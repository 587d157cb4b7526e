# SPDX-License-Identifier: Apache-2.0
"""Whether a multiset of MIG instances fits on a GPU, and where each goes.

The rule (NVIDIA MIG user guide, "Supported MIG profiles"): memory slots do not overlap, each profile begins only at its
own slots, compute slices add up to at most the GPU's, each profile stays within its maximum, and at most one instance
takes the media engines.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpuctl.model.layout import WantedInstance
from vgpuctl.planner.mig_geometry.table import Profile, Table


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


def check(table: Table, wanted: Sequence[WantedInstance]) -> Misfit | None:
    """Why these instances cannot be on an empty GPU together, None when they can."""
    return _check_names(table, wanted) or _check_sums(table, wanted) or _check_slots(table, wanted)


def place(table: Table, wanted: Iterable[WantedInstance], taken: int = 0) -> tuple[Placed, ...] | None:
    """Find a start for every instance, None when there is none. The sums of the rule are not looked at.

    taken: a bit for each memory slot that is not free. The answer is in an order to create them in: the largest first,
    so that it holds too where the driver chooses the start. Raises KeyError for an unknown profile.
    """
    ordered = sorted(wanted, key=lambda one: _hardest_first(table.by_name[one.profile], one))
    return _Search(table, ordered).place(taken)


def occupied(placed: Iterable[tuple[int, int]]) -> int:
    """The bits of the memory slots of these (start, size)."""
    bits = 0
    for start, size in placed:
        bits |= ((1 << size) - 1) << start
    return bits


def describe(instances: Iterable[WantedInstance | str]) -> str:
    """A multiset in words: `2 x 1g.10gb + 3g.40gb`."""
    counts = Counter(one if isinstance(one, str) else one.profile for one in instances)
    parts = [f"{count} x {name}" if count > 1 else name for name, count in sorted(counts.items())]
    return " + ".join(parts) or "no instance"


def _check_names(table: Table, wanted: Sequence[WantedInstance]) -> Misfit | None:
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


def _check_sums(table: Table, wanted: Sequence[WantedInstance]) -> Misfit | None:
    counts = Counter(one.profile for one in wanted)
    for name, count in counts.items():
        most = table.by_name[name].max_count
        if count > most:
            return Misfit("mig-too-many", f"{table.name} can have {most} x {name}, not {count}")
    slices = sum(table.by_name[name].compute_slices * count for name, count in counts.items())
    if slices > table.compute_slices:
        return Misfit(
            "mig-compute-slices",
            f"{describe(counts.elements())} needs {slices} compute slices of {table.compute_slices}",
        )
    media = [name for name in counts.elements() if table.by_name[name].takes_media]
    if len(media) > 1:
        return Misfit("mig-media-engines", f"one instance of a GPU can have the media engines, not {describe(media)}")
    return None


def _check_slots(table: Table, wanted: Sequence[WantedInstance]) -> Misfit | None:
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


def _hardest_first(profile: Profile, one: WantedInstance) -> tuple[bool, int, int, str, int]:
    return (one.start is None, -profile.size, len(profile.starts), profile.name, one.start or 0)


class _Search:
    """Depth first over the instances in order; slots that did not work out for the rest are remembered."""

    def __init__(self, table: Table, ordered: Sequence[WantedInstance]) -> None:
        self._profiles = [table.by_name[one.profile] for one in ordered]
        self._starts = [
            profile.starts if one.start is None else (one.start,)
            for profile, one in zip(self._profiles, ordered, strict=True)
        ]
        self._dead: set[tuple[int, int]] = set()
        self._chosen: list[Placed] = []

    def place(self, taken: int) -> tuple[Placed, ...] | None:
        if not self._fits(0, taken):
            return None
        return tuple(sorted(self._chosen, key=lambda one: (-one.size, one.start)))

    def _fits(self, index: int, taken: int) -> bool:
        if index == len(self._profiles):
            return True
        if (index, taken) in self._dead:
            return False
        profile = self._profiles[index]
        for start in self._starts[index]:
            bits = ((1 << profile.size) - 1) << start
            if bits & taken:
                continue
            self._chosen.append(Placed(profile.name, start, profile.size))
            if self._fits(index + 1, taken | bits):
                return True
            self._chosen.pop()
        self._dead.add((index, taken))
        return False
