# SPDX-License-Identifier: Apache-2.0
"""One GPU of the map: its bar, its slots, and what is left of it in words."""

from vgpuctl.cli.shown.gpu_bar import draw_bar, slot_lines
from vgpuctl.cli.shown.output import Styled, print_line
from vgpuctl.cli.shown.terminal import wrapped
from vgpuctl.model.gpu_map import GpuMap, SegmentKind
from vgpuctl.model.units import format_mib

INDENT = "  "
MOST_BAR = 120
"""Columns of the widest bar."""


def print_map(drawn: GpuMap, seen: str, width: int) -> None:
    """Print one GPU: its title, its bar, and the rest in words."""
    node = [] if drawn.numa_node is None else [f"NUMA {drawn.numa_node},"]
    node += [] if drawn.on_fabric is None else f"{drawn.on_fabric},".split()
    title = [f"{drawn.host} {drawn.gpu}", *drawn.board.split(), f"{format_mib(drawn.memory_mib)},"]
    for line in wrapped([*title, *f"{drawn.mode},".split(), *node, *seen.removeprefix("present, ").split()], width):
        print_line(Styled(line, "", is_bold=True))
    bar = max(1, min(width - len(INDENT), MOST_BAR))
    print_line(INDENT, *draw_bar(drawn, bar))
    for line in slot_lines(drawn, bar):
        print_line(INDENT + line)
    for line in wrapped(_in_words(drawn).split(), width, indent=INDENT):
        print_line(line)
    if drawn.closed is not None:
        for line in wrapped([f"{drawn.closed.code}:", *drawn.closed.reason.split()], width, indent=INDENT):
            print_line(Styled(line, "red"))
    for _, reason in drawn.closed_vfs:
        for line in wrapped(reason.split(), width, indent=INDENT):
            print_line(Styled(line, "red"))
    for line in wrapped(_shares(drawn), width, indent=INDENT):
        print_line(line)
    print_line()


def _in_words(drawn: GpuMap) -> str:
    parts = [f"free {format_mib(drawn.free_mib)}"]
    for kind, text in (
        (SegmentKind.NEEDS_INSTANCE, "needs a MIG instance"),
        (SegmentKind.UNUSABLE, "fits no profile"),
        (SegmentKind.CLOSED, "is closed"),
    ):
        size = drawn.size_of(kind)
        if size:
            parts.append(f"of it {format_mib(size)} {text}")
    largest = drawn.largest
    if largest is not None:
        shown = f"{largest.count} x {largest.profile} ({format_mib(largest.size_mib)})"
        parts.append(f"largest still creatable: {shown}")
    elif drawn.closed is None and drawn.free_mib and drawn.why_none:
        parts.append(f"nothing can be created: {drawn.why_none}")
    return "; ".join(parts)


def _shares(drawn: GpuMap) -> list[str]:
    words = []
    for one in (*drawn.segments, *drawn.unplaced):
        if one.kind is SegmentKind.SHARE:
            state = "" if one.lease_state == "running" else f" ({one.lease_state})"
            words.append(f"{one.tenant}/{one.vm} {one.profile}{state},")
        elif one.kind is SegmentKind.FOREIGN:
            words.append(f"not ours: {one.profile or 'unknown'}{f' on {one.device}' if one.device else ''},")
    return [*words[:-1], words[-1].rstrip(",")] if words else []
