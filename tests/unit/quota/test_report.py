# SPDX-License-Identifier: Apache-2.0
"""The pure parts of a report: days and months that add up, waits with both ends."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some_of

from tests.unit.quota.test_incidents import BEGIN, event, interval
from vgpuctl.model.event import Event
from vgpuctl.model.event_kind import EventKind
from vgpuctl.quota.incidents import incidents_of
from vgpuctl.quota.report import DAY_S, days_of, months_of, queue_waits
from vgpuctl.quota.usage import add_up

END = BEGIN + 31 * DAY_S


_TIMES = some_of.floats(BEGIN - 40 * DAY_S, END + 5 * DAY_S)


@given(some_of.lists(some_of.tuples(_TIMES, _TIMES | some_of.none()), max_size=12))
def test_the_days_add_up_to_the_month(pairs: list[tuple[float, float | None]]) -> None:
    intervals = [
        interval(begun, None if ended is None else max(begun, ended), lease=str(number))
        for number, (begun, ended) in enumerate(pairs)
    ]
    days = days_of(intervals, BEGIN, END)
    whole = add_up(intervals, BEGIN, END)
    assert len(whole) <= 1
    hours = math.fsum(one.share_hours for one in whole)
    assert math.fsum(one.share_hours for one in days) == pytest.approx(hours, abs=1e-9)
    seconds = math.fsum(one.seconds(BEGIN, END) for one in intervals)
    assert round(seconds) == round(hours * 3600) or abs(seconds - hours * 3600) < 1e-6
    assert all((one.begins_at - BEGIN) % DAY_S == 0 for one in days)


def test_a_period_that_begins_in_a_day_and_is_empty() -> None:
    assert [one.begins_at for one in days_of([interval(BEGIN, None)], BEGIN + 3600, BEGIN + 90_000)] == [
        BEGIN + 3600,
        BEGIN + DAY_S,
    ]
    assert days_of([interval(BEGIN, None)], END, END) == []


def test_waits_have_both_ends_or_last() -> None:
    def queued(at: float, vm: str) -> Event:
        return event(at, EventKind.VM_QUEUED, vm, "no GPU is free", tenant="acme")

    def left(at: float, vm: str) -> Event:
        return event(at, EventKind.VM_LEFT_QUEUE, vm, "it was served", tenant="acme")

    events = [
        queued(BEGIN - 100, "acme/early"),
        queued(BEGIN - 90, "acme/before"),
        left(BEGIN - 50, "acme/before"),
        left(BEGIN + 60, "acme/early"),
        left(BEGIN + 61, "acme/whose-begin-was-pruned"),
        queued(END - 30, "acme/waits"),
        left(END + 5, "acme/waits"),
        queued(END + 6, "acme/later"),
    ]
    assert [(one.vm, one.wait_s, one.left_at) for one in queue_waits(events, BEGIN, END)] == [
        ("acme/early", 160.0, BEGIN + 60),
        ("acme/waits", 30.0, None),
    ]


def test_the_months_begin_with_the_first_that_used_something() -> None:
    february, march, april, may = (1_769_904_000.0, 1_772_323_200.0, 1_775_001_600.0, 1_777_593_600.0)
    used = [interval(february + 3600, february + 7200), interval(april, april + 12 * 3600)]
    assert [(one.begins_at, one.share_hours) for one in months_of(used, april + 6 * 3600)] == [
        (february, 1.0),
        (march, 0.0),
        (april, 6.0),
    ]
    assert [one.begins_at for one in months_of([interval(april, None)], may)] == [april]
    assert len(months_of([interval(february - 800 * DAY_S, None)], may)) == 12
    assert months_of([], may) == []


def test_a_tenant_reads_no_names_of_other_tenants_in_its_report() -> None:
    def preempted(cause: str) -> Event:
        return replace(
            event(BEGIN + 1, EventKind.VM_PREEMPTED, "acme/web-1", tenant="acme"), after={"preempted by": cause}
        )

    for cause, told in (
        ("umbrella/secret", "preempted for a VM of another tenant"),
        ("umbrella/secret, umbrella/hidden", "preempted for a VM of another tenant"),
        ("acme.umbrella/secret", "preempted for a VM of another tenant"),
        ("acme/big", "preempted for acme/big"),
    ):
        (found,) = incidents_of([preempted(cause)], [interval(BEGIN, None)], "acme", END)
        assert found.text == told
        queued = event(BEGIN + 2, EventKind.VM_QUEUED, "acme/web-1", f"preempted by {cause}", tenant="acme")
        assert [one.reason for one in queue_waits([queued], BEGIN, END)] == [told]
    fenced = event(BEGIN + 1, EventKind.HOST_FENCED, "gpu1", "umbrella broke it")
    assert [one.text for one in incidents_of([fenced], [interval(BEGIN, None)], "acme", END)] == [""]
