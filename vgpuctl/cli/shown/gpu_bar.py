# SPDX-License-Identifier: Apache-2.0
"""A GPU's memory as a bar of characters, to scale. Colour repeats what the characters say."""

from collections.abc import Sequence
from itertools import pairwise

from rich.cells import cell_len

from vgpuctl.cli.shown.output import Styled
from vgpuctl.cli.shown.terminal import fitted
from vgpuctl.model.gpu_map import GpuMap, Segment, SegmentKind

_FILL = {
    SegmentKind.SHARE: "=",
    SegmentKind.FOREIGN: "#",
    SegmentKind.FREE: ".",
    SegmentKind.NEEDS_INSTANCE: "-",
    SegmentKind.UNUSABLE: "x",
    SegmentKind.CLOSED: "!",
}
_COLOURS = {
    SegmentKind.SHARE: "green",
    SegmentKind.FOREIGN: "magenta",
    SegmentKind.FREE: "cyan",
    SegmentKind.NEEDS_INSTANCE: "blue",
    SegmentKind.UNUSABLE: "yellow",
    SegmentKind.CLOSED: "red",
}


def draw_bar(drawn: GpuMap, width: int) -> list[Styled]:
    """The segments in `width` columns; each has at least one as long as there are enough."""
    cells = spread([one.size_mib for one in drawn.segments], width)
    return [
        Styled(_cells_of(one, count), _COLOURS[one.kind])
        for one, count in zip(drawn.segments, cells, strict=True)
        if count
    ]


def slot_lines(drawn: GpuMap, width: int) -> list[str]:
    """Below the bar of a GPU in MIG mode: its memory slots, and the instances at theirs; nothing without MIG."""
    if drawn.slots is None:
        return []
    edges = [slot * width // drawn.slots for slot in range(drawn.slots + 1)]
    ruler = "".join(fitted(str(slot), edges[slot + 1] - edges[slot]) for slot in range(drawn.slots))
    line = ""
    for one in drawn.instances:
        begin, end = (edges[min(at, drawn.slots)] for at in (one.start, one.start + one.size))
        if begin >= len(line) and end > begin:
            line += " " * (begin - len(line)) + _framed(f"{one.id}:{one.profile}", end - begin, "_")
    return [ruler, line] if line else [ruler]


def legend(maps: Sequence[GpuMap]) -> list[Styled]:
    """The kinds of segments that these maps have, as `[===] share of a VM`."""
    there = {one.kind for drawn in maps for one in drawn.segments}
    return [
        Styled(f"{_cells_of(Segment(kind, 0, 1), 3)} {kind.text}", _COLOURS[kind])
        for kind in SegmentKind
        if kind in there
    ]


def spread(sizes: Sequence[int], width: int) -> list[int]:
    """Divide `width` columns by sizes: their sum is `width`, and nothing but 0 has none while columns last."""
    total, at = sum(sizes), 0
    if not total or width <= 0:
        return [0] * len(sizes)
    edges = [0]
    for size in sizes:
        at += size
        edges.append((at * width * 2 + total) // (2 * total))
    cells = [end - begin for begin, end in pairwise(edges)]
    for index, size in enumerate(sizes):
        largest = max(range(len(cells)), key=lambda one: (cells[one], -one))
        if size and not cells[index] and cells[largest] > 1:
            cells[largest] -= 1
            cells[index] = 1
    return cells


def _cells_of(one: Segment, width: int) -> str:
    fill = _FILL[one.kind]
    if one.kind.is_free():
        return fill * width
    return _framed((one.vm or one.profile or "") if width > 4 else "", width, fill)


def _framed(text: str, width: int, fill: str) -> str:
    """`[text==]`, or as much of it as there is room for."""
    if width < 3:
        return "[]"[:width] if width == 2 else fill * width
    inside = fitted(text, width - 2).rstrip()
    return f"[{inside}{fill * (width - 2 - cell_len(inside))}]"
