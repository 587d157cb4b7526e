# SPDX-License-Identifier: Apache-2.0
"""Batches and the failures that end a rollout."""

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.usecases.layout.rollout import FailureBudget, batches, parse_serial

TEN = [f"gpu{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("serial", "sizes"),
    [
        (None, [10]),
        ("3", [3, 3, 3, 1]),
        ("25%", [2, 2, 2, 2, 2]),
        ("1,5,50%", [1, 5, 4]),
        ("1%", [1] * 10),
        ("99", [10]),
    ],
)
def test_hosts_are_cut_into_batches_in_order(serial: str | None, sizes: list[int]) -> None:
    found = batches(TEN, parse_serial(serial))
    assert [len(batch) for batch in found] == sizes
    assert [name for batch in found for name in batch] == TEN


@pytest.mark.parametrize("serial", ["", "0", "-1", "101%", "0%", "1.5", "two", "1,,2"])
def test_what_is_no_batch_is_refused(serial: str) -> None:
    with pytest.raises(UsageError):
        parse_serial(serial)


def test_one_failure_more_than_allowed_spends_the_budget() -> None:
    def is_spent(most: int | None, failures: int) -> bool:
        budget = FailureBudget(most)
        for _ in range(failures):
            budget.count()
        return budget.is_spent

    assert [is_spent(1, failures) for failures in range(3)] == [False, False, True]
    assert not is_spent(None, 2)
