# SPDX-License-Identifier: Apache-2.0
"""When a run of planned moves ends, and what it says of the steps that it leaves."""

from collections.abc import Callable

import pytest

from vgpuctl.errors import NoCapacity, VgpuctlError
from vgpuctl.model.placement import Placement
from vgpuctl.scheduler.defrag.plan import DefragStep, WayKind
from vgpuctl.usecases.maintenance.planned_moves import MadeStep, MoveRules, StepOutcome, make_steps

STEPS = [
    DefragStep(name, f"acme/{name}", WayKind.LIVE, 2.0, "g1", ("0000:41:00.0",), Placement("g2", ()))
    for name in ("web", "db", "ci")
]


def _moves(step: DefragStep) -> MadeStep:
    return MadeStep(step, StepOutcome.MOVED, WayKind.LIVE, 3.0)


def _made(rules: MoveRules, move: Callable[[DefragStep], MadeStep] = _moves, now: float = 0.0) -> list[tuple[str, str]]:
    return [(one.outcome.value, one.reason) for one in make_steps(STEPS, rules, move, lambda: now)]


def test_every_step_is_made_in_order() -> None:
    assert _made(MoveRules("room")) == [("moved", "")] * 3


def _refuses(step: DefragStep) -> MadeStep:
    if step.name == "acme/db":
        raise NoCapacity("no host can take acme/db")
    return _moves(step)


def _loses_state(step: DefragStep) -> MadeStep:
    if step.name == "acme/db":
        return MadeStep(step, StepOutcome.FAILED, WayKind.LIVE, 3.0, "it is on g2, but it lost the state of its vGPU")
    return _moves(step)


@pytest.mark.parametrize(
    ("move", "why"),
    [(_refuses, "no host can take acme/db"), (_loses_state, "it is on g2, but it lost the state of its vGPU")],
)
def test_nothing_is_moved_after_a_step_that_failed(move: Callable[[DefragStep], MadeStep], why: str) -> None:
    asked = []

    def noting(step: DefragStep) -> MadeStep:
        asked.append(step.name)
        return move(step)

    assert _made(MoveRules("room"), noting) == [("moved", ""), ("failed", why), ("left", "the run ended before it")]
    assert asked == ["acme/web", "acme/db"]


def test_no_step_begins_after_the_end_of_the_window() -> None:
    made = _made(MoveRules("room", until=86400.0), now=86400.0)
    assert made == [
        ("left", "no move begins after 1970-01-02 00:00 UTC"),
        ("left", "the run ended before it"),
        ("left", "the run ended before it"),
    ]


def test_the_downtime_that_was_measured_counts_against_the_most() -> None:
    """Two steps of 2 s were planned within 5 s; the first took 3 s, so that the third has no room left."""
    made = _made(MoveRules("room", max_downtime_s=7.0))
    assert [one for one, _why in made] == ["moved", "moved", "left"]
    assert made[2][1] == "it would exceed the downtime of 7s in all"


def test_no_more_moves_are_made_than_are_left() -> None:
    made = _made(MoveRules("room", most=2))
    assert made == [("moved", ""), ("moved", ""), ("left", "the moves of this hour are used up")]


def test_a_bug_is_not_taken_for_a_refusal() -> None:
    def breaks(_step: DefragStep) -> MadeStep:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        _made(MoveRules("room"), breaks)
    assert not issubclass(RuntimeError, VgpuctlError)
