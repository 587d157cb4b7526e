# SPDX-License-Identifier: Apache-2.0
"""The robust trend."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.scheduler.advice.trend import FEWEST_POINTS, trend


def _noise(dice: random.Random, slope: float, correlation: float = 0.0) -> list[tuple[float, float]]:
    left, found = 0.0, []
    for minute in range(60):
        left = correlation * left + dice.gauss(0, 1)
        found.append((60.0 * minute, left + slope * minute))
    return found


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 0.004), (0.7, 0.01)])
def test_noise_without_trend_is_rarely_taken_for_a_rise(correlation: float, most: float) -> None:
    dice = random.Random(5)
    rises = [trend(_noise(dice, 0.0, correlation)) for _ in range(1000)]
    assert sum(one is not None and one.rises for one in rises) / 1000 <= most


def test_the_interval_holds_the_true_slope() -> None:
    dice = random.Random(6)
    found = [trend(_noise(dice, 0.2)) for _ in range(200)]
    inside = sum(one is not None and one.low <= 0.2 / 60 <= one.high for one in found)
    assert 0.84 <= inside / 200 <= 0.99
    assert all(one is not None and one.rises for one in found)


def test_outliers_do_not_move_it_and_it_tells_when_a_limit_is_reached() -> None:
    points = [(60.0 * minute, 10.0 + minute + (50 if minute % 9 == 0 else 0)) for minute in range(60)]
    found = trend(points)
    assert found is not None
    assert found.slope * 60 == pytest.approx(1.0, abs=0.1)
    assert found.level == pytest.approx(69.0, abs=3)
    arrival = found.seconds_until(found.level + 60 * found.slope * 30)
    assert arrival is not None
    assert arrival.expected_s == pytest.approx(1800)
    assert arrival.earliest_s <= arrival.expected_s <= arrival.latest_s
    assert found.seconds_until(0.0) is not None
    assert found.seconds_until(0.0) == trend(points).seconds_until(found.level)  # type: ignore[union-attr]


def test_flat_falling_and_short_series_reach_no_limit() -> None:
    assert trend([(60.0 * minute, 5.0) for minute in range(FEWEST_POINTS - 1)]) is None
    assert trend([(60.0, 1.0)] * 20) is None
    for slope in (0.0, -1.0):
        found = trend([(60.0 * minute, slope * minute) for minute in range(30)])
        assert found is not None
        assert found.seconds_until(1e9) is None


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e12, 1e12)), max_size=120))
@settings(max_examples=100, deadline=None)
def test_any_series_has_a_slope_inside_its_interval(points: list[tuple[float, float]]) -> None:
    found = trend(sorted(points))
    assert found is None or found.low <= found.slope <= found.high
