# SPDX-License-Identifier: Apache-2.0
"""The pure parts of a report: days that add up, waits with both ends, incidents of those whom they hit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some_of

from vgpuctl.model.event import Event, Value
from vgpuctl.model.event_kind import EventKind
from vgpuctl.quota.report import DAY_S, INCIDENT_KINDS, Incident, days_of, incidents_of, queue_waits
from vgpuctl.quota.usage import Interval, add_up

BEGIN = 1_790_812_800.0
END = BEGIN + 31 * DAY_S
GPU = "0000:41:00.0"


def interval(
    begun: float, ended: float | None, *, tenant: str = "acme", vm: str = "web-1", lease: str = "l"
) -> Interval:
    return Interval(lease, tenant, "u", vm, "gpu1", GPU, "A40-8Q", 8192, 0, 1 / 6, begun, ended)


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


_number = iter(range(1, 10_000))


def event(
    at: float,
    kind: EventKind,
    subject: str,
    detail: str = "",
    *,
    tenant: str | None = None,
    evidence: dict[str, Value] | None = None,
    state: str | None = None,
) -> Event:
    after: dict[str, Value] = {} if state is None else {"state": state}
    return Event(next(_number), at, kind, subject, detail, tenant, after=after, evidence=evidence or {})


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


def test_a_tenant_gets_the_incidents_that_hit_it() -> None:
    mine = [interval(BEGIN, BEGIN + 100), interval(BEGIN, None, tenant="globex", vm="db")]
    events = [
        event(BEGIN + 10, EventKind.HOST_OBSERVED, "gpu1", "no route", state="unreachable"),
        event(BEGIN + 12, EventKind.HOST_OBSERVED, "gpu1", "other key", state="host-key-changed"),
        event(BEGIN + 40, EventKind.HOST_OBSERVED, "gpu1", state="up"),
        event(BEGIN + 41, EventKind.HOST_OBSERVED, "gpu2", state="unreachable"),
        event(BEGIN + 50, EventKind.GPU_QUARANTINED, f"gpu1 {GPU}", "off-the-bus"),
        event(BEGIN + 51, EventKind.GPU_QUARANTINED, "gpu1 0000:81:00.0", "another card"),
        event(BEGIN + 52, EventKind.GPU_QUARANTINED, "gpu1 0000:41:00.5", "a VF of it"),
        event(BEGIN + 60, EventKind.VM_PREEMPTED, "acme/web-1", "", tenant="acme"),
        event(BEGIN + 61, EventKind.VM_PREEMPTED, "globex/db", "", tenant="globex"),
        event(BEGIN + 200, EventKind.GPU_HEALTH, f"gpu1 {GPU}", "Xid 31", evidence={"finding": "xid-restart-app"}),
        event(
            BEGIN + 201,
            EventKind.GPU_HEALTH,
            "gpu9 0000:01:00.0",
            "Xid 79",
            evidence={"finding": "xid-restart-bm", "vms": ["acme/web-7", "globex/db", "acme..x.y"]},
        ),
    ]

    def brief(one: Incident) -> tuple[float, str, tuple[str, ...], float | None]:
        return one.at - BEGIN, one.what, one.vms, one.duration_s

    assert [brief(one) for one in incidents_of(events, mine, "acme")] == [
        (10, "host outage", ("web-1",), 30.0),
        (50, "quarantine", ("web-1",), None),
        (52, "quarantine", ("web-1",), None),
        (60, "preemption", ("web-1",), None),
        (201, "Xid", ("web-7",), None),
    ]
    assert [one.at - BEGIN for one in incidents_of(events, mine, "globex")] == [10, 50, 52, 61, 200, 201]
    assert incidents_of(events, mine, "nobody") == []


def test_every_kind_of_incident_is_a_kind_of_event() -> None:
    assert set(INCIDENT_KINDS) <= set(EventKind)
