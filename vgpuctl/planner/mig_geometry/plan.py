# SPDX-License-Identifier: Apache-2.0
"""From the instances that are there to those that are wanted: keep what fits, never destroy one in use."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import GpuInstance
from vgpuctl.model.layout import WantedInstance
from vgpuctl.planner.mig_geometry.fit import Placed, check, describe, occupied, place
from vgpuctl.planner.mig_geometry.nearest import nearest
from vgpuctl.planner.mig_geometry.table import GeometryTable


@dataclass(frozen=True)
class GeometryPlan:
    """The plan: first destroy, then create in this order. keep and destroy are in the order of their slots."""

    keep: tuple[GpuInstance, ...] = ()
    destroy: tuple[GpuInstance, ...] = ()
    create: tuple[Placed, ...] = ()


@dataclass(frozen=True)
class Impossible:
    """The reason why no plan exists. in_use: the blocking instances. nearest: profiles that would fit."""

    code: str
    reason: str
    nearest: tuple[WantedInstance, ...] = ()
    in_use: tuple[GpuInstance, ...] = ()

    def __str__(self) -> str:
        return f"{self.reason}; the nearest that fits is {describe(self.nearest)}" if self.nearest else self.reason


def plan_geometry(
    table: GeometryTable, wanted: Sequence[WantedInstance], existing: Sequence[GpuInstance]
) -> GeometryPlan | Impossible:
    """Plan the way to exactly `wanted`.

    As many existing instances as possible stay; of equals those of more memory, then those at lower slots. Where the
    table knows no placements an existing instance still lies where the host says.
    """
    misfit = check(table, wanted)
    if misfit is not None:
        return Impossible(misfit.code, misfit.reason, nearest(table, wanted))
    in_use = [one for one in existing if one.in_use]
    against = _not_wanted(wanted, in_use)
    if against:
        return _blocked(table, wanted, in_use, against)
    for kept in _choices(existing):
        rest = _rest(wanted, kept)
        if rest is None:
            continue
        created = place(table, rest, occupied((one.start, one.size) for one in kept))
        if created is not None:
            stays = {one.id for one in kept}
            return GeometryPlan(kept, tuple(one for one in _by_slot(existing) if one.id not in stays), created)
    return _blocked(table, wanted, in_use, in_use)


def _choices(existing: Sequence[GpuInstance]) -> Iterator[tuple[GpuInstance, ...]]:
    """Every set of instances that holds all in use, the largest sets first, within that those of more memory."""
    in_use = [one for one in existing if one.in_use]
    idle = sorted((one for one in existing if not one.in_use), key=lambda one: (-one.size, one.start))
    for count in range(len(idle), -1, -1):
        chosen = sorted(itertools.combinations(idle, count), key=lambda some: -sum(one.size for one in some))
        for some in chosen:
            yield _by_slot((*in_use, *some))


def _rest(wanted: Sequence[WantedInstance], kept: Sequence[GpuInstance]) -> list[WantedInstance] | None:
    """The part of `wanted` that is missing from `kept`, None when a kept one is not wanted.

    A kept instance stands for the wanted one of its start, else for one without a start.
    """
    left = Counter(wanted)
    for one in kept:
        for candidate in (WantedInstance(one.profile, one.start), WantedInstance(one.profile)):
            if left[candidate]:
                left[candidate] -= 1
                break
        else:
            return None
    return list(left.elements())


def _not_wanted(wanted: Sequence[WantedInstance], in_use: Sequence[GpuInstance]) -> list[GpuInstance]:
    """Instances in use that the layout has no place for, one by one."""
    against: list[GpuInstance] = []
    kept: list[GpuInstance] = []
    for one in _by_slot(in_use):
        if _rest(wanted, (*kept, one)) is None:
            against.append(one)
        else:
            kept.append(one)
    return against


def _blocked(
    table: GeometryTable,
    wanted: Sequence[WantedInstance],
    in_use: Sequence[GpuInstance],
    against: Sequence[GpuInstance],
) -> Impossible:
    named = ", ".join(f"{one.profile} at {one.start}:{one.size} (instance {one.id})" for one in _by_slot(against))
    verb = "is" if len(against) == 1 else "are"
    known = [one for one in in_use if one.profile in table.by_name]
    near = nearest(table, wanted, [WantedInstance(one.profile, one.start) for one in known])
    reason = f"{describe(wanted)} cannot be reached while {named} {verb} in use"
    return Impossible("mig-in-use", reason, near, _by_slot(against))


def _by_slot(instances: Sequence[GpuInstance]) -> tuple[GpuInstance, ...]:
    return tuple(sorted(instances, key=lambda one: (one.start, one.id)))
