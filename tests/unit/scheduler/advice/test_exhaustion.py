# SPDX-License-Identifier: Apache-2.0
"""One rule for all that can run out: what is told, how far ahead, by which VMs, and when nothing is known."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.model.exhaustible import DISK_POOL, EXHAUSTIBLE, HOST_MEMORY, HUGE_PAGES, LICENCE_SEATS, Exhaustible
from vgpuctl.model.faults import FAULTS
from vgpuctl.scheduler.advice.exhaustion import (
    AHEAD,
    JudgedSeries,
    Outlook,
    Prospect,
    SharedResource,
    Users,
    judge,
    judge_resource,
    outlook,
)
from vgpuctl.scheduler.advice.measured import DAY_S, HOUR_S, Point, Points

NOW = 1_800_000_000.0
GIB = float(1 << 30)
TOTAL = 1000 * GIB
Curve = Callable[[int], float]
"""GiB, or seats, by steps before now."""


def points(of: Curve, steps: int = 60, *, step_s: float = 60.0, unit: float = GIB, until: int = 1) -> Points:
    """A series that ends `until` steps before now."""
    return tuple(
        Point(NOW - step_s * before, value, value, value)
        for before in range(steps, until - 1, -1)
        for value in [of(before) * unit]
    )


def told(kind: Exhaustible, used: Points, users: Users | None = None, *, total: float = TOTAL) -> Outlook:
    resource = SharedResource(kind, "gpu1", ("gpu1",), "thing", total, used)
    return outlook(resource, judge_resource(resource, NOW), users or {})


@pytest.mark.parametrize(
    ("kind", "curve", "steps", "ending", "text"),
    [
        (
            DISK_POOL,
            lambda b: 900 - b / 6,
            120,
            Prospect.RUNS_OUT,
            "90% is used, and 10 GiB an hour more: used up in 10h",
        ),
        (DISK_POOL, lambda b: 960.0, 120, Prospect.USED_UP, "960 GiB of 1000 GiB are used"),
        (DISK_POOL, lambda b: 960 - b / 10, 120, Prospect.USED_UP, "959.9 GiB of 1000 GiB are used"),
        (DISK_POOL, lambda b: 500.0, 120, Prospect.LASTS, "not used up in the next"),
        (DISK_POOL, lambda b: 900 + b / 6, 120, Prospect.LASTS, "not used up in the next"),
        (HUGE_PAGES, lambda b: 1000.0, 10, Prospect.USED_UP, "are used"),
        (HUGE_PAGES, lambda b: 999.0, 120, Prospect.LASTS, "not used up"),
        (HOST_MEMORY, lambda b: 971.0, 3, Prospect.USED_UP, "by 3 readings"),
        (HOST_MEMORY, lambda b: 500.0, 1, Prospect.UNKNOWN, "1 reading, and a trend needs 6"),
        (HOST_MEMORY, lambda b: 500 - b, 5, Prospect.UNKNOWN, "5 readings, and a trend needs 6"),
        # It steps up once, and stands: nobody knows whether it goes on.
        (HOST_MEMORY, lambda b: 500 if b > 40 else 900, 120, Prospect.UNKNOWN, "it grows unevenly"),
    ],
)
def test_each_ending_is_told_with_its_evidence(
    kind: Exhaustible, curve: Curve, steps: int, ending: Prospect, text: str
) -> None:
    found = told(kind, points(curve, steps))
    assert found.ending is ending
    assert text in found.text
    assert (found.finding is not None) == (ending in (Prospect.RUNS_OUT, Prospect.USED_UP))
    if found.finding is not None:
        assert found.readings == steps
        assert found.finding.figures["readings"] == steps
        assert FAULTS[found.finding.fault].remedy


def _growing(minutes_a_gib: float, noise: float = 0.0) -> Curve:
    dice = random.Random(3)
    return lambda before: 800 - before / minutes_a_gib + dice.gauss(0, noise)


def test_the_interval_holds_the_true_end_and_grows_with_the_noise() -> None:
    widths = []
    for noise in (0.05, 2.0):
        used = points(_growing(2.0, noise), 120)
        found = judge(DISK_POOL, TOTAL, used, NOW)
        assert found.ending is Prospect.RUNS_OUT and found.arrival is not None
        true_s = 200 / 30 * HOUR_S
        assert found.arrival.earliest_s <= true_s * 1.02 and found.arrival.latest_s >= true_s * 0.98
        widths.append(found.arrival.latest_s - found.arrival.earliest_s)
    assert widths[1] > 5 * widths[0]


@pytest.mark.parametrize("minutes", [7, 30, 60, 300])
def test_nothing_is_told_further_ahead_than_its_readings_carry(minutes: int) -> None:
    """Readings of 30 minutes tell of 12 hours: growth that takes longer is unknown or lasts, and never predicted."""
    for hours in (1, 5, 10, 20, 50):
        found = judge(DISK_POOL, TOTAL, points(_growing(60 * hours / 200), minutes), NOW)
        ahead_s = min(DISK_POOL.horizon_s, AHEAD * found.span_s)
        if found.ending is Prospect.RUNS_OUT:
            assert found.arrival is not None and found.arrival.expected_s <= ahead_s
        elif found.ending is Prospect.LASTS:
            assert hours * HOUR_S > ahead_s * 0.9


def test_the_vms_behind_the_growth_are_named_with_their_parts() -> None:
    used = points(lambda b: 900 - b, 120)
    users: Users = {
        ("acme", "web"): points(lambda b: 300 - 0.5 * b, 120),
        ("acme", "db"): points(lambda b: 200 - 0.2 * b, 120),
        ("", "pet"): points(lambda b: 50 - 0.1 * b, 120),
        ("acme", "calm"): points(lambda b: 300, 120),
        ("acme", "shrinks"): points(lambda b: 10 + b / 50, 120),
    }
    found = told(DISK_POOL, used, users)
    assert [(one.tenant, one.vm, round(one.ratio, 1)) for one in found.causes] == [
        ("acme", "web", 0.5),
        ("acme", "db", 0.2),
        ("", "pet", 0.1),
    ]
    assert "behind the growth: acme/web 50%, acme/db 20%, the foreign domain pet 10%" in found.text
    assert "no VM named here is behind the other 20%" in found.text


def test_a_tenant_is_told_of_its_own_vms_alone_however_many_others_do_more() -> None:
    others: Users = {("globex", f"secret{number}"): points(lambda b: 300 - 0.15 * b, 120) for number in range(6)}
    users: Users = {**others, ("acme", "web"): points(lambda b: 300 - 0.1 * b, 120)}
    resource = SharedResource(DISK_POOL, "gpu1", ("gpu1",), "thing", TOTAL, points(lambda b: 900 - b, 120))
    judged = judge_resource(resource, NOW)
    found = outlook(resource, judged, users, "acme")
    assert [(one.tenant, one.vm) for one in found.causes] == [("acme", "web")]
    assert found.text.endswith("; behind the growth: acme/web 10%; others 90%")
    assert found.concerns("acme", None) and found.finding is not None
    none = outlook(resource, judged, users, "initech")
    assert not none.concerns("initech", None) and "secret" not in none.text
    assert len(outlook(resource, judged, users).causes) == 5


def test_what_no_vm_writes_has_no_vm_as_its_cause() -> None:
    """Logs of the host fill the file system of its pool."""
    used = points(lambda b: 900 - b, 120)
    found = told(DISK_POOL, used, {("acme", "web"): points(lambda b: 300, 120)})
    assert found.ending is Prospect.RUNS_OUT
    assert found.causes == ()
    assert "no VM that is measured is behind the growth" in found.text
    assert told(DISK_POOL, used).causes == ()


def test_what_is_used_up_without_growth_is_named_by_what_vms_hold() -> None:
    """A VM takes its huge pages as it starts."""
    used = points(lambda b: 1000, 60)
    users: Users = {("acme", "a"): points(lambda b: 600, 60), ("acme", "b"): points(lambda b: 300, 30)}
    found = told(HUGE_PAGES, used, users)
    assert [(one.vm, one.amount / GIB, one.ratio) for one in found.causes] == [("a", 600, 0.6), ("b", 300, 0.3)]
    assert "behind what is used: acme/a 60%, acme/b 30%; no VM named here is behind the other 10%" in found.text
    assert found.figures["exhaustion_seconds"] == 0.0


def test_a_vm_that_began_in_between_has_brought_all_that_it_holds_and_one_that_ended_nothing() -> None:
    used = points(lambda b: 900 - b, 120)
    users: Users = {
        ("acme", "new"): points(lambda b: 80 - b / 2, 60),
        ("acme", "ended"): points(lambda b: 400 - 2 * b, 120, until=30),
    }
    (cause,) = told(HOST_MEMORY, used, users, total=TOTAL).causes
    assert cause.vm == "new" and cause.amount / GIB == pytest.approx(79, abs=1)
    # The disk of a VM that began may be older than it: only what it has grown by since counts.
    (disk, *_) = [one for one in told(DISK_POOL, used, users).causes if one.vm == "new"]
    assert disk.amount / GIB == pytest.approx(29, abs=1)


def test_a_trend_begins_anew_after_the_end_of_a_vm_and_not_after_each_log_that_is_rotated() -> None:
    def ended(minutes: int) -> Outlook:
        return told(HOST_MEMORY, points(lambda before: (900 if before > minutes else 700) - before, 120))

    found = ended(40)
    assert found.ending is Prospect.RUNS_OUT
    assert "since it fell by 199 GiB" in found.text
    assert found.readings == 40
    assert ended(3).text == "thing: 3 readings, and a trend needs 6 or more, since it fell by 199 GiB"
    sawtooth = points(lambda before: 500 + 100 * (30 - before % 30) / 30, 120)
    assert told(HOST_MEMORY, sawtooth).ending is not Prospect.RUNS_OUT


def test_a_host_that_was_made_larger_has_the_new_end() -> None:
    used = points(lambda b: 900 - b, 100)
    small, large = (told(DISK_POOL, used, total=total * GIB) for total in (950, 1900))
    assert small.ending is Prospect.RUNS_OUT or small.ending is Prospect.USED_UP
    assert large.ending is Prospect.RUNS_OUT
    assert large.figures["exhaustion_seconds"] == pytest.approx(1001 * 60, rel=0.02)


def test_what_was_read_long_ago_tells_nothing_of_now() -> None:
    for kind in EXHAUSTIBLE:
        until = int(kind.oldest_s // kind.step_s) + 2
        old = points(lambda b: 999 - b / 10, 120, step_s=kind.step_s, until=until)
        found = told(kind, old)
        assert (found.ending, found.is_read, found.readings) == (Prospect.UNKNOWN, False, 0)
        assert "no reading of the last" in found.text
    drained = SharedResource(
        DISK_POOL, "gpu1", ("gpu1",), "thing", TOTAL, points(lambda b: 999, 60), "the host is drained"
    )
    assert judge_resource(drained, NOW) == JudgedSeries(Prospect.UNKNOWN, "the host is drained")


def test_seats_that_vms_go_on_to_take_run_out_in_days() -> None:
    steps = 14 * 24
    used = points(lambda b: float(80 - b * 40 // steps), steps, step_s=HOUR_S, unit=1.0)
    recent: Users = {("acme", f"vm{n}"): points(lambda b: 1.0, 20 * n + 1, step_s=HOUR_S, unit=1.0) for n in range(10)}
    resource = SharedResource(LICENCE_SEATS, "", (), "licence pool vws", 100.0, used)
    found = outlook(resource, judge_resource(resource, NOW), recent)
    assert found.ending is Prospect.RUNS_OUT
    assert found.figures["exhaustion_seconds"] == pytest.approx(7 * DAY_S, rel=0.15)
    assert "2.9 a day more" in found.text
    assert found.concerns(None, "any") and not found.concerns("globex", None)


def test_names_and_faults_of_kinds_are_distinct_and_have_a_remedy() -> None:
    assert len({one.name for one in EXHAUSTIBLE}) == len({one.fault for one in EXHAUSTIBLE}) == len(EXHAUSTIBLE)
    assert {one.fault for one in EXHAUSTIBLE} <= set(FAULTS)


@given(
    st.lists(st.floats(-10, 2000, allow_nan=False), max_size=150),
    st.sampled_from(EXHAUSTIBLE),
    st.floats(0, 2000),
    st.lists(st.lists(st.floats(0, 1500), max_size=60), max_size=3),
)
@settings(max_examples=80, deadline=None)
def test_any_readings_give_an_answer_whose_parts_are_parts(
    values: list[float], kind: Exhaustible, total: float, held: list[list[float]]
) -> None:
    used = tuple(Point(NOW - kind.step_s * (len(values) - at), value, value, value) for at, value in enumerate(values))
    users: Users = {
        ("acme", f"vm{number}"): tuple(
            Point(NOW - kind.step_s * (len(own) - at), one, one, one) for at, one in enumerate(own)
        )
        for number, own in enumerate(held)
    }
    found = told(replace(kind, fault=DISK_POOL.fault, name=DISK_POOL.name), used, users, total=total)
    assert all(0 < one.ratio <= 1.000001 for one in found.causes)
    assert sum(one.ratio for one in found.causes) <= 1.000001
    assert all(value >= 0 or math.isinf(value) for name, value in found.figures.items() if name != "slope_per_second")
    assert found.text.isprintable()
