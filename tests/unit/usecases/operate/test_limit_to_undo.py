# SPDX-License-Identifier: Apache-2.0
"""When the controller gives a VM its time slice back that a limit shortened: by the events about the VM."""

import pytest

from vgpuctl.model.event import Event, Value
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.usecases.operate.over_promise import limit_to_undo

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
    "it was renamed, and may be another VM": [BEGUN, LIMITED, _of(EventKind.VM_RENAMED), OVER],
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
