# SPDX-License-Identifier: Apache-2.0
"""Mixed-size mode (reference 3.3): a vGPU of a size begins at certain places only, and overlaps no other.

The driver takes the first place that is free. The host lists them; promises that it has not seen are subtracted.
"""

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import VgpuType
from vgpuctl.sharing.gpu_state import GpuState, HeldVgpu

Range = tuple[int, int]


def starts_left(offered: VgpuType, state: GpuState) -> tuple[int, ...] | None:
    """Where a vGPU of this type can still begin; None when the GPU is in another mode or does not tell."""
    if offered.creatable_starts is None:
        return None
    unseen = sorted(
        (held for held in state.vgpus if not held.seen), key=lambda held: (held.start is None, held.name or "")
    )
    taken: list[Range] = []
    for held in unseen:
        found = _range_of(held, state, taken)
        if found is not None:
            taken.append(found)
    return _free(offered, taken)


def first_start(offered: VgpuType, state: GpuState) -> int | None:
    """Where the driver places the next vGPU of this type."""
    starts = starts_left(offered, state)
    return starts[0] if starts else None


def all_places(board: catalog.Board | None, name: str) -> tuple[int, tuple[int, ...]]:
    """How much a type takes and where it may begin on an empty GPU, by the published table of the model."""
    table = catalog.mixed_size_table(board) if board is not None else None
    known = catalog.type_by_name(board, catalog.short_name(name)) if board is not None else None
    if table is None or known is None or known.placement_size is None:
        return 0, ()
    return known.placement_size, table.sizes.get(known.placement_size, ())


def count_left(starts: tuple[int, ...], size: int) -> int:
    """How many vGPUs of a size fit beside each other into these places."""
    count, end = 0, 0
    for start in starts:
        if start >= end:
            count, end = count + 1, start + size
    return count


def _range_of(held: HeldVgpu, state: GpuState, taken: list[Range]) -> Range | None:
    """The place of an unseen vGPU: the promised one, else the first for its type."""
    offered = next((one for one in state.gpu.types if catalog.short_name(one.name) == held.name), None)
    if offered is None:
        return None
    starts = _free(offered, taken) if held.start is None else (held.start,)
    return (starts[0], starts[0] + offered.placement_size) if starts else None


def _free(offered: VgpuType, taken: list[Range]) -> tuple[int, ...]:
    return tuple(
        start
        for start in offered.creatable_starts or ()
        if all(start + offered.placement_size <= low or high <= start for low, high in taken)
    )
