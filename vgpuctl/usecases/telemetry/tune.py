# SPDX-License-Identifier: Apache-2.0
"""controller --tune: applies advice, one change at a time in the fleet, watches it, and rolls it back if it is worse.

A trial is recorded on its host before anything is changed. Every controller goes on with the trials that it finds,
whoever began them; only one with kinds of advice begins some.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from vgpuctl.agent.wire.tuning import watts
from vgpuctl.errors import (
    ConcurrentChange,
    Interrupted,
    NotFound,
    StateError,
    StoreNotTheSame,
    StoreUnusable,
    VgpuctlError,
)
from vgpuctl.model.event_kind import EventKind
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind
from vgpuctl.scheduler.advice.contention import WINDOW_S
from vgpuctl.scheduler.advice.measured import MeasuredFleet
from vgpuctl.scheduler.advice.power_limit import AdvisedLimit, find_limits
from vgpuctl.scheduler.advice.rebalance import AdvisedMove, find_moves
from vgpuctl.scheduler.advice.trial import Evidence, TrialVerdict, Watch, judge, refuse_to_begin
from vgpuctl.scheduler.defrag.plan import WayKind
from vgpuctl.usecases.maintenance.planned_moves import StepOutcome, rehearse
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
from vgpuctl.usecases.running.history import PAST_PROBLEMS
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.advise import measured_fleet
from vgpuctl.usecases.telemetry.rebalance import step_of
from vgpuctl.usecases.telemetry.tuning_advice import TuningView, evidence_of
from vgpuctl.usecases.telemetry.tuning_turn import TuningTurn
from vgpuctl.usecases.telemetry.tuning_watch import LOOK_S, gone_since, look, see, vms_on
from vgpuctl.usecases.telemetry.tuning_ways import (
    FoundChange,
    WhereFound,
    find,
    find_without,
    make,
    missing_hosts,
    present_limit,
    refuse_limit,
    roll_back,
)

REPLAYED_S = 6 * 3600.0
ADVISE_S = 300.0
"""Seconds between two looks for advice, which reads the history of the whole fleet."""

GO_ON_S = 30.0
"""Seconds between two looks at a trial that is watched, or whose problem was told."""

LATE_S = 300.0
"""So long after the end of a watch, a row that was seen broken once is no reason to wait."""

MOVING_BACK_S = 3600.0
"""A VM that cannot move back for so long stays where it is: others have taken its room."""

MOVE_AGAIN_S = 300.0
"""Seconds between two tries to move a VM back. Another command that is at work on it is no try."""

ANY_TARGET_S = 6 * 3600.0
"""So long after a move was rolled back, the VM is not tried on another GPU either."""

_NOT_OF_THE_CHANGE = (Interrupted, StoreUnusable)
"""Errors that say nothing of a change or its host."""


class AdvisedChange(NamedTuple):
    """Advice that a controller may try. refusal: why it does not."""

    advice: Advice
    found: AdvisedLimit | AdvisedMove
    evidence: Evidence
    refusal: str | None

    @property
    def hosts(self) -> set[str]:
        """The hosts that it needs."""
        target = {self.found.placement.host} if isinstance(self.found, AdvisedMove) else set()
        return {self.advice.host, *target}


@dataclass
class Tuner:
    """kinds: that it begins with, in their order; none to end what others began. watch_s: the time of each watch."""

    kinds: tuple[AdviceKind, ...] = ()
    watch_s: float = 1800.0
    _looked_at: float | None = field(default=None, init=False)
    _went_on_at: float | None = field(default=None, init=False)
    _said: str | None = field(default=None, init=False)
    turn: TuningTurn = field(default_factory=TuningTurn)

    def round(self, services: Services) -> list[Served]:
        """Go on with the trials, and begin one where there is none. What fails is said once; errors of the store raise.

        Nothing is done while another controller is at it (tuning_turn.py).
        """
        try:
            with services.store.reading() as session:
                trials = TuningView.read(session).trials
                now = session.now()
            advises = bool(self.kinds) and _is_due(self._looked_at, now, ADVISE_S)
            if trials:
                may_wait = all(one.state is TrialState.WATCHED or one.told for one in trials)
                if may_wait and not _is_due(self._went_on_at, now, GO_ON_S):
                    return []
                self._went_on_at = now
            elif not advises:
                return []
            with self.turn.taken(services):
                return self._go_on(services, now, advises=advises)
        except StoreUnusable:
            raise
        except ConcurrentChange:
            blocked = self.turn.blocked(services)
            return [] if blocked is None else self._say(blocked)
        except StateError as error:
            return self._say(f"nothing is tuned: {error.message}")

    def _go_on(self, services: Services, now: float, *, advises: bool) -> list[Served]:
        with services.store.reading() as session:
            trials = TuningView.read(session).trials
        done: list[Served] = []
        for one in trials:
            served = _go_on_with(services, one)
            done += self._say_awaited(services, one) if served is None else [served]
        with services.store.reading() as session:
            is_busy = bool(TuningView.read(session).trials)
        if is_busy or not advises:
            return done
        self._looked_at = now
        try:
            return done + self._begin(services)
        except StoreNotTheSame:
            raise
        except (NotFound, *PAST_PROBLEMS) as error:
            return done + self._say(f"no advice is tried: {error.message}")

    def _say_awaited(self, services: Services, trial: Trial) -> list[Served]:
        """Say what a trial waits for that has hosts of others: once for each controller, and not in the record."""
        missing = missing_hosts(services, trial)
        known = find_without(services, trial, missing) if missing else None
        return self._say(f"the trial on {trial.subject} {known}") if isinstance(known, str) else []

    def _say(self, text: str) -> list[Served]:
        is_new, self._said = text != self._said, text
        return [Served("tune", text)] if is_new else []

    def _begin(self, services: Services) -> list[Served]:
        """Begin the first trial that may be. Raises NotFound without readings, StoreUnusable, PrometheusUnusable."""
        for one in _candidates(services, measured_fleet(services, 0.0, REPLAYED_S), self.kinds):
            if not one.hosts <= set(services.hosts()):
                continue
            refusal = one.refusal
            if refusal is None:
                try:
                    begun = _try(services, one, self.watch_s)
                except ConcurrentChange:
                    continue  # a command is at work there; the next look for advice tries it again
                except _NOT_OF_THE_CHANGE:
                    raise
                except VgpuctlError as error:
                    begun = error.reason_of(one.advice.host)
                if isinstance(begun, Trial):
                    return [Served(begun.subject, f"in trial: {begun.text}")]
                refusal = begun
            _tell_refusal(services, one, refusal)
        return []


def _candidates(services: Services, fleet: MeasuredFleet, kinds: Sequence[AdviceKind]) -> Iterator[AdvisedChange]:
    """The advice of these kinds in their order, that with the largest gain first, with what is known against it."""
    with services.store.reading() as session:
        view = TuningView.read(session)
    for kind in kinds:
        found: list[AdvisedLimit | AdvisedMove]
        found = [*find_limits(fleet)] if kind is AdviceKind.POWER_LIMIT else [*find_moves(fleet)]
        for one in sorted(found, key=lambda one: (-one.advice.gain.value, one.advice.id)):
            evidence = evidence_of(one.advice, fleet)
            refusal = one.refusal if isinstance(one, AdvisedLimit) else None
            yield AdvisedChange(one.advice, one, evidence, refusal or view.refuse(one.advice, evidence))


def _tell_refusal(services: Services, one: AdvisedChange, refusal: str) -> None:
    """Write why advice is not tried, once until the reason is another."""
    host = one.advice.host
    with services.store.transaction() as session:
        record = read_tuning(session, host)
        if record.told.get(one.advice.id) == refusal:
            return
        save_tuning(session, host, record.with_told(one.advice.id, refusal))
        note_tuning(session, EventKind.TUNING_REFUSED, one.advice, refusal)


def _try(services: Services, one: AdvisedChange, watch_s: float) -> Trial | str:
    """Record the trial, make the change, and begin the watch. Returns why it is not tried where that shows now."""
    change: PowerChange | MoveChange
    advice, found = one.advice, one.found
    if isinstance(found, AdvisedLimit):
        present_mw, facts = present_limit(services, advice.host, found.gpu.address)
        if present_mw != found.before_mw:
            return "its power limit is another by now; the next look for advice knows it"
        for limit_mw in (present_mw, found.after_mw):
            if (refusal := refuse_limit(services, facts, advice.host, found.gpu.address, limit_mw)) is not None:
                return refusal
        change = PowerChange(found.gpu.address, found.before_mw, found.after_mw, facts.boot_id)
        hosts = [advice.host]
    else:
        step, to = step_of(services, found), found.placement
        if step is None:
            return "it cannot leave its host"
        (made,) = rehearse(services, [step])
        if made.outcome is StepOutcome.FAILED or made.way is not WayKind.LIVE:
            return f"it cannot move live: {made.reason or made.way}"
        lease = found.moved.lease
        change = MoveChange(lease.vm_uuid, step.name, lease.host, lease.share.gpu, to.host, to.shares[0].gpu)
        hosts = [lease.host, to.host]
    trial = Trial(
        advice=advice.id,
        kind=advice.kind,
        text=advice.text,
        host=advice.host,
        gpu=advice.gpu or "",
        tenant=advice.tenant,
        change=change,
        evidence=one.evidence,
        watch_s=watch_s,
        begun_at=services.store.now(),
        before={},
    )
    look(services, hosts)
    own = [(change.from_host, change.from_gpu)] if isinstance(change, MoveChange) else []
    touched = vms_on(services, trial.places)
    touched += [vm for vm in vms_on(services, own) if isinstance(change, MoveChange) and vm.uuid == change.vm_uuid]
    if not touched:
        return "no VM runs on it"
    seen = see(services, touched, trial.places, trial.begun_at - WINDOW_S)
    if (refusal := refuse_to_begin(seen.vms.values(), seen.problem)) is not None:
        return refusal
    trial = replace(trial, before=dict(seen.vms), findings=seen.findings)
    with services.store.transaction() as session:
        record = read_tuning(session, trial.host)
        save_tuning(session, trial.host, replace(record, trial=trial))
        note_tuning(session, EventKind.TUNING_BEGUN, advice, advice.text, watch_s=watch_s, vms=trial.vms)
    try:
        make(services, trial)
    except ConcurrentChange:
        pass  # what is found decides, and nothing is said against the advice
    except _NOT_OF_THE_CHANGE:
        raise
    except VgpuctlError as error:
        trial = _save(services, replace(trial, why=f"it could not be made: {error.reason_of(trial.host)}"))
    _go_on_with(services, trial)
    return trial


def _go_on_with(services: Services, trial: Trial) -> Served | None:
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
    except _NOT_OF_THE_CHANGE:
        raise
    except VgpuctlError as error:
        return _waits(services, trial, error)


def _waits(services: Services, trial: Trial, error: VgpuctlError) -> Served | None:
    """Say why a trial does not go on, once."""
    problem = error.reason_of(trial.host)
    if problem == trial.told:
        return None
    _save(services, replace(trial, told=problem))
    return Served(trial.subject, f"its trial waits: {problem}")


def _begin_watch(services: Services, trial: Trial, found: FoundChange) -> Served | None:
    """The watch of a change that was made, also by a controller that died then; else the end of the trial."""
    if found.place is WhereFound.AFTER:
        _save(services, replace(trial, state=TrialState.WATCHED, watched_since=services.store.now(), why=""))
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
        )
    )
    if judged.verdict is TrialVerdict.WAITS:
        return None
    if judged.verdict is TrialVerdict.KEPT:
        _end(services, trial, EventKind.TUNING_KEPT, judged.why, seen=judged.reasons)
        return Served(trial.subject, f"kept: {judged.why}")
    word = "it made VMs worse" if judged.verdict is TrialVerdict.WORSE else "nobody knows that its VMs are as before"
    return _worse(services, trial, f"{word}: {judged.why}")


def _worse(services: Services, trial: Trial, why: str) -> Served | None:
    """Roll the change back. That it is to be is recorded first."""
    trial = replace(trial, state=TrialState.ROLLING_BACK, why=why, rolls_back_since=services.store.now())
    _save(services, trial)
    return _go_on_with(services, trial)


def _roll_back(services: Services, trial: Trial, found: FoundChange) -> Served | None:
    if found.place is WhereFound.AFTER:
        if not _is_due(trial.moved_back_at, services.store.now(), MOVE_AGAIN_S):
            return None
        try:
            roll_back(services, trial, found)
        except _NOT_OF_THE_CHANGE:
            raise
        except VgpuctlError as error:
            change = trial.change
            if isinstance(change, PowerChange):
                raise
            now = services.store.now()
            if 0 <= now - (trial.rolls_back_since or trial.begun_at) < MOVING_BACK_S:
                if not isinstance(error, ConcurrentChange):
                    trial = _save(services, replace(trial, moved_back_at=now))
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


def _is_due(last: float | None, now: float, after_s: float) -> bool:
    return last is None or not 0 <= now - last < after_s


def _save(services: Services, trial: Trial) -> Trial:
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
