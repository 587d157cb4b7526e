# SPDX-License-Identifier: Apache-2.0
"""One trial of tuning as it goes on: its watch, the roll back, and its end with the event."""

from collections.abc import Sequence

from msgspec.structs import replace

from vgpuctl.agent.wire.tuning import watts
from vgpuctl.errors import ConcurrentChange, Interrupted, StoreUnusable, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.scheduler.advice.trial import TrialVerdict, Watch, judge
from vgpuctl.usecases.observed.tuning_record import (
    MoveChange,
    PowerChange,
    Trial,
    TrialState,
    Tried,
    note_tuning,
    read_tuning,
    save_tuning,
)
from vgpuctl.usecases.operate.serve_queue import Served
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.tuning_watch import LOOK_S, failures_since, gone_since, look, see
from vgpuctl.usecases.telemetry.tuning_ways import (
    FoundChange,
    WhereFound,
    find,
    find_without,
    keep,
    missing_hosts,
    roll_back,
)

LATE_S = 300.0
"""So long after the end of a watch, a row that was seen broken once is no reason to wait."""

MOVING_BACK_S = 3600.0
"""A VM that cannot move back for so long stays where it is: others have taken its room."""

MOVE_AGAIN_S = 300.0
"""Seconds between two tries to move a VM back. Another command that is at work on it is no try."""

ANY_TARGET_S = 6 * 3600.0
"""So long after a move was rolled back, the VM is not tried on another GPU either."""

NOT_OF_THE_CHANGE = (Interrupted, StoreUnusable)
"""Errors that say nothing of a change or its host."""


def go_on_with(services: Services, trial: Trial) -> Served | None:
    """Take a trial as far as it goes now. None where there is nothing to say."""
    try:
        if missing := missing_hosts(services, trial):
            known = find_without(services, trial, missing)
            return None if isinstance(known, str) else _leave(services, trial, known)
        found = find(services, trial)
        if found.place is WhereFound.ELSEWHERE:
            return _leave(services, trial, found)
        if trial.state is TrialState.ROLLING_BACK:
            return _roll_back(services, trial, found)
        if trial.state is TrialState.BEGINNING:
            return _begin_watch(services, trial, found)
        if found.place is WhereFound.BEFORE:
            return _leave(
                services, trial, FoundChange(WhereFound.ELSEWHERE, found.words, "somebody else brought it back")
            )
        if found.withdrawn:
            return _worse(services, trial, f"it is not allowed any more: {found.withdrawn}")
        return _watch(services, trial)
    except NOT_OF_THE_CHANGE:
        raise
    except VgpuctlError as error:
        return _waits(services, trial, error)


def _waits(services: Services, trial: Trial, error: VgpuctlError) -> Served | None:
    """Say why a trial does not go on, once."""
    problem = error.reason_of(trial.host)
    if problem == trial.told:
        return None
    save_trial(services, replace(trial, told=problem))
    return Served(trial.subject, f"its trial waits: {problem}")


def _begin_watch(services: Services, trial: Trial, found: FoundChange) -> Served | None:
    """The watch of a change that was made, also by a controller that died then; else the end of the trial."""
    if found.place is WhereFound.AFTER:
        save_trial(services, replace(trial, state=TrialState.WATCHED, watched_since=services.store.now(), why=""))
        return None
    why = trial.why or "it was not made: another command was at work there, or the controller ended before"
    _end(services, trial, EventKind.TUNING_ENDED, f"{why}; {found.words}", tried=trial.why)
    return Served(trial.subject, f"not tried: {why}")


def _watch(services: Services, trial: Trial) -> Served | None:
    """Compare the VMs with those before, and keep the change, roll it back, or wait."""
    since, place = trial.watched_since or trial.begun_at, trial.places[0]
    there, gone = gone_since(services, trial.before, place[0])
    past_s = services.store.now() - since
    is_over = not 0 <= past_s < trial.watch_s
    seen = see(services, there, trial.places, since)
    vms, problem = seen.vms, seen.problem
    if there and (is_over or services.store.now() - seen.looked_at > LOOK_S):
        try:
            look(services, [place[0]])
        except VgpuctlError as error:
            if not is_over:
                raise
            vms, problem = {}, error.message
        else:
            seen = see(services, there, trial.places, since)
            vms, problem = seen.vms, seen.problem
    judged = judge(
        Watch(
            before=trial.before,
            now=vms,
            gone=gone,
            new_findings=sorted(set(seen.findings) - set(trial.findings)),
            minutes=trial.watch_s / 60,
            problem=problem,
            is_over=is_over,
            is_late=not 0 <= past_s < trial.watch_s + LATE_S,
            failures=failures_since(services, trial.vms, trial.places, since),
        )
    )
    if judged.verdict is TrialVerdict.WAITS:
        return None
    if judged.verdict is TrialVerdict.KEPT:
        why = judged.why + keep(services, trial)
        _end(services, trial, EventKind.TUNING_KEPT, why, seen=judged.reasons)
        return Served(trial.subject, f"kept: {why}")
    word = "it made VMs worse" if judged.verdict is TrialVerdict.WORSE else "nobody knows that its VMs are as before"
    return _worse(services, trial, f"{word}: {judged.why}")


def _worse(services: Services, trial: Trial, why: str) -> Served | None:
    """Roll the change back. That it is to be is recorded first."""
    trial = replace(trial, state=TrialState.ROLLING_BACK, why=why, rolls_back_since=services.store.now())
    save_trial(services, trial)
    return go_on_with(services, trial)


def _roll_back(services: Services, trial: Trial, found: FoundChange) -> Served | None:
    if found.place is WhereFound.AFTER:
        if not is_due(trial.moved_back_at, services.store.now(), MOVE_AGAIN_S):
            return None
        try:
            roll_back(services, trial, found)
        except NOT_OF_THE_CHANGE:
            raise
        except VgpuctlError as error:
            change = trial.change
            if isinstance(change, PowerChange):
                raise
            now = services.store.now()
            if 0 <= now - (trial.rolls_back_since or trial.begun_at) < MOVING_BACK_S:
                if not isinstance(error, ConcurrentChange):
                    trial = save_trial(services, replace(trial, moved_back_at=now))
                return _waits(services, trial, error)
            stays = f"it stays on {change.to_host}, since it cannot move back: {error.reason_of(trial.host)}"
            return _leave(services, trial, FoundChange(WhereFound.ELSEWHERE, found.words, stays))
        found = find(services, trial)
        if found.place is not WhereFound.BEFORE:
            return None  # the next round looks again
    outcome = f"rolled back: {trial.why}"
    limit = "" if found.back_mw is None else watts(found.back_mw)
    _end(services, trial, EventKind.TUNING_ROLLED_BACK, f"{trial.why}; {found.words}", tried=outcome, limit=limit)
    return Served(trial.subject, outcome)


def _leave(services: Services, trial: Trial, found: FoundChange) -> Served:
    """Leave what is there as it is: somebody else changed it, or the host was booted."""
    why = "; ".join(filter(None, (trial.why, found.leave)))
    tried = "" if found.is_booted and trial.state is not TrialState.ROLLING_BACK else f"left: {why}"
    _end(services, trial, EventKind.TUNING_ENDED, f"{why}; {found.words}", tried=tried)
    return Served(trial.subject, f"its trial ended: {why}")


def is_due(last: float | None, now: float, after_s: float) -> bool:
    """True if it is so long since the last time, or the clock went back."""
    return last is None or not 0 <= now - last < after_s


def save_trial(services: Services, trial: Trial) -> Trial:
    """Write the trial into the record of its host, and return it."""
    with services.store.transaction() as session:
        save_tuning(session, trial.host, replace(read_tuning(session, trial.host), trial=trial))
    return trial


def _end(
    services: Services,
    trial: Trial,
    kind: EventKind,
    detail: str,
    *,
    tried: str = "",
    seen: Sequence[str] = (),
    limit: str = "",
) -> None:
    """Take the trial out of the record, with its event.

    tried: why it is not tried again on the same evidence. limit: the power limit that is there now.
    """
    with services.store.transaction() as session:
        record = replace(read_tuning(session, trial.host), trial=None)
        if tried:
            now = session.now()
            went_back = kind is EventKind.TUNING_ROLLED_BACK and isinstance(trial.change, MoveChange)
            until = now + ANY_TARGET_S if went_back else None
            record = record.with_tried(Tried(trial.advice, now, tried, trial.evidence, until))
        save_tuning(session, trial.host, record.with_told(trial.advice, None))
        note_tuning(session, kind, trial, detail, vms=trial.vms, seen=seen, limit=limit)
