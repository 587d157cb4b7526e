# SPDX-License-Identifier: Apache-2.0
"""GPUs as bars of characters: to scale, within the width, and with names that try to break out."""

import pytest
from hypothesis import given
from hypothesis import strategies as some_of
from rich.cells import cell_len

from tests.unit.fleet_factory import GIB
from vgpuctl.cli.shown.gpu_bar import draw_bar, legend, slot_lines, spread
from vgpuctl.cli.shown.map_output import print_map
from vgpuctl.cli.shown.terminal import fitted, wrapped
from vgpuctl.model.gpu_map import Closed, Creatable, GpuMap, MapInstance, MapMode, Segment, SegmentKind

_SIZES = some_of.lists(some_of.integers(0, 100_000), max_size=40)


def a_map(*segments: tuple[SegmentKind, int, str | None], **more: object) -> GpuMap:
    """A GPU with these segments: kind, size in GiB, VM."""
    drawn, at = [], 0
    for kind, size, vm in segments:
        tenant = None if vm is None else "acme"
        profile = None if vm is None else f"A40-{size}Q"
        drawn.append(Segment(kind, at * GIB, size * GIB, profile, tenant, vm, lease_state=vm and "running"))
        at += size
    made = {"mode": MapMode.EQUAL, "memory_mib": at * GIB, "numa_node": 0, **more}
    return GpuMap("gpu1", "0000:41:00.0", None, "NVIDIA A40", segments=tuple(drawn), **made)  # type: ignore[arg-type]  # the tests name real fields


def bar(drawn: GpuMap, width: int) -> str:
    return "".join(one.text for one in draw_bar(drawn, width))


@given(sizes=_SIZES, width=some_of.integers(0, 200))
def test_columns_add_up_and_each_part_has_one_as_long_as_they_last(sizes: list[int], width: int) -> None:
    cells = spread(sizes, width)
    assert len(cells) == len(sizes) and all(one >= 0 for one in cells)
    assert sum(cells) == (width if sum(sizes) else 0)
    assert all(cell == 0 for cell, size in zip(cells, sizes, strict=True) if not size)
    if width >= sum(1 for one in sizes if one):
        assert all(cell > 0 for cell, size in zip(cells, sizes, strict=True) if size)


def test_a_bar_is_to_scale_and_tells_the_kinds_apart_without_colour() -> None:
    drawn = a_map(
        (SegmentKind.SHARE, 8, "web-1"),
        (SegmentKind.FOREIGN, 8, None),
        (SegmentKind.FREE, 16, None),
        (SegmentKind.NEEDS_INSTANCE, 4, None),
        (SegmentKind.UNUSABLE, 8, None),
        (SegmentKind.CLOSED, 4, None),
    )
    assert bar(drawn, 48) == "[web-1=][######]................----xxxxxxxx!!!!"
    assert [one.text[:3] for one in legend([drawn])] == ["[=]", "[#]", "...", "---", "xxx", "!!!"]
    assert len({one.colour for one in draw_bar(drawn, 48)}) == 6


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 80])
@pytest.mark.parametrize(
    "name", ["web-1", "\x1b[31mred\n", "網路伺服器網路伺服器", "\u202egnp.exe", "e\u0301" * 20, ""]
)
def test_no_name_and_no_width_break_the_bar(name: str, width: int) -> None:
    drawn = a_map((SegmentKind.SHARE, 24, name), (SegmentKind.FREE, 24, None))
    text = bar(drawn, width)
    assert cell_len(text) == width and text.isprintable()


def test_more_shares_than_columns_are_still_a_bar() -> None:
    drawn = a_map(*[(SegmentKind.SHARE, 1, f"vm-{number}") for number in range(2000)])
    assert bar(drawn, 60) == "=" * 60


def test_a_gpu_without_memory_is_an_empty_bar() -> None:
    assert draw_bar(a_map(), 80) == [] and legend([]) == []


def test_slots_and_instances_are_below_the_bar() -> None:
    drawn = a_map(
        (SegmentKind.SHARE, 20, "web-1"),
        (SegmentKind.NEEDS_INSTANCE, 10, None),
        (SegmentKind.FREE, 5, None),
        (SegmentKind.UNUSABLE, 5, None),
        mode=MapMode.MIG,
        slots=8,
        instances=(MapInstance(1, "3g.20gb", 0, 4), MapInstance(2, "1g.5gb", 6, 1), MapInstance(9, "lies", 6, 99)),
    )
    lines = [bar(drawn, 64), *slot_lines(drawn, 64)]
    assert lines == [
        "[web-1=========================]----------------........xxxxxxxx",
        "0       1       2       3       4       5       6       7       ",
        "[1:3g.20gb_____________________]                [2:1g.+]",
    ]
    assert slot_lines(a_map((SegmentKind.FREE, 1, None)), 64) == []


def test_a_gpu_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = a_map(
        (SegmentKind.SHARE, 8, "web-1"),
        (SegmentKind.FREE, 40, None),
        creatable=(Creatable("A40-8Q", 8 * GIB, 5), Creatable("A40-8C", 8 * GIB, 5)),
    )
    print_map(drawn, "present, 3m ago", 80)
    assert capsys.readouterr().out == (
        "gpu1 0000:41:00.0 NVIDIA A40 48 GiB, equal-size vGPUs, NUMA 0, 3m ago\n"
        "  [web-1======].................................................................\n"
        "  free 40 GiB; largest still creatable: 5 x A40-8Q (8 GiB)\n"
        "  acme/web-1 A40-8Q\n"
        "\n"
    )


def test_a_closed_gpu_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    closed = Closed("gpu-quarantine", "in quarantine: it smells (off-the-bus)")
    vfs = (("0000:41:00.4", "VF 0000:41:00.4 is in quarantine: wedged"),)
    print_map(a_map((SegmentKind.CLOSED, 48, None), closed=closed, closed_vfs=vfs), "unknown since noon", 60)
    out = capsys.readouterr().out
    assert "gpu-quarantine: in quarantine: it smells (off-the-bus)" in out and "VF 0000:41:00.4" in out
    assert "unknown since noon" in out and "of it 48 GiB is closed" in out


@given(text=some_of.text(max_size=40), width=some_of.integers(0, 30))
def test_fitted_text_has_exactly_its_columns(text: str, width: int) -> None:
    assert cell_len(fitted(text, width)) == width


def test_words_are_wrapped_by_columns() -> None:
    assert wrapped(["網路", "ab", "cd"], 8, indent="  ") == ["  網路", "  ab cd"]
    assert wrapped(["longer-than-all"], 3) == ["longer-than-all"] and wrapped([], 3) == []
