# SPDX-License-Identifier: Apache-2.0
"""controller --tune: applies advice, one change at a time in the fleet, watches it, and rolls it back if it is worse.

A trial is recorded on its host before anything is changed. Every controller goes on with the trials that it finds,
whoever began them; only one with kinds of advice begins some.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from vgpuctl.errors import (
    ConcurrentChange,
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
from vgpuctl.scheduler.advice.trial import Evidence, refuse_to_begin
from vgpuctl.scheduler.defrag.plan import WayKind
from vgpuctl.usecases.maintenance.planned_moves import StepOutcome, rehearse
from vgpuctl.usecases.observed.tuning_record import (
    MoveChange,
    PowerChange,
    Trial,
    TrialState,
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
from vgpuctl.usecases.telemetry.tuning_trial import NOT_OF_THE_CHANGE, go_on_with, is_due, save_trial
from vgpuctl.usecases.telemetry.tuning_turn import TuningTurn
from vgpuctl.usecases.telemetry.tuning_watch import look, see, vms_on
from vgpuctl.usecases.telemetry.tuning_ways import (
    find_without,
    make,
    missing_hosts,
    present_limit,
    refuse_limit,
)

REPLAYED_S = 6 * 3600.0
ADVISE_S = 300.0
"""Seconds between two looks for advice, which reads the history of the whole fleet."""

GO_ON_S = 30.0
"""Seconds between two looks at a trial that is watched, or whose problem was told."""


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
        """Go on with the trials, and begin one where there is none. A failure is said once; errors of the store raise.

        Nothing is done while another controller is at it (tuning_turn.py).
        """
        try:
            with services.store.reading() as session:
                trials = TuningView.read(session).trials
                now = session.now()
            advises = bool(self.kinds) and is_due(self._looked_at, now, ADVISE_S)
            if trials:
                may_wait = all(one.state is TrialState.WATCHED or one.told for one in trials)
                if may_wait and not is_due(self._went_on_at, now, GO_ON_S):
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
            served = go_on_with(services, one)
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
                except NOT_OF_THE_CHANGE:
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
    except NOT_OF_THE_CHANGE:
        raise
    except VgpuctlError as error:
        trial = save_trial(services, replace(trial, why=f"it could not be made: {error.reason_of(trial.host)}"))
    go_on_with(services, trial)
    return trial
