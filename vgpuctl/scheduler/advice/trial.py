# SPDX-License-Identifier: Apache-2.0
"""The judgement of a change in trial: the VMs that it touches are compared with what was known before it.

A change is kept only for what was looked at: a promise that was kept before and is not looked at now is no reason to
keep the change.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import isclose

from vgpuctl.model.promise import PromiseVerdict
from vgpuctl.scheduler.advice.contention import FEWEST_MINUTES, LEAST_STEAL, WINDOW_S
from vgpuctl.scheduler.advice.measured import MINUTE_S

LEAST_MEASURED = 0.5
"""Part of the minutes of the watch that must be measured, of each VM."""

NEW_GAIN = 2.0
"""A gain that has grown by this factor is new evidence."""


class TrialVerdict(StrEnum):
    """The judgement. better-or-equal is not said: `kept` is that nothing that was looked at got worse."""

    WAITS = "waits"
    KEPT = "kept"
    WORSE = "worse"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SeenVm:
    """One VM before or after a change.

    rows: the verdict of each promise row and subject, by `row_name`. doubtful: those that were seen broken once, which
    the next look decides. minutes: with the use of each of its vGPUs; steal_minutes: with what each lost; steal: the
    mean part of a GPU's time that it lost in them, None where nobody tells.
    """

    name: str
    rows: Mapping[str, PromiseVerdict] = field(default_factory=dict)
    minutes: int = 0
    steal_minutes: int = 0
    steal: float | None = None
    doubtful: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Judgement:
    """verdict, and its reasons as sentences without an end."""

    verdict: TrialVerdict
    reasons: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The reasons in one line."""
        return "; ".join(self.reasons)


@dataclass(frozen=True)
class Watch:
    """The result of a look. gone: VMs that were stopped, moved or deleted since, which say nothing of the change.

    new_findings: names of VMs that take their neighbours' time on a watched GPU, and did not before. failures: what
    failed since, as sentences without an end: VMs that nobody ended, also those that run again, and watched GPUs.
    minutes: length of the watch so far. problem: why there are no readings. is_over: the watch has its full length.
    is_late: it is so long over that a doubtful row is no reason to wait.
    """

    before: Mapping[str, SeenVm]
    now: Mapping[str, SeenVm]
    gone: Collection[str]
    new_findings: Sequence[str]
    minutes: float
    problem: str | None = None
    is_over: bool = False
    is_late: bool = False
    failures: Sequence[str] = ()


def refuse_to_begin(before: Iterable[SeenVm], problem: str | None) -> str | None:
    """Say why a change may not be tried: too little is known of a VM. problem: why there are no readings.

    The reason has no number of what was seen, so that it is told once.
    """
    if problem is not None:
        return f"nobody could tell that its VMs are as before: {problem}"
    for one in sorted(before, key=lambda one: one.name):
        if one.minutes < FEWEST_MINUTES:
            minutes = f"{FEWEST_MINUTES} of the last {WINDOW_S / MINUTE_S:.0f} minutes"
            return f"{one.name} has no readings of {minutes}, with which it would be compared"
        if PromiseVerdict.KEPT not in one.rows.values():
            return f"no promise of {one.name} is known to be kept"
    return None


def judge(watch: Watch) -> Judgement:
    """Judge a change by the VMs that it touches, by UUID: worse as soon as one is; kept or unknown at the end."""
    there = {uuid: one for uuid, one in watch.before.items() if uuid not in watch.gone}
    worse = [*watch.failures]
    worse += [f"{name} takes time of its neighbours, and did not before" for name in watch.new_findings]
    unknown: list[str] = []
    doubtful = False
    for uuid, before in there.items():
        now = watch.now.get(uuid)
        if now is None:
            unknown.append(f"{before.name}: nothing is known of it since{_because(watch)}")
            continue
        doubtful |= any(before.rows.get(row) is PromiseVerdict.KEPT for row in now.doubtful)
        worse += [f"{before.name}: {row} is broken" for row in _newly_broken(before, now)]
        lost = _not_known(before, now)
        unknown += [f"{before.name}: not known: {', '.join(lost)}"] if lost else []
        worse += _lost_time(before, now)
        unknown += _unmeasured(before, now, watch)
    if worse:
        return Judgement(TrialVerdict.WORSE, tuple(worse))
    if not watch.is_over or (doubtful and not watch.is_late):
        return Judgement(TrialVerdict.WAITS)
    if not there:
        unknown = ["none of its VMs is there any more"]
    if unknown:
        return Judgement(TrialVerdict.UNKNOWN, tuple(unknown))
    return Judgement(
        TrialVerdict.KEPT, tuple(f"{one.name}: {_in_words(one)}" for one in map(watch.now.__getitem__, there))
    )


def row_name(row: str, subject: str) -> str:
    """The name of a promise row and its subject, such as a network: `ports lan`."""
    return f"{row} {subject}".rstrip()


def _row_of(name: str) -> str:
    return name.partition(" ")[0]


def _newly_broken(before: SeenVm, now: SeenVm) -> list[str]:
    """The promises that are broken and were kept or not there: a row such as `gpu-state` only exists while broken.

    A subject may have another name since, such as a partition after a move: one that was not kept, and is gone, may be
    the one that is broken now.
    """
    renamed = {
        _row_of(name)
        for name, verdict in before.rows.items()
        if verdict is not PromiseVerdict.KEPT and name not in now.rows
    }
    return [
        name
        for name, verdict in now.rows.items()
        if verdict is PromiseVerdict.BROKEN
        and (before.rows.get(name) is PromiseVerdict.KEPT or (name not in before.rows and _row_of(name) not in renamed))
    ]


def _not_known(before: SeenVm, now: SeenVm) -> list[str]:
    """The promises that were kept and are not looked at now, or were seen broken once.

    A subject that is gone, such as a detached network, is promised no more where others of its row are looked at.
    """
    lost = []
    for name in (name for name, verdict in before.rows.items() if verdict is PromiseVerdict.KEPT):
        found = [name] if name in now.rows else [one for one in now.rows if _row_of(one) == _row_of(name)]
        verdicts = {now.rows[one] for one in found}
        if not found or PromiseVerdict.NOT_LOOKED_AT in verdicts or now.doubtful & {name, *found}:
            lost.append(name)
    return lost


def _lost_time(before: SeenVm, now: SeenVm) -> list[str]:
    """The VM loses so much more of the GPU's time than before that it is a victim of contention."""
    was, is_now = before.steal, now.steal
    if was is None or is_now is None or now.steal_minutes < FEWEST_MINUTES or is_now - was < LEAST_STEAL:
        return []
    return [f"{before.name}: loses {is_now:.0%} of the GPU's time to neighbours instead of {was:.0%}"]


def _unmeasured(before: SeenVm, now: SeenVm, watch: Watch) -> list[str]:
    needed = max(FEWEST_MINUTES, LEAST_MEASURED * watch.minutes)
    if now.minutes < needed:
        return [f"{before.name}: {now.minutes} minutes of readings since, {needed:.0f} are needed{_because(watch)}"]
    if before.steal is not None and now.steal_minutes < FEWEST_MINUTES:
        told = f"{before.name}: what it loses to neighbours was told in {now.steal_minutes} minutes since"
        return [f"{told}, {FEWEST_MINUTES} are needed"]
    return []


def _because(watch: Watch) -> str:
    return f": {watch.problem}" if watch.problem else ""


def _in_words(one: SeenVm) -> str:
    kept = sum(verdict is PromiseVerdict.KEPT for verdict in one.rows.values())
    lost = "" if one.steal is None else f", {one.steal:.0%} of the GPU's time lost"
    return f"{kept} promises kept, {one.minutes} minutes measured{lost}"


@dataclass(frozen=True)
class Evidence:
    """The evidence of advice. vms: UUIDs of the VMs on its GPUs. gain: as the replay says."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    vms: tuple[str, ...]
    gain: float


def is_same_evidence(old: Evidence, new: Evidence, *, any_target: bool = False) -> bool:
    """True if advice is about the same VMs and values, and its gain is not twice as large as it was.

    Where places of VMs alone differ, as of a move to another GPU, the values do. any_target: neither the values after
    it nor the VMs count, which are those of both GPUs.
    """
    is_larger = new.gain >= NEW_GAIN * old.gain and not isclose(new.gain, old.gain)
    same = any_target or (old.after, sorted(old.vms)) == (new.after, sorted(new.vms))
    return old.before == new.before and same and not is_larger
