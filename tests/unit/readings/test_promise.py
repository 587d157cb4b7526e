# SPDX-License-Identifier: Apache-2.0
"""The promised share of a vGPU, its use, and what neighbours cost it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.agent.readings.promise import (
    BEST_EFFORT,
    EQUAL_SHARE,
    FIXED_SHARE,
    SATURATED_RATIO,
    instance_ratio,
    promised_ratio,
    share_utilization,
    steal_ratios,
)


@pytest.mark.parametrize(
    ("policy", "max_instances", "running", "promise"),
    [
        (FIXED_SHARE, 6, 2, 1 / 6),
        (BEST_EFFORT, 6, 2, 1 / 6),
        (EQUAL_SHARE, 6, 2, 1 / 2),
        (EQUAL_SHARE, None, 3, 1 / 3),
        (EQUAL_SHARE, 6, 0, None),
        (BEST_EFFORT, None, 2, None),
        (BEST_EFFORT, 0, 2, None),
        ("unknown", 6, 2, None),
        (None, 6, 2, None),
    ],
)
def test_the_scheduler_decides_what_is_promised(
    policy: str | None, max_instances: int | None, running: int, promise: float | None
) -> None:
    assert promised_ratio(policy, max_instances=max_instances, running=running) == promise


@pytest.mark.parametrize(
    ("slices", "all_slices", "per_instance", "promise"),
    [(3, 7, 1, 3 / 7), (2, 4, 4, 1 / 8), (0, 7, 1, None), (1, 0, 1, None), (1, 7, 0, None)],
)
def test_a_mig_backed_vgpu_is_promised_its_part_of_its_instance(
    slices: int, all_slices: int, per_instance: int, promise: float | None
) -> None:
    assert instance_ratio(slices, all_slices, per_instance) == promise


def test_use_of_a_promise_is_missing_without_one_of_both() -> None:
    assert share_utilization(0.33, 1 / 6) == pytest.approx(1.98)
    assert share_utilization(None, 0.5) is None
    assert share_utilization(0.5, None) is None
    assert share_utilization(0.5, 0.0) is None


@pytest.mark.parametrize(
    ("shares", "steals"),
    [
        # The GPU has idle time: nobody lost any.
        ([(0.5, 0.25), (0.1, 0.25)], [0, 0]),
        # The neighbour has more than the other lacks.
        ([(0.9, 0.25), (0.1, 0.25)], [0, 0.15]),
        # The others' excess is less than what it lacks.
        ([(0.55, 0.5), (0.4, 0.5)], [0, 0.05]),
        # A guest that does nothing lost nothing.
        ([(1.0, 0.25), (0.0, 0.25)], [0, 0]),
        # Two that lack, one that has too much: each may have lost all of it.
        ([(0.8, 0.25), (0.1, 0.25), (0.1, 0.25)], [0, 0.15, 0.15]),
        # Exactly its promise.
        ([(0.75, 0.5), (0.25, 0.25)], [0, 0]),
        # An unknown use counts neither as excess nor as loss.
        ([(0.95, None), (0.01, 0.25), (None, 0.25)], [None, 0, None]),
        ([], []),
    ],
)
def test_steal_is_what_neighbours_above_their_promise_took(
    shares: list[tuple[float | None, float | None]], steals: list[float | None]
) -> None:
    assert steal_ratios(shares) == [None if one is None else pytest.approx(one) for one in steals]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1)), min_size=1, max_size=16))
def test_nobody_loses_more_than_the_promise_or_the_excess(shares: list[tuple[float, float]]) -> None:
    excess = sum(max(used - promised, 0) for used, promised in shares)
    saturated = sum(used for used, _ in shares) >= SATURATED_RATIO
    for (used, promised), steal in zip(shares, steal_ratios(shares), strict=True):
        assert steal is not None
        assert 0 <= steal <= max(promised - used, 0) + 1e-12
        assert steal <= excess + 1e-12
        assert saturated or steal == 0
