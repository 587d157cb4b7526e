# SPDX-License-Identifier: Apache-2.0
"""Where the shares of one GPU are drawn in its memory: in a row, at the places of mixed-size mode, or in MIG slots."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import GpuInstance, VgpuType
from vgpuctl.catalog.names import gpu_instance_slices
from vgpuctl.model.gpu_map import Segment, SegmentKind
from vgpuctl.model.mig_space import Part, Space
from vgpuctl.sharing.gpu_state import GpuState, framebuffer_of
from vgpuctl.sharing.mixed_size import starts_left

MOST_PLACES = 4096
"""No GPU has as many; a host that says so is not drawn to the last place."""

Taken = Sequence[tuple[Segment, int | None]]
"""What is taken, and where it is expected to begin, in units of mixed-size mode."""


@dataclass(frozen=True)
class Filled:
    """Segments without gaps. unplaced: what found no room. slots: of MIG."""

    segments: tuple[Segment, ...]
    unplaced: tuple[Segment, ...] = ()
    slots: int | None = None


def fill_row(taken: Taken, memory_mib: int, usable_mib: int) -> Filled:
    """One after another; behind them what is usable, then the rest. Of shares that exceed the memory all are shown."""
    segments, at = [], 0
    for one, _ in taken:
        segments.append(replace(one, start_mib=at))
        at += one.size_mib
    left = max(0, memory_mib - at)
    usable = min(left, usable_mib)
    segments.append(Segment(SegmentKind.FREE, at, usable))
    segments.append(Segment(SegmentKind.UNUSABLE, at + usable, left - usable))
    return Filled(tuple(one for one in segments if one.size_mib))


def fill_places(state: GpuState, taken: Taken, memory_mib: int) -> Filled:
    """Mixed-size mode: a place counts as usable if a type can begin so that it covers it.

    A vGPU whose place is not known lies where no other can begin, the lowest such place that is large enough.
    """
    units = [size // one.placement_size for one, size in _sized(state)]
    unit = max(units, default=0)
    length = max(memory_mib // unit, 1) if unit else 0
    if not 0 < length <= MOST_PLACES:
        return fill_row(taken, memory_mib, 0)
    usable = [False] * length
    for offered, _ in _sized(state):
        for begin in starts_left(offered, state) or ():
            for place in range(max(0, begin), min(begin + offered.placement_size, length)):
                usable[place] = True
    cells: list[Segment | None] = [None] * length
    waiting, unplaced = [], []
    for one, start in taken:
        size = max(1, round(one.size_mib / unit))
        if start is not None and _put(cells, one, start, size, usable):
            continue
        waiting.append((one, size))
    for one, size in waiting:
        is_put = any(_put(cells, one, start, size, usable) for start in range(length - size + 1))
        if not (is_put or any(_put(cells, one, start, size, None) for start in range(length - size + 1))):
            unplaced.append(one)
    free = [Segment(SegmentKind.FREE if one else SegmentKind.UNUSABLE, 0, 0) for one in usable]
    return Filled(_merged([cell or free[at] for at, cell in enumerate(cells)], unit), tuple(unplaced))


def fill_instances(state: GpuState, taken: Taken, memory_mib: int, creatable: Collection[str]) -> Filled:
    """MIG: instances at their slots with the shares in them, and the slots without an instance.

    creatable: the profiles that the GPU can give now.
    """
    mig = state.gpu.mig
    assert mig is not None
    space = _space(state)
    ends = [start + part.size for part in space.parts for start in part.starts]
    slots = min(max(ends + [one.start + one.size for one in mig.instances], default=1), MOST_PLACES)
    fitting = {
        slot
        for part in space.parts
        for start in part.starts
        if space.fits_at(part, start)
        for slot in range(start, min(start + part.size, slots))
    }
    waiting = [one for one, _ in taken]
    inside: dict[int, list[Segment]] = {}
    for instance in sorted(mig.instances, key=lambda one: (not one.in_use, one.start)):
        inside[instance.id] = _take(instance, waiting, state)
    segments: list[Segment] = []
    by_start = {one.start: one for one in mig.instances}
    slot = 0
    while slot < slots:
        here = by_start.get(slot)
        end = min(slots, slot + (1 if here is None else max(1, here.size)))
        low, high = slot * memory_mib // slots, end * memory_mib // slots
        if here is None:
            kind = SegmentKind.NEEDS_INSTANCE if slot in fitting else SegmentKind.UNUSABLE
            segments.append(Segment(kind, low, high - low))
        else:
            segments += _divide(here, inside[here.id], (low, high), state, creatable)
        slot = end
    return Filled(_joined(segments), tuple(waiting), slots)


def _sized(state: GpuState) -> list[tuple[VgpuType, int]]:
    """The types that have a size in places, with their framebuffer."""
    return [
        (one, size)
        for one in state.gpu.types
        if one.placement_size and (size := framebuffer_of(one, state.board)) is not None
    ]


def _put(cells: list[Segment | None], one: Segment, start: int, size: int, usable: list[bool] | None) -> bool:
    """Put a share into cells that are empty and not usable by another; False where they are not."""
    places = range(start, start + size)
    if not all(0 <= at < len(cells) and cells[at] is None and not (usable and usable[at]) for at in places):
        return False
    for at in places:
        cells[at] = one
    return True


def _merged(cells: Sequence[Segment], unit: int) -> tuple[Segment, ...]:
    """Runs of one segment; free cells are runs of one kind."""
    segments: list[Segment] = []
    last: Segment | None = None
    for at, cell in enumerate(cells):
        is_same = last is cell or (last is not None and cell.kind.is_free() and last.kind is cell.kind)
        if is_same:
            segments[-1] = replace(segments[-1], size_mib=segments[-1].size_mib + unit)
        else:
            segments.append(replace(cell, start_mib=at * unit, size_mib=unit))
        last = cell
    return tuple(segments)


def _joined(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Neighbouring free slots of one kind as one segment."""
    joined: list[Segment] = []
    for one in segments:
        last = joined[-1] if joined else None
        if last is not None and last.kind is one.kind and one.kind.is_free() and last.instance == one.instance:
            joined[-1] = replace(last, size_mib=last.size_mib + one.size_mib)
        elif one.size_mib:
            joined.append(one)
    return tuple(joined)


def _space(state: GpuState) -> Space:
    """The instances that are there, by the driver's profiles or the catalogue's."""
    mig = state.gpu.mig
    assert mig is not None
    parts = [Part(one.name, one.compute_slices, one.size, one.starts, one.max_count) for one in mig.profiles]
    table = catalog.mig_table(state.board) if state.board is not None and not parts else None
    for one in () if table is None else table.profiles:
        if one.placement_starts is not None:
            size = one.placement_size or one.memory_slices
            parts.append(Part(one.name, one.compute_slices, size, one.placement_starts, one.max_count))
    by_name = {one.name: one for one in parts}
    placed = [
        (by_name.get(one.profile) or Part(one.profile, 0, one.size, (one.start,), 1), one.start)
        for one in mig.instances
    ]
    slices = max((one.slices for one in parts), default=0)
    return Space(slices, tuple(parts), tuple(placed))


def _take(instance: GpuInstance, waiting: list[Segment], state: GpuState) -> list[Segment]:
    """Take the shares that lie in an instance from those that wait. Without mixed sizes they are of one profile."""
    found: list[Segment] = []
    part = 0.0
    for one in list(waiting):
        is_of_one = not found or bool(instance.heterogeneous) or found[0].profile == one.profile
        more = 1 / _most_in(instance, one, state)
        if is_of_one and part + more <= 1.001 and _fits(one, instance, state):
            found.append(replace(one, instance=instance.id))
            waiting.remove(one)
            part += more
    return found


def _fits(one: Segment, instance: GpuInstance, state: GpuState) -> bool:
    """True if a share is of a type that sits in such an instance."""
    if one.instance is not None:
        return one.instance == instance.id
    profile = _instance_profile(one.profile, state)
    if profile is not None:
        return profile == instance.profile
    slices = gpu_instance_slices(one.profile or "")
    return slices is not None and instance.profile.startswith(f"{slices}g.")


def _instance_profile(name: str | None, state: GpuState) -> str | None:
    """The profile of the instance that a type sits in, as the catalogue knows it."""
    known = catalog.type_by_name(state.board, name) if state.board is not None and name else None
    return None if known is None else known.gi_profile


def _most_in(instance: GpuInstance, one: Segment, state: GpuState) -> int:
    """How many shares of one profile an instance takes."""
    known = catalog.type_by_name(state.board, one.profile) if state.board is not None and one.profile else None
    return max(1, (known.max_per_gi if known is not None else None) or 1)


def _divide(
    instance: GpuInstance,
    inside: Sequence[Segment],
    between: tuple[int, int],
    state: GpuState,
    creatable: Collection[str],
) -> list[Segment]:
    """An instance's memory: its shares, then the rest."""
    at, end = between
    whole = end - at
    segments = []
    for one in inside:
        size = min(whole // _most_in(instance, one, state), end - at)
        segments.append(replace(one, start_mib=at, size_mib=size))
        at += size
    if inside:
        is_free = inside[0].profile in creatable or bool(instance.heterogeneous)
        kind = SegmentKind.FREE if is_free else SegmentKind.UNUSABLE
        # Rounding leaves less than a share.
        if end - at < whole // 64:
            segments[-1] = replace(segments[-1], size_mib=segments[-1].size_mib + end - at)
            at = end
    elif instance.in_use:
        kind = SegmentKind.FOREIGN
    else:
        fitting = (Segment(SegmentKind.FREE, 0, 0, profile) for profile in creatable)
        is_free = any(_fits(one, instance, state) for one in fitting)
        kind = SegmentKind.FREE if is_free else SegmentKind.UNUSABLE
    rest = Segment(kind, at, end - at, instance.profile if not inside else None, instance=instance.id)
    return [*segments, rest] if rest.size_mib else segments
