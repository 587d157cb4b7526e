# SPDX-License-Identifier: Apache-2.0
"""The estimated stop of a live move, against VMware's published table."""

from typing import Any

import pytest

from vgpuctl.planner.moves.estimate import estimate_downtime

_V100: dict[str, Any] = {
    "read_mb_s": 10_000, "write_mb_s": 10_000, "link_mbit_s": 10_000, "memory_bytes": 16 << 30, "dirty_bytes_s": 0,
}  # fmt: skip
"""vSphere 7, GUID-8FE6A0DA: a V100 of 32 GB on a 10 Gbit/s link."""


@pytest.mark.parametrize(("used_gb", "stun_s"), [(1, 2), (2, 4), (4, 6), (8, 12), (16, 22), (32, 39)])
def test_the_estimate_is_near_the_table_of_vmware(used_gb: int, stun_s: int) -> None:
    estimate = estimate_downtime(**_V100, state_bytes=used_gb << 30)
    assert estimate == pytest.approx(stun_s, rel=0.15)


@pytest.mark.parametrize("name", [*_V100, "state_bytes"])
def test_an_unknown_value_makes_no_estimate(name: str) -> None:
    assert estimate_downtime(**{**_V100, "state_bytes": 1 << 30, name: None}) is None


def test_the_slowest_part_counts() -> None:
    fast = estimate_downtime(**_V100, state_bytes=32 << 30)
    slow = estimate_downtime(**{**_V100, "write_mb_s": 200}, state_bytes=32 << 30)
    assert fast is not None and slow is not None
    assert slow == pytest.approx(1 + (32 << 30) / 200e6) and slow > fast


def test_streaming_leaves_what_was_written_in_the_meantime() -> None:
    whole = estimate_downtime(**_V100, state_bytes=8 << 30, streams=True)
    streamed = estimate_downtime(**_V100, state_bytes=8 << 30, streams=True, state_dirty_bytes_s=87_500_000)
    assert whole == estimate_downtime(**_V100, state_bytes=8 << 30, streams=False)
    assert streamed == pytest.approx(1 + (8 << 30) / 875e6 / 10)


def test_a_guest_that_writes_faster_than_the_link_stops_for_all_of_its_memory() -> None:
    stop = estimate_downtime(**{**_V100, "dirty_bytes_s": 5 << 30}, state_bytes=0)
    assert stop == pytest.approx(1 + (16 << 30) / 875e6)
