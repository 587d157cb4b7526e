# SPDX-License-Identifier: Apache-2.0
"""Curves: values between points, repetition, what a counter has counted, and the file they lie in."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl_lab.simulated.machine.curves import Curve, Curves, parse, render

RAMP = Curve(((10.0, 1.0), (20.0, 3.0), (30.0, 3.0)))


@pytest.mark.parametrize(
    ("elapsed_s", "value"), [(-5, 1), (0, 1), (10, 1), (15, 2), (20, 3), (25, 3), (30, 3), (1e9, 3)]
)
def test_a_curve_is_linear_between_its_points_and_constant_outside(elapsed_s: float, value: float) -> None:
    assert RAMP.value(elapsed_s) == value


def test_a_repeated_curve_begins_again() -> None:
    saw = Curve(((0.0, 0.0), (10.0, 1.0)), repeat_s=10)
    assert [saw.value(at) for at in (0, 5, 10, 15, 105)] == [0, 0.5, 0, 0.5, 0.5]


def test_one_point_is_a_constant() -> None:
    assert [Curve(((0.0, 0.7),)).value(at) for at in (-1, 0, 99)] == [0.7] * 3


@pytest.mark.parametrize(("elapsed_s", "seconds"), [(-1, 0), (0, 0), (10, 10), (15, 17.5), (20, 30), (40, 90)])
def test_the_integral_is_what_a_counter_has_counted(elapsed_s: float, seconds: float) -> None:
    assert RAMP.integral(elapsed_s) == pytest.approx(seconds)


def test_the_integral_of_a_repeated_curve_adds_its_rounds() -> None:
    saw = Curve(((0.0, 0.0), (10.0, 1.0)), repeat_s=10)
    assert saw.integral(25) == pytest.approx(5 + 5 + 1.25)


_NUMBERS = st.floats(0, 1e6)


@given(
    st.lists(st.tuples(_NUMBERS, _NUMBERS), min_size=1, max_size=8, unique_by=lambda one: one[0]),
    st.sampled_from([0.0, 7.5, 1000.0]),
    st.lists(st.floats(0, 1e5), min_size=2, max_size=6),
)
def test_a_counter_never_falls(points: list[tuple[float, float]], repeat_s: float, times: list[float]) -> None:
    curve = Curve(tuple(sorted(points)), repeat_s)
    counted = [curve.integral(at) for at in sorted(times)]
    assert all(left <= right * (1 + 1e-9) + 1e-6 for left, right in itertools.pairwise(counted))


def test_the_file_is_read_as_it_was_written() -> None:
    curves = Curves(
        1700000000.125,
        {
            ("gpu:0000:41:00.0", "xid/79"): Curve(((0.0, 0.0), (10.0, 1.0))),
            ("vgpu:0000:41:00.4", "framebuffer_used_bytes"): Curve(((0.0, 8589934592.0),), 300.0),
        },
    )
    assert parse(render(curves)) == curves
    assert render(curves).splitlines()[1] == "gpu:0000:41:00.0 xid/79 0 0:0 10:1"


@pytest.mark.parametrize("text", ["begin 1\n", "start\n", "start x\n", "start 1\ngpu:a power_watts 0 x\n", ""])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse(text)
