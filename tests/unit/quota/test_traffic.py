# SPDX-License-Identifier: Apache-2.0
"""Increases of counters: nothing is counted twice, whatever begins anew."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.quota.traffic import (
    DAY_S,
    MOST,
    Counters,
    HostCounters,
    TrafficCount,
    TrafficKind,
    TrafficLine,
    add_up_traffic,
    increases,
    whole_days,
)

WEB = "11111111-2222-4333-8444-555555555555"


def _at(number: int, *, started_s: float | None = 5.0, boot: str = "one", device: str = "vnet0") -> HostCounters:
    """A host whose only VM has received so many bytes and sent twice as many."""
    return HostCounters(boot, {WEB: Counters(started_s, {device: TrafficCount(number, 2 * number, 1, 1)})})


NOTHING = HostCounters("one", {})


@pytest.mark.parametrize(
    ("before", "now", "received"),
    [
        (None, _at(900), 0),
        (NOTHING, _at(900), 900),
        (_at(100), _at(900), 800),
        (_at(100), _at(100), 0),
        (_at(900), _at(100), 100),
        (_at(100), _at(900, started_s=77.0), 900),
        (_at(100), _at(900, boot="two"), 900),
        (_at(100, started_s=None), _at(900, started_s=None), 800),
        (_at(100), _at(900, device="vnet1"), 900),
        (_at(100), NOTHING, 0),
        (_at(100), _at(MOST + 200), 0),
    ],
    ids=[
        "first reading of the host", "first reading of the VM", "it runs on", "silence", "the interface was made again",
        "QEMU was started again", "the host was booted", "nobody tells the start", "another interface", "not read",
        "a counter that lies",
    ],
)  # fmt: skip
def test_what_a_reading_adds(before: HostCounters | None, now: HostCounters, received: int) -> None:
    found = increases(before, now)
    assert sum(one.received_bytes for one in found.values()) == received


def test_an_adopted_vm_begins_with_its_first_reading() -> None:
    assert increases(NOTHING, _at(900), adopted={WEB}) == {}
    assert increases(_at(900), _at(950), adopted={WEB})[WEB].received_bytes == 50


def test_one_counter_that_falls_makes_all_of_its_interface_new() -> None:
    assert TrafficCount(10, 50, 3, 3).since(TrafficCount(5, 60, 1, 1)) == TrafficCount(10, 50, 3, 3)


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.booleans()), max_size=20))
def test_the_increases_add_up_to_what_was_carried(carried: list[tuple[int, bool]]) -> None:
    last, counter, started_s, total, counted = NOTHING, 0, 1.0, 0, 0
    for more, is_restarted in carried:
        if is_restarted:
            counter, started_s = 0, started_s + 1
        counter += more
        total += more
        now = _at(counter, started_s=started_s)
        counted += sum(one.received_bytes for one in increases(last, now).values())
        last = now
    assert counted == total


def test_days_add_up_to_one_line_with_the_last_name() -> None:
    first = TrafficLine("acme", TrafficKind.VM, WEB, "web", 1, 2, 3, 4, 10.0, 20.0)
    second = replace(first, name="www", first_at=DAY_S + 1.0, last_at=DAY_S + 2.0)
    other = replace(first, object="other", name="db")
    assert add_up_traffic([second, other, first]) == [
        other,
        TrafficLine("acme", TrafficKind.VM, WEB, "www", 2, 4, 6, 8, 10.0, DAY_S + 2.0),
    ]


def test_a_range_touches_whole_days() -> None:
    assert whole_days(1.5 * DAY_S, 2.0 * DAY_S) == (DAY_S, 2.0 * DAY_S)
    assert whole_days(DAY_S, DAY_S + 0.5) == (DAY_S, 2.0 * DAY_S)
