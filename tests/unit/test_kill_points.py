# SPDX-License-Identifier: Apache-2.0
"""The side effects after which the tests kill a command."""

import pytest

from tests.e2e.kills import kill_points

EFFECTS = ["transaction", "transaction", "apply", "transaction", "apply", "transaction", "transaction", "transaction"]


def test_one_of_each_kind_and_both_ends_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VGPUCTL_TESTS_ALL_KILL_POINTS", raising=False)
    assert kill_points(EFFECTS) == [1, 2, 3, 4, 8]
    assert kill_points(EFFECTS, most=3) == [1, 3, 8]
    assert kill_points(EFFECTS, most=9) == [1, 2, 3, 4, 8]
    assert kill_points(["apply"]) == [1]


def test_the_proof_kills_after_every_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUCTL_TESTS_ALL_KILL_POINTS", "1")
    assert kill_points(EFFECTS, most=3) == [1, 2, 3, 4, 5, 6, 7, 8]
