# SPDX-License-Identifier: Apache-2.0
"""The windows of a reservation, checked one by one."""

from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.model.reservation import Reservation


def reservation(begin: int, length: int, gap: int | None) -> Reservation:
    every_s = None if gap is None else float(length + gap)
    return Reservation("acme", "nightly", (), "gpu1", (), float(begin), float(begin + length), every_s)


made = st.builds(reservation, st.integers(0, 50), st.integers(1, 20), st.none() | st.integers(0, 30))


@given(made, st.integers(0, 300))
def test_the_window_after_a_time_is_the_first_that_has_not_ended(one: Reservation, at: int) -> None:
    left = [window for window in one.windows(400) if window[1] > at]
    assert one.window_after(float(at)) == (left[0] if left else None)
    assert one.is_over(float(at)) == (not left)


@given(made, st.integers(0, 300), st.integers(1, 100))
def test_it_overlaps_a_range_when_one_of_its_windows_does(one: Reservation, begin: int, length: int) -> None:
    overlapping = any(first < begin + length and begin < last for first, last in one.windows(400))
    assert one.overlaps(float(begin), float(begin + length)) == overlapping
