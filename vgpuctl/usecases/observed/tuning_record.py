# SPDX-License-Identifier: Apache-2.0
"""The record of what a controller tunes on a host: the change in trial, and what was tried before; and its events.

A change is recorded before it is made, so that another controller finishes what one leaves that is killed.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from vgpuctl import typed_json
from vgpuctl.errors import StateError
from vgpuctl.model.event import Event
from vgpuctl.model.event_kind import EventKind
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind
from vgpuctl.scheduler.advice.trial import Evidence, SeenVm, is_same_evidence
from vgpuctl.store.store import Session

_KIND = "tuning"
_MOST_TRIED = 50


class PowerChange(msgspec.Struct, frozen=True, tag="power-limit"):
    """Another power limit of a GPU. boot_id: of the host, whose reboot ends it."""

    gpu: str
    before_mw: int
    after_mw: int
    boot_id: str | None


class MoveChange(msgspec.Struct, frozen=True, tag="move"):
    """A VM with one GPU share on another GPU."""

    vm_uuid: str
    vm: str
    from_host: str
    from_gpu: str
    to_host: str
    to_gpu: str


class TrialState(StrEnum):
    """How far a trial is. beginning: it may not have been made."""

    BEGINNING = "beginning"
    WATCHED = "watched"
    ROLLING_BACK = "rolling-back"


class Trial(msgspec.Struct, frozen=True):
    """One change in trial. host: where the record is. before: the VMs that it touches, by UUID, as they were.

    findings: VMs that took their neighbours' time before. watched_since: when the change was made, rolls_back_since:
    when it was found to be rolled back, moved_back_at: when the VM last failed to move back; seconds since the epoch,
    UTC. why: the reason why it failed or is rolled back. told: the last problem that was said.
    """

    advice: str
    kind: AdviceKind
    text: str
    host: str
    gpu: str
    tenant: str | None
    change: PowerChange | MoveChange
    evidence: Evidence
    watch_s: float
    begun_at: float
    before: dict[str, SeenVm]
    findings: tuple[str, ...] = ()
    state: TrialState = TrialState.BEGINNING
    watched_since: float | None = None
    rolls_back_since: float | None = None
    moved_back_at: float | None = None
    why: str = ""
    told: str = ""

    @property
    def subject(self) -> str:
        """The GPU with its host, as events name it."""
        return f"{self.host} {self.gpu}"

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Host and address of the GPUs whose VMs the change may make worse."""
        change = self.change
        return ((change.to_host, change.to_gpu) if isinstance(change, MoveChange) else (self.host, change.gpu),)

    @property
    def vms(self) -> list[str]:
        """The names of the VMs that it touches."""
        return sorted(one.name for one in self.before.values())

    @property
    def ends_at(self) -> float | None:
        """When the watch is over, None before it has begun."""
        return None if self.watched_since is None else self.watched_since + self.watch_s


class Tried(msgspec.Struct, frozen=True):
    """Advice that was tried and not kept. why: it was not kept. at: seconds since the epoch, UTC.

    any_target_until: until then, another target of a move does not count as other evidence.
    """

    advice: str
    at: float
    why: str
    evidence: Evidence
    any_target_until: float | None = None


class TuningRecord(msgspec.Struct, frozen=True):
    """tried: not tried again until their evidence changes. told: why advice was not tried, by its id."""

    trial: Trial | None = None
    tried: tuple[Tried, ...] = ()
    told: dict[str, str] = {}

    def tried_before(self, advice: str, evidence: Evidence, now: float) -> Tried | None:
        """The last try of the same advice on the same evidence."""
        last = next((one for one in reversed(self.tried) if one.advice == advice), None)
        if last is None:
            return None
        any_target = last.any_target_until is not None and now < last.any_target_until
        return last if is_same_evidence(last.evidence, evidence, any_target=any_target) else None

    def with_tried(self, one: Tried) -> "TuningRecord":
        """The record without its trial, with a try; the oldest ones go."""
        others = tuple(old for old in self.tried if old.advice != one.advice)
        return msgspec.structs.replace(self, trial=None, tried=(*others, one)[-_MOST_TRIED:])

    def with_told(self, advice: str, refusal: str | None) -> "TuningRecord":
        """The record with the reason why advice is not tried, None for one that was; the oldest ones go."""
        told = {name: why for name, why in self.told.items() if name != advice}
        if refusal is not None:
            told[advice] = refusal
        return msgspec.structs.replace(self, told=dict(list(told.items())[-_MOST_TRIED:]))


def read_tuning(session: Session, host: str) -> TuningRecord:
    """The record of a host. Raises StateError for one that cannot be read."""
    record = session.host_record(host, _KIND)
    return TuningRecord() if record is None else _decode(host, record.content)


def read_every_tuning(session: Session) -> dict[str, TuningRecord]:
    """The records of all hosts that have one. Raises StateError."""
    return {one.host: _decode(one.host, one.content) for one in session.host_records(_KIND)}


def save_tuning(session: Session, host: str, record: TuningRecord) -> None:
    """Keep the record of a host."""
    session.save_host_record(host, _KIND, msgspec.json.encode(record).decode())


def note_tuning(
    session: Session,
    kind: EventKind,
    what: Advice | Trial,
    detail: str,
    *,
    vms: Sequence[str] = (),
    seen: Sequence[str] = (),
    watch_s: float | None = None,
    limit: str = "",
) -> None:
    """Add the event of a step. vms: that it touches. seen: what was seen of them. watch_s: how long that takes.

    limit: the power limit after a roll back, where it is another one than before the trial.
    It is the operator's: its VMs are of several tenants, none of which may see the others'.
    """
    values: Evidence | Advice
    if isinstance(what, Trial):
        name, values, gain = what.advice, what.evidence, what.evidence.gain
    else:
        name, values, gain = what.id, what, what.gain.value
    before, after = dict(values.before), dict(values.after)
    if kind is EventKind.TUNING_ROLLED_BACK:
        before, after = after, before
        if limit and not any(value.startswith(limit) for value in after.values()):
            after = dict.fromkeys(after, limit)
    has_changed = kind in (EventKind.TUNING_BEGUN, EventKind.TUNING_KEPT, EventKind.TUNING_ROLLED_BACK)
    session.add_event(
        kind,
        f"{what.host} {what.gpu or ''}".strip(),
        detail,
        host=what.host,
        before=before if has_changed else None,
        after=after if has_changed else None,
        evidence={
            "advice": name,
            "gpu": what.gpu,
            "advised": [f"{key}: {values.before.get(key, '')} → {value}" for key, value in values.after.items()],
            "gain": round(gain, 4),
            "vms": list(vms),
            **({"seen": list(seen)} if seen else {}),
            **({} if watch_s is None else {"watch_s": watch_s}),
        },
    )


def moves_vm(event: Event) -> bool:
    """True if the event of a step is of advice that moves a VM."""
    return str(event.evidence.get("advice", "")).startswith(f"{AdviceKind.REBALANCE}-")


def end_tuning(session: Session, host: str, why: str) -> None:
    """Write that the change in trial on a host ends, whose record is about to be dropped; nothing without one."""
    record = session.host_record(host, _KIND)
    if record is None:
        return
    try:
        trial = _decode(host, record.content).trial
    except StateError as error:
        session.add_event(EventKind.TUNING_ENDED, host, f"{why}; {error.message}", host=host)
        return
    if trial is not None:
        note_tuning(session, EventKind.TUNING_ENDED, trial, why, vms=trial.vms)


def _decode(host: str, content: str) -> TuningRecord:
    """A record that is lost would leave a change that nobody watches, so one of another version is never empty."""
    try:
        found: TuningRecord = typed_json.decode(content, TuningRecord)
    except msgspec.MsgspecError as error:
        raise StateError(
            f"{host}: its record of what is tuned cannot be read: {error}",
            hint="let a controller of the vgpuctl that wrote it end the trial; a newer one may have written it",
        ) from error
    return found
