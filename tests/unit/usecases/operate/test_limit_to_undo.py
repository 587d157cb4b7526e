# SPDX-License-Identifier: Apache-2.0
"""When the controller gives a VM its time slice back that a limit shortened: by the events about the VM."""

import math

import pytest

from vgpuctl.model.event import Event, Value
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.usecases.operate.over_promise import NameSpan, limit_to_undo, names_of, own_events

NOW, HOUR_S = 1_000_000.0, 3600.0
LIMIT = "it takes time of its GPU that its neighbours were promised"
FIRST, SECOND = "0000:41:00.0", "0000:42:00.0"


def _resized(was: str, now: str, detail: str = "") -> tuple[EventKind, str, dict[str, Value], dict[str, Value]]:
    before, after = ([f"exec_quantum_ms={one}", "preempt_timeout_us=5"] if one else [] for one in (was, now))
    return EventKind.VM_RESIZED, detail, {"vgpu_params": before}, {"vgpu_params": after}


def _finding(state: str, gpu: str = FIRST) -> tuple[EventKind, str, dict[str, Value], dict[str, Value]]:
    return EventKind.CONTENTION_OBSERVED, gpu, {}, {"state": state}


def _answer(outcome: str) -> tuple[EventKind, str, dict[str, Value], dict[str, Value]]:
    return EventKind.OVER_PROMISE_ANSWERED, FIRST, {}, {"policy": "limit", "outcome": outcome}


def _of(kind: EventKind) -> tuple[EventKind, str, dict[str, Value], dict[str, Value]]:
    return kind, "", {}, {}


BEGUN, LIMITED, OVER = _finding("begun"), _resized("40", "20", LIMIT), _finding("over")
KEPT: dict[str, list[tuple[EventKind, str, dict[str, Value], dict[str, Value]]]] = {
    "nothing happened": [],
    "no limit": [BEGUN, OVER],
    "the finding lasts": [BEGUN, LIMITED, _answer("limited")],
    "another began since": [BEGUN, LIMITED, OVER, BEGUN],
    "one of another GPU lasts": [BEGUN, _finding("begun", SECOND), LIMITED, OVER],
    "an operator set the same": [BEGUN, LIMITED, _resized("20", "30"), _resized("30", "20"), OVER],
    "an operator's own": [BEGUN, _resized("40", "20", "quieter"), OVER],
    "another VM of that name": [BEGUN, LIMITED, _of(EventKind.VM_DELETED), _of(EventKind.VM_CREATED), OVER],
    "it was tried an hour ago": [BEGUN, LIMITED, OVER, _answer("not-undone")],
    "it was limited again": [BEGUN, LIMITED, OVER, _resized("20", "40"), _answer("undone"), BEGUN, LIMITED, OVER],
}


def _events(given: list[tuple[EventKind, str, dict[str, Value], dict[str, Value]]], hours_ago: float) -> list[Event]:
    return [
        Event(number, NOW - HOUR_S * hours_ago, kind.value, "acme/web", detail, before=before, after=after)
        if kind not in (EventKind.CONTENTION_OBSERVED, EventKind.OVER_PROMISE_ANSWERED)
        else Event(number, NOW - HOUR_S * hours_ago, kind.value, "acme/web", after=after, evidence={"gpu": detail})
        for number, (kind, detail, before, after) in enumerate(given, 1)
    ]


def _vm(quantum: str = "20") -> Vm:
    request = VmRequest("web", "acme", vgpu_params=(("exec_quantum_ms", quantum), ("preempt_timeout_us", "5")))
    return Vm("u", request, "gpu1", VmState.RUNNING)


@pytest.mark.parametrize("case", KEPT)
def test_the_limit_stays(case: str) -> None:
    assert limit_to_undo(_vm(), _events(KEPT[case], 1), NOW) is None


@pytest.mark.parametrize(
    ("given", "hours_ago", "quantum"),
    [
        ([BEGUN, LIMITED, _answer("limited"), OVER], 1, "40"),
        ([BEGUN, OVER, LIMITED], 1, "40"),
        ([BEGUN, _resized("", "20", LIMIT), OVER], 1, None),
        ([BEGUN, LIMITED, OVER, _answer("not-undone")], 25, "40"),
        ([_finding("begun", SECOND), _finding("over", SECOND), BEGUN, LIMITED, OVER], 1, "40"),
        ([BEGUN, LIMITED, _of(EventKind.VM_RESIZED), OVER], 1, "40"),
        ([BEGUN, _resized("60", "40", LIMIT), OVER, BEGUN, LIMITED, OVER], 1, "60"),
    ],
)
def test_the_limit_is_undone_to_what_was_before(
    given: list[tuple[EventKind, str, dict[str, Value], dict[str, Value]]], hours_ago: float, quantum: str | None
) -> None:
    found = limit_to_undo(_vm(), _events(given, hours_ago), NOW)
    assert found is not None and found.quantum == quantum
    assert found.over.kind == "contention-observed" and found.over.after["state"] == "over"
    assert limit_to_undo(_vm("30"), _events(given, hours_ago), NOW) is None, "it has another value now"


def _renaming(number: int, old: str, name: str) -> list[Event]:
    """A renaming as the store has it: under both names."""
    values: tuple[dict[str, Value], dict[str, Value]] = ({"name": old}, {"name": name})
    kind = EventKind.VM_RENAMED.value
    return [
        Event(number + place, NOW, kind, f"acme/{label}", tenant="acme", before=values[0], after=values[1])
        for place, label in enumerate((old, name))
    ]


RENAMINGS: dict[str, tuple[list[tuple[int, str, str]], list[NameSpan]]] = {
    "never": ([], [NameSpan("acme/web", 0, math.inf)]),
    "once": ([(10, "old", "web")], [NameSpan("acme/web", 11, math.inf), NameSpan("acme/old", 0, 11)]),
    "twice": (
        [(10, "first", "old"), (20, "old", "web")],
        [NameSpan("acme/web", 21, math.inf), NameSpan("acme/old", 11, 21), NameSpan("acme/first", 0, 11)],
    ),
    "there and back": (
        [(10, "web", "old"), (20, "old", "web")],
        [NameSpan("acme/web", 21, math.inf), NameSpan("acme/old", 11, 21), NameSpan("acme/web", 0, 11)],
    ),
    "another VM had the name": ([(10, "web", "other")], [NameSpan("acme/web", 11, math.inf)]),
    "another VM had its old name": (
        [(10, "old", "other"), (20, "old", "web")],
        [NameSpan("acme/web", 21, math.inf), NameSpan("acme/old", 11, 21)],
    ),
}


@pytest.mark.parametrize("name", RENAMINGS)
def test_a_vm_is_followed_through_its_names(name: str) -> None:
    renamings, spans = RENAMINGS[name]
    assert names_of("acme/web", [event for one in renamings for event in _renaming(*one)]) == spans


def test_a_limit_of_a_vm_that_was_renamed_since_is_undone_and_anothers_is_not() -> None:
    spans = names_of("acme/web", _renaming(10, "old", "web"))
    before = _events([BEGUN, LIMITED], 1)
    under = dict.fromkeys(range(1, 10), "acme/old")
    over = Event(
        20, NOW, EventKind.CONTENTION_OBSERVED.value, "acme/old", after={"state": "over"}, evidence={"gpu": FIRST}
    )
    every = [Event(**{**vars(one), "subject": under[one.id]}) for one in before]
    own = own_events(spans, [*every, over])
    assert [one.id for one in own] == [1, 2, 20]
    found = limit_to_undo(_vm(), own, NOW)
    assert found is not None and found.quantum == "40"
    again = Event(**{**vars(over), "after": {"state": "begun"}})
    assert limit_to_undo(_vm(), own_events(spans, [*every, again]), NOW) is None, "its finding lasts"
    later = Event(**{**vars(over), "id": 30})
    assert [one.id for one in own_events(spans, [*every, again, later])] == [1, 2], "of the VM that took the name"
    of_other = [Event(**{**vars(one), "subject": "acme/web"}) for one in before]
    assert own_events(spans, [*of_other, over]) == [], "what had the name before is another VM"
