# SPDX-License-Identifier: Apache-2.0
"""A card that gives out MIG instances by the published rule, and every layout it can have.

Written apart from the planner it judges: it reads the catalogue's tables itself and knows nothing of search.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import GpuInstance

Multiset = tuple[tuple[str, int], ...]


class Refused(Exception):
    """What the driver would answer with `Insufficient Resources` or `In use by another client`."""


class Card:
    """One GPU's instances. Ids are given out downwards, so that nobody relies on their order."""

    def __init__(self, table: catalog.MigTable) -> None:
        self.table = table
        self.profiles = {profile.name: profile for profile in table.profiles}
        self.slots = table.memory_slots or max(profile.memory_slices for profile in table.profiles)
        self.compute_slices = table.compute_slices or max(profile.compute_slices for profile in table.profiles)
        self.instances: list[GpuInstance] = []
        self._next_id = 99

    def starts(self, name: str) -> tuple[tuple[int, ...], int]:
        """Where the profile can begin, and its size."""
        profile = self.profiles[name]
        size = profile.placement_size or profile.memory_slices
        if profile.placement_starts is not None:
            return profile.placement_starts, size
        return tuple(start for start in range(self.slots) if start % size == 0 and start + size <= self.slots), size

    def create(self, name: str, start: int, *, in_use: bool = False) -> None:
        starts, size = self.starts(name)
        taken = {slot for one in self.instances for slot in range(one.start, one.start + one.size)}
        if start not in starts or taken & set(range(start, start + size)):
            raise Refused(f"{name} at {start}")
        names = [one.profile for one in self.instances] + [name]
        if names.count(name) > self.profiles[name].max_count:
            raise Refused(f"too many {name}")
        if sum(self.profiles[one].compute_slices for one in names) > self.compute_slices:
            raise Refused("compute slices")
        if sum(bool({"me", "me.all"} & set(self.profiles[one].attributes)) for one in names) > 1:
            raise Refused("media engines")
        self.instances.append(GpuInstance(self._next_id, name, start, size, in_use))
        self._next_id -= 1

    def destroy(self, identity: int) -> None:
        (one,) = [one for one in self.instances if one.id == identity]
        if one.in_use:
            raise Refused(f"{one.profile} is in use")
        self.instances.remove(one)

    def layout(self) -> Multiset:
        return tuple(sorted(Counter(one.profile for one in self.instances).items()))


def tables() -> dict[str, catalog.MigTable]:
    """Every table of the catalogue that a board uses, by its key."""
    found = {}
    for board in catalog.boards().values():
        table = catalog.mig_table(board)
        if table is not None:
            found[table.key] = table
    return found


@cache
def all_layouts(key: str) -> list[Multiset]:
    """Every multiset of profiles that a card of this table can have, the empty one first."""
    card = Card(tables()[key])
    names = sorted(card.profiles)
    seen: set[tuple[int, tuple[int, ...]]] = {(0, (0,) * len(names))}
    waiting = list(seen)
    while waiting:
        taken, counts = waiting.pop()
        for following in _one_more(card, names, taken, counts):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return sorted(
        {tuple((name, count) for name, count in zip(names, counts, strict=True) if count) for _, counts in seen}
    )


def _one_more(
    card: Card, names: list[str], taken: int, counts: tuple[int, ...]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    used = sum(card.profiles[name].compute_slices * count for name, count in zip(names, counts, strict=True))
    media = sum(
        count
        for name, count in zip(names, counts, strict=True)
        if {"me", "me.all"} & set(card.profiles[name].attributes)
    )
    for index, name in enumerate(names):
        profile = card.profiles[name]
        if counts[index] == profile.max_count or used + profile.compute_slices > card.compute_slices:
            continue
        if media and {"me", "me.all"} & set(profile.attributes):
            continue
        starts, size = card.starts(name)
        for start in starts:
            bits = (2**size - 1) * 2**start
            if not bits & taken:
                yield taken | bits, (*counts[:index], counts[index] + 1, *counts[index + 1 :])
