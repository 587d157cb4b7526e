# SPDX-License-Identifier: Apache-2.0
"""A card that gives out MIG instances by the kernel module's rule, and every layout it can have.

It knows nothing of search: whether one more instance can begin at a slot, mig_rules.c says.
"""

from collections import Counter
from functools import cache

from tests.unit.lab.rules_library import Space, rules
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import GpuInstance

Multiset = tuple[tuple[str, int], ...]


class Refused(Exception):
    """A refusal of the driver: `Insufficient Resources` or `In use by another client`."""


class Card:
    """One GPU's instances. Ids are given out downwards, so that nobody relies on their order."""

    def __init__(self, table: catalog.MigTable) -> None:
        self.table = table
        self.instances: list[GpuInstance] = []
        self._next_id = 99

    def starts(self, name: str) -> tuple[int, ...]:
        """The slots at which one more instance of the profile can begin now."""
        return tuple(start for profile, start in self._space().possible() if profile == name)

    def create(self, name: str, start: int, *, in_use: bool = False) -> None:
        space = self._space()
        if not space.fits_at(name, start):
            raise Refused(f"{name} at {start}")
        self.instances.append(GpuInstance(self._next_id, name, start, space.profiles[name].size, in_use))
        self._next_id -= 1

    def destroy(self, identity: int) -> None:
        (one,) = [one for one in self.instances if one.id == identity]
        if one.in_use:
            raise Refused(f"{one.profile} is in use")
        self.instances.remove(one)

    def layout(self) -> Multiset:
        return tuple(sorted(Counter(one.profile for one in self.instances).items()))

    def _space(self) -> Space:
        return rules().space(self.table, [(one.profile, one.start) for one in self.instances])


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
    table = tables()[key]
    found: set[Multiset] = set()
    seen: set[tuple[frozenset[int], Multiset]] = set()
    waiting: list[tuple[tuple[str, int], ...]] = [()]
    while waiting:
        placed = waiting.pop()
        space = rules().space(table, placed)
        taken = frozenset(slot for name, start in placed for slot in range(start, start + space.profiles[name].size))
        layout = tuple(sorted(Counter(name for name, _ in placed).items()))
        # The remaining fits depend on the slots and the counts only.
        if (taken, layout) not in seen:
            seen.add((taken, layout))
            found.add(layout)
            waiting.extend((*placed, one) for one in space.possible())
    return sorted(found)
