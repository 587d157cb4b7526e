# SPDX-License-Identifier: Apache-2.0
"""The MIG profiles of one GPU, from the live host where it tells them, else from the catalogue."""

from dataclasses import dataclass
from functools import cached_property

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import MigFacts
from vgpuctl.model.mig_space import Part


@dataclass(frozen=True)
class GeometryTable:
    """The profiles of one GPU. name: whose they are, for messages.

    knows_placements: False where no source has the slots; the starts then are assumed aligned, good for telling what
    fits but not for telling the driver where.
    """

    name: str
    slots: int
    compute_slices: int
    profiles: tuple[Part, ...]
    knows_placements: bool = True

    @cached_property
    def by_name(self) -> dict[str, Part]:
        """The profiles by their names."""
        return {profile.name: profile for profile in self.profiles}


def table_of_board(board: catalog.Board) -> GeometryTable | None:
    """The catalogue's table of a GPU model, None when it cannot be partitioned."""
    found = catalog.mig_table(board)
    if found is None:
        return None
    slots = found.memory_slots or max(profile.memory_slices for profile in found.profiles)
    profiles = []
    for profile in found.profiles:
        size = profile.placement_size or profile.memory_slices
        starts = profile.placement_starts or tuple(range(0, slots - size + 1, size))
        profiles.append(Part(profile.name, profile.compute_slices, size, starts, profile.max_count))
    compute_slices = found.compute_slices or max(profile.slices for profile in profiles)
    return GeometryTable(board.name, slots, compute_slices, tuple(profiles), found.memory_slots is not None)


def table_of(mig: MigFacts, board: catalog.Board | None, *, name: str) -> GeometryTable | None:
    """The table of a live GPU: what its driver tells counts more than the catalogue. None when neither knows one."""
    if not mig.profiles:
        return table_of_board(board) if board is not None else None
    profiles = tuple(Part(one.name, one.compute_slices, one.size, one.starts, one.max_count) for one in mig.profiles)
    slots = max(max(one.starts, default=0) + one.size for one in profiles)
    return GeometryTable(name, slots, max(one.slices for one in profiles), profiles)


def name_in(table: GeometryTable, board: catalog.Board | None, profile: str) -> str:
    """The name that a table has for a profile: driver branches call one profile `3g.93gb` and `3g.95gb`.

    A profile that no table knows keeps its name.
    """
    found = catalog.mig_table(board) if board is not None else None
    if profile in table.by_name or found is None:
        return profile
    for one in found.profiles:
        names = (one.name, *one.also_named)
        if profile in names:
            return next((name for name in names if name in table.by_name), profile)
    return profile
