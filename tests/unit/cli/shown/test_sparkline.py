# SPDX-License-Identifier: Apache-2.0
"""Sparklines: to scale, peaks kept, gaps seen, and never wider than the terminal."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some_of

from vgpuctl.cli.shown.sparkline import figures_of, print_last_hour, sparkline
from vgpuctl.usecases.measured.last_hour import LastHour, PastLine

_VALUES = some_of.lists(some_of.none() | some_of.floats(allow_nan=True, allow_infinity=True), max_size=90)


@pytest.mark.parametrize(
    ("values", "width", "top", "blocks", "ascii_"),
    [
        ([0.0, 0.5, 1.0], 3, 1.0, "▁▅█", "_+#"),
        ([None, 1.0, None], 3, 1.0, " █ ", " # "),
        ([0.0, 0.0, 0.9, 0.0], 2, 1.0, "▁█", "_#"),
        ([0.0, 0.0], 2, 0.0, "▁▁", "__"),
        ([-1.0, 9.0], 2, 1.0, "▁█", "_#"),
        ([1.0], 9, 1.0, "█", "#"),
        ([], 9, 1.0, "", ""),
        ([1.0, 1.0], 0, 1.0, "", ""),
    ],
)
def test_values_become_characters(values: list[float | None], width: int, top: float, blocks: str, ascii_: str) -> None:
    assert sparkline(values, width, top=top, blocks=True) == blocks
    assert sparkline(values, width, top=top, blocks=False) == ascii_


@given(values=_VALUES, width=some_of.integers(-1, 100), top=some_of.floats(allow_nan=False, allow_infinity=False))
def test_any_values_fit(values: list[float | None], width: int, top: float) -> None:
    drawn = sparkline(values, width, top=top, blocks=False)
    assert len(drawn) == max(0, min(width, len(values))) and drawn.isascii()
    if width >= len(values):
        assert [cell == " " for cell in drawn] == [one is None or not math.isfinite(one) for one in values]


def line(measure: str, *values: float | None) -> PastLine:
    known = [one for one in values if one is not None]
    return PastLine(measure, "", "u-1", (*[None] * (60 - len(values)), *values), min(known), max(known))


def test_figures_have_units_and_now_is_now() -> None:
    assert figures_of(line("utilization_ratio", 0.05, 0.98, 0.12)) == "5-98%, 12% now"
    assert figures_of(line("power_watts", 100.0, 250.0, None, None, None)) == "100-250 W"
    assert figures_of(line("framebuffer_used_bytes", 1.5 * 2**30)) == "1.5-1.5 GiB, 1.5 GiB now"
    assert figures_of(line("xid", 3.0)) == "3-3, 3 now"


@pytest.mark.parametrize("width", [1, 48, 80, 200])
def test_lines_fit_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_last_hour(LastHour(0.0, (line("utilization_ratio", *[0.5] * 60),)), titles={"u-1": "A40-8Q"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  A40-8Q" and "utilization" in lines[2] and "50-50%" in lines[2]
    if width >= 48:
        assert len(lines[2]) <= width


def test_no_history_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_last_hour(LastHour(0.0, problem="no history of readings: x is not there"))
    assert capsys.readouterr().out == "last hour no history of readings: x is not there\n"
