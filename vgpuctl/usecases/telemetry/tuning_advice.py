# SPDX-License-Identifier: Apache-2.0
"""The reasons against trying advice, and the changes that are in trial. No host is contacted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.model.restriction import WHOLE_HOST, Restriction, restrictions_on
from vgpuctl.scheduler.advice.advice import Advice
from vgpuctl.scheduler.advice.measured import MeasuredFleet
from vgpuctl.scheduler.advice.power_limit import find_limits
from vgpuctl.scheduler.advice.trial import Evidence
from vgpuctl.scheduler.advice.tunable import TUNABLE
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.tuning_record import Trial, TrialState, TuningRecord, read_every_tuning


@dataclass(frozen=True)
class TuningView:
    """The records of the hosts, and the restrictions of the fleet. now: seconds since the epoch, UTC."""

    records: Mapping[str, TuningRecord]
    restrictions: Sequence[Restriction]
    now: float

    @classmethod
    def read(cls, session: Session) -> "TuningView":
        """Read both. Raises StateError for a record that cannot be read."""
        return cls(read_every_tuning(session), session.restrictions(), session.now())

    @property
    def trials(self) -> list[Trial]:
        """The changes in trial."""
        return [one.trial for one in self.records.values() if one.trial is not None]

    def refuse(self, advice: Advice, evidence: Evidence) -> str | None:
        """Say why advice is not tried, None where nothing is known against it."""
        tried = self.records.get(advice.host, TuningRecord()).tried_before(advice.id, evidence, self.now)
        if tried is not None:
            return f"it was tried, and {tried.why}; it is tried again once its evidence is another"
        closed = restrictions_on(self.restrictions, advice.host, advice.gpu or "", None)
        closed += [one for one in self.restrictions if (one.host, one.device) == (advice.host, WHOLE_HOST)]
        return f"{closed[0].subject} is under {closed[0].kind}: {closed[0].reason}" if closed else None


@dataclass(frozen=True)
class ShownTrial:
    """A change in trial. before, after: its values. vms: that are watched. ends_at: of the watch; None before it began.

    Times are seconds since the epoch, UTC. why: the reason why it is rolled back.
    """

    advice: str
    host: str
    gpu: str
    text: str
    state: TrialState
    before: Mapping[str, str]
    after: Mapping[str, str]
    vms: tuple[str, ...]
    begun_at: float
    ends_at: float | None
    why: str


def shown(trial: Trial) -> ShownTrial:
    """A trial for people and JSON."""
    return ShownTrial(
        trial.advice,
        trial.host,
        trial.gpu,
        trial.text,
        trial.state,
        trial.evidence.before,
        trial.evidence.after,
        tuple(trial.vms),
        trial.begun_at,
        trial.ends_at,
        trial.why,
    )


def evidence_of(advice: Advice, fleet: MeasuredFleet) -> Evidence:
    """The evidence of advice: its values, its gain, and the VMs on the GPUs that it names."""
    places = {f"{advice.host} {advice.gpu}", *advice.after.values()}
    vms = {one.vm_uuid for one in fleet.leases if f"{one.host} {one.share.gpu}" in places}
    return Evidence(dict(advice.before), dict(advice.after), tuple(sorted(vms)), advice.gain.value)


def tuning_of(advised: Sequence[Advice], fleet: MeasuredFleet, view: TuningView) -> dict[str, str]:
    """The answer of a controller to each recommendation of a kind that it may apply, by id: why not, or that it may."""
    limits = {one.advice.id: one.refusal for one in find_limits(fleet)}
    in_trial = {one.advice for one in view.trials}
    found = {}
    for one in advised:
        if one.kind not in TUNABLE:
            continue
        refusal = limits.get(one.id) or view.refuse(one, evidence_of(one, fleet))
        allowed = f"`vgpuctl controller --tune {one.kind}` may try it"
        found[one.id] = "in trial" if one.id in in_trial else allowed if refusal is None else f"not tried: {refusal}"
    return found
