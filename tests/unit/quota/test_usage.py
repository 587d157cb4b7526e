# SPDX-License-Identifier: Apache-2.0
"""Sums of the intervals of the usage ledger."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.quota.usage import Interval, add_up, gpu_seconds

HOUR = 3600.0


def interval(lease: str, begun_at: float, ended_at: float | None, tenant: str = "acme", part: float = 0.25) -> Interval:
    return Interval(lease, tenant, "u", "web", "gpu1", "0000:41:00.0", "A40-12Q", 12288, 0, part, begun_at, ended_at)


def test_hours_are_counted_within_the_range_only() -> None:
    there = [interval("a", 0, 10 * HOUR), interval("b", 9 * HOUR, None), interval("c", 0, HOUR, tenant="umbrella")]
    (line,) = add_up(there, 8 * HOUR, 12 * HOUR)
    assert (line.tenant, line.shares, line.attached) == ("acme", 2, 1)
    assert line.share_hours == pytest.approx(2 + 3)
    assert line.framebuffer_gib_hours == pytest.approx(5 * 12)
    assert line.gpu_hours == pytest.approx(5 * 0.25)
    assert gpu_seconds(there, 8 * HOUR, 12 * HOUR) == 5 * 900


intervals = st.lists(
    st.builds(
        lambda lease, begin, length, part: interval(str(lease), begin, begin + length, part=part),
        st.integers(), st.floats(0, 100), st.floats(0, 100), st.floats(0, 1),
    )
)  # fmt: skip


@given(intervals, st.lists(st.floats(0, 200), min_size=2, max_size=2))
def test_a_range_uses_as_much_as_its_two_parts(there: list[Interval], cuts: list[float]) -> None:
    first, second = sorted(cuts)

    def gpu_hours(since: float, until: float) -> float:
        return sum(line.gpu_hours for line in add_up(there, since, until))

    parts = gpu_hours(0, first) + gpu_hours(first, second) + gpu_hours(second, 300)
    assert parts == pytest.approx(gpu_hours(0, 300), abs=1e-9)
    assert gpu_seconds(there, 0, 300) >= gpu_hours(0, 300) * 3600 - 1e-6
