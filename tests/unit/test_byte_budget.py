# SPDX-License-Identifier: Apache-2.0
"""The bound of what another machine sends in a session: a burst, a lasting rate, and no way back."""

import pytest

from vgpuctl.byte_budget import ByteBudget


def test_a_lasting_rate_is_taken_for_ever_and_a_burst_once() -> None:
    now = [0.0]
    budget = ByteBudget("the host", 10 * 2**20, per_second=2**20, clock=lambda: now[0])
    for _ in range(1000):
        now[0] += 5
        budget.take(5 * 2**20)
    budget.take(5 * 2**20)
    with pytest.raises(OSError, match="the host sent more than 10 MiB and 1 MiB/s"):
        budget.take(1)
    now[0] += 3600
    with pytest.raises(OSError, match="10 MiB"):
        budget.take(1)
    assert budget.refusal == "the host sent more than 10 MiB and 1 MiB/s"
