# SPDX-License-Identifier: Apache-2.0
"""The multiset nearest to one that does not fit: the least is left out, and of equals the largest stays."""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from vgpuctl.model.layout import WantedInstance
from vgpuctl.planner.mig_geometry.fit import check, occupied, place
from vgpuctl.planner.mig_geometry.table import GeometryTable


def nearest(
    table: GeometryTable, wanted: Sequence[WantedInstance], fixed: Sequence[WantedInstance] = ()
) -> tuple[WantedInstance, ...]:
    """The profiles nearest to `wanted` that fit beside `fixed` (instances in use, at their starts), which are in it.

    An unknown profile counts as the smallest of as many compute slices (`1g.5gb` on an 80 GB board is `1g.10gb`).
    Declared starts are left out of the answer. Empty when nothing fits.
    """
    known = Counter(name for name in (_known(table, one.profile) for one in wanted) if name is not None)
    known -= Counter(one.profile for one in fixed)
    names = sorted(known, key=lambda name: (-table.by_name[name].size, name))
    taken = occupied((one.start, table.by_name[one.profile].size) for one in fixed if one.start is not None)
    highest = [min(known[name], table.by_name[name].max_count) for name in names]
    choices = sorted(
        itertools.product(*(range(most, -1, -1) for most in highest)),
        key=lambda counts: (-sum(counts), [-count for count in counts]),
    )
    for counts in choices:
        chosen = [WantedInstance(name) for name, count in zip(names, counts, strict=True) for _ in range(count)]
        if check(table, [*fixed, *chosen]) is None and place(table, chosen, taken) is not None:
            return tuple(sorted((*_without_starts(fixed), *chosen), key=lambda one: one.profile))
    return ()


def _known(table: GeometryTable, name: str) -> str | None:
    if name in table.by_name:
        return name
    slices, _, size = name.partition(".")
    kind = size.partition("gb")[2]
    alike = [
        profile
        for profile in table.profiles
        if profile.name.startswith(f"{slices}.") and profile.name.partition("gb")[2] == kind
    ]
    return min(alike, key=lambda profile: (profile.size, profile.name)).name if alike else None


def _without_starts(instances: Iterable[WantedInstance]) -> list[WantedInstance]:
    return [WantedInstance(one.profile) for one in instances]
