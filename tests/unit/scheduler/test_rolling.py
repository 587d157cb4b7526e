# SPDX-License-Identifier: Apache-2.0
"""The load of the last hour."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.scheduler.rolling import FEWEST_MINUTES, part_seen, rolling_load

NOW = 1_800_000_000.0


def _steady(minutes: int, mean: float, high: float, first_age_s: float = 60.0) -> list[tuple[float, float, float]]:
    return [(NOW - first_age_s - 60 * number, mean, high) for number in range(minutes)]


def test_a_steady_load_is_its_mean_and_a_quarter_of_its_peak() -> None:
    load = rolling_load(_steady(60, 0.4, 0.8), NOW)
    assert load is not None
    assert (load.minutes, load.age_s) == (60, 60.0)
    assert load.mean == pytest.approx(0.4)
    assert load.percent == pytest.approx(100 * (0.75 * 0.4 + 0.25 * 0.8 * 0.966), abs=1)


@pytest.mark.parametrize("minutes", [0, 1, 10, 30, 60, 90])
def test_the_part_that_is_seen_of_a_share_is_its_part_of_the_mean(minutes: int) -> None:
    samples = [*_steady(min(minutes, 60), 1.0, 1.0, 0.0), *_steady(60 - minutes, 0.0, 0.0, 60.0 * minutes)]
    load = rolling_load(samples, NOW)
    assert load is not None
    assert part_seen(60 * minutes) == pytest.approx(load.mean, abs=0.02)


def test_what_is_old_fades_and_what_is_too_old_or_too_little_does_not_count() -> None:
    busy_then_idle = [*_steady(20, 0.0, 0.0), *_steady(20, 1.0, 1.0, first_age_s=40 * 60)]
    idle_then_busy = [*_steady(20, 1.0, 1.0), *_steady(20, 0.0, 0.0, first_age_s=40 * 60)]
    then, now = rolling_load(busy_then_idle, NOW), rolling_load(idle_then_busy, NOW)
    assert then is not None
    assert now is not None
    assert then.percent < 35
    assert now.percent > 70
    assert rolling_load(_steady(FEWEST_MINUTES - 1, 0.5, 0.5), NOW) is None
    assert rolling_load(_steady(30, 0.5, 0.5, first_age_s=700), NOW) is None
    assert rolling_load(_steady(30, 0.5, 0.5, first_age_s=4000), NOW) is None
    assert rolling_load(_steady(30, 0.5, 0.5, first_age_s=-4000), NOW) is None


@given(
    st.lists(st.tuples(st.floats(NOW - 5000, NOW + 100), st.floats(-1, 3), st.floats(-1, 3)), min_size=FEWEST_MINUTES)
)
def test_any_load_is_a_part(samples: list[tuple[float, float, float]]) -> None:
    load = rolling_load(samples, NOW)
    assert load is None or 0 <= load.mean <= load.peak <= 1
    assert load is None or 0 <= load.percent <= 100
