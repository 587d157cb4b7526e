# SPDX-License-Identifier: Apache-2.0
"""The words of an event's values."""

from vgpuctl.model.event import Event, Value


def _words(before: dict[str, Value], after: dict[str, Value]) -> list[str]:
    return Event(1, 0.0, "vm-moved", "acme/web", before=before, after=after).changes


def test_what_changed_has_an_arrow_and_what_stayed_or_is_new_has_none() -> None:
    assert _words({"state": "running", "host": "gpu1"}, {"state": "stopped", "host": "gpu1"}) == [
        "state: running → stopped",
        "host: gpu1",
    ]
    assert _words({}, {"host": "gpu1"}) == ["host: gpu1"]


def test_nothing_is_said_where_a_value_ended_or_is_empty() -> None:
    assert _words({"shares": ["A40-8Q", "T4-4Q"], "host": "gpu1"}, {"shares": []}) == [
        "shares: A40-8Q, T4-4Q → nothing",
        "host: gpu1 → nothing",
    ]
    assert _words({"finding": ""}, {"finding": None}) == ["finding: nothing"]


def test_a_truth_is_yes_or_no() -> None:
    assert _words({"marked": False}, {"marked": True}) == ["marked: no → yes"]
