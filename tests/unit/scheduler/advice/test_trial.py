# SPDX-License-Identifier: Apache-2.0
"""The judgement of a change in trial: kept only for what was looked at, worse as soon as one VM is."""

from dataclasses import replace

import click
import pytest

from vgpuctl.cli.operate.controller import command as controller
from vgpuctl.cli.options.numbers import SecondsRange
from vgpuctl.errors import UsageError
from vgpuctl.model.promise import PromiseVerdict
from vgpuctl.scheduler.advice.advice import AdviceKind
from vgpuctl.scheduler.advice.contention import FEWEST_MINUTES
from vgpuctl.scheduler.advice.trial import (
    Evidence,
    SeenVm,
    TrialVerdict,
    Watch,
    is_same_evidence,
    judge,
    refuse_to_begin,
    row_name,
)
from vgpuctl.scheduler.advice.tunable import TUNABLE, UNTUNABLE, describe_tunable, parse_kinds

KEPT, BROKEN, UNKNOWN = PromiseVerdict.KEPT, PromiseVerdict.BROKEN, PromiseVerdict.NOT_LOOKED_AT
BEFORE = SeenVm("acme/web", {"gpu-held": KEPT, "ports": KEPT, "licence": UNKNOWN}, 15, 15, 0.02)
AFTER = SeenVm("acme/web", {"gpu-held": KEPT, "ports": KEPT, "licence": UNKNOWN}, 28, 28, 0.03)
WATCH = Watch({"1": BEFORE}, {"1": AFTER}, (), (), 30.0, is_over=True)
EARLY = replace(WATCH, is_over=False)


def seen(**changes: object) -> dict[str, SeenVm]:
    return {"1": replace(AFTER, **changes)}  # type: ignore[arg-type]  # of a test's own names


def rows(**changes: PromiseVerdict) -> dict[str, PromiseVerdict]:
    named = {name.replace("_", "-"): verdict for name, verdict in changes.items()}
    return {**AFTER.rows, **named}


def named(vm: SeenVm = BEFORE, **ports: PromiseVerdict) -> dict[str, SeenVm]:
    """A VM with these networks."""
    rows = {"gpu-held": KEPT, **{row_name("ports", network): verdict for network, verdict in ports.items()}}
    return {"1": replace(vm, rows=rows)}


CASES: dict[str, tuple[Watch, TrialVerdict, str]] = {
    "as-before": (
        WATCH,
        TrialVerdict.KEPT,
        "acme/web: 2 promises kept, 28 minutes measured, 3% of the GPU's time lost",
    ),
    "in-the-watch": (EARLY, TrialVerdict.WAITS, ""),
    "broken": (replace(EARLY, now=seen(rows=rows(ports=BROKEN))), TrialVerdict.WORSE, "acme/web: ports is broken"),
    "never-there-and-broken": (
        replace(WATCH, now=seen(rows=rows(gpu_state=BROKEN))),
        TrialVerdict.WORSE,
        "acme/web: gpu-state is broken",
    ),
    "unknown-before-and-broken": (replace(WATCH, now=seen(rows=rows(licence=BROKEN))), TrialVerdict.KEPT, "2 promises"),
    "unknown-since": (
        replace(WATCH, now=seen(rows=rows(ports=UNKNOWN))),
        TrialVerdict.UNKNOWN,
        "acme/web: not known: ports",
    ),
    "unknown-for-now": (replace(EARLY, now=seen(rows=rows(ports=UNKNOWN))), TrialVerdict.WAITS, ""),
    "row-gone": (replace(WATCH, now=seen(rows={"gpu-held": KEPT})), TrialVerdict.UNKNOWN, "acme/web: not known: ports"),
    "nothing-known": (
        replace(WATCH, now={}, problem="gpu1: no route"),
        TrialVerdict.UNKNOWN,
        "acme/web: nothing is known of it since: gpu1: no route",
    ),
    "nothing-known-of-a-vm-without-promises": (
        replace(WATCH, before={"1": SeenVm("acme/web")}, now={}),
        TrialVerdict.UNKNOWN,
        "acme/web: nothing is known of it since",
    ),
    "nothing-known-of-one-of-two": (
        replace(WATCH, before={"1": BEFORE, "2": SeenVm("acme/db")}),
        TrialVerdict.UNKNOWN,
        "acme/db: nothing is known of it since",
    ),
    "nothing-known-for-now": (replace(EARLY, now={}), TrialVerdict.WAITS, ""),
    "seen-broken-once": (replace(WATCH, now=seen(doubtful=frozenset({"ports"}))), TrialVerdict.WAITS, ""),
    "seen-broken-once-and-late": (
        replace(WATCH, now=seen(doubtful=frozenset({"ports"})), is_late=True),
        TrialVerdict.UNKNOWN,
        "acme/web: not known: ports",
    ),
    "doubt-about-what-was-not-kept": (
        replace(WATCH, now=seen(doubtful=frozenset({"licence"}))),
        TrialVerdict.KEPT,
        "2 promises kept",
    ),
    "new-contention": (
        replace(EARLY, new_findings=("acme/noisy",)),
        TrialVerdict.WORSE,
        "acme/noisy takes time of its neighbours, and did not before",
    ),
    "a-vm-failed-and-runs-again": (
        replace(EARLY, failures=("acme/web failed: nobody ended it",)),
        TrialVerdict.WORSE,
        "acme/web failed",
    ),
    "loses-time": (
        replace(EARLY, now=seen(minutes=8, steal_minutes=8, steal=0.2)),
        TrialVerdict.WORSE,
        "acme/web: loses 20% of the GPU's time to neighbours instead of 2%",
    ),
    "loses-time-in-few-minutes": (
        replace(EARLY, now=seen(minutes=7, steal_minutes=7, steal=0.2)),
        TrialVerdict.WAITS,
        "",
    ),
    "loses-time-in-few-of-many-minutes": (replace(EARLY, now=seen(steal_minutes=7, steal=0.2)), TrialVerdict.WAITS, ""),
    "loss-known-in-few-minutes": (
        replace(WATCH, now=seen(steal_minutes=7, steal=0.2)),
        TrialVerdict.UNKNOWN,
        "acme/web: what it loses to neighbours was told in 7 minutes since, 8 are needed",
    ),
    "loss-not-known-any-more": (
        replace(WATCH, now=seen(steal_minutes=0, steal=None)),
        TrialVerdict.UNKNOWN,
        "was told in 0 minutes since",
    ),
    "loss-never-known": (
        replace(
            WATCH, before={"1": replace(BEFORE, steal_minutes=0, steal=None)}, now=seen(steal_minutes=0, steal=None)
        ),
        TrialVerdict.KEPT,
        "2 promises kept",
    ),
    "a-short-watch-needs-eight-minutes": (
        replace(WATCH, minutes=10.0, now=seen(minutes=7)),
        TrialVerdict.UNKNOWN,
        "acme/web: 7 minutes of readings since, 8 are needed",
    ),
    "a-short-watch-with-eight-minutes": (
        replace(WATCH, minutes=10.0, now=seen(minutes=8, steal_minutes=8)),
        TrialVerdict.KEPT,
        "8 minutes measured",
    ),
    "one-part-breaks-beside-a-broken-one": (
        replace(WATCH, before=named(lan=KEPT, wan=BROKEN), now=named(AFTER, lan=BROKEN, wan=BROKEN)),
        TrialVerdict.WORSE,
        "acme/web: ports lan is broken",
    ),
    "one-part-is-not-known-beside-a-broken-one": (
        replace(WATCH, before=named(lan=KEPT, wan=BROKEN), now=named(AFTER, lan=UNKNOWN, wan=BROKEN)),
        TrialVerdict.UNKNOWN,
        "acme/web: not known: ports lan",
    ),
    "a-part-stays-broken": (
        replace(WATCH, before=named(lan=KEPT, wan=BROKEN), now=named(AFTER, lan=KEPT, wan=BROKEN)),
        TrialVerdict.KEPT,
        "2 promises kept",
    ),
    "a-new-part-is-broken": (
        replace(WATCH, before=named(lan=KEPT), now=named(AFTER, lan=KEPT, wan=BROKEN)),
        TrialVerdict.WORSE,
        "acme/web: ports wan is broken",
    ),
    "a-part-that-is-gone": (
        replace(WATCH, before=named(lan=KEPT, wan=KEPT), now=named(AFTER, lan=KEPT)),
        TrialVerdict.KEPT,
        "2 promises kept",
    ),
    "the-only-part-is-gone": (
        replace(WATCH, before=named(lan=KEPT), now=named(AFTER)),
        TrialVerdict.UNKNOWN,
        "acme/web: not known: ports lan",
    ),
    "a-part-with-another-name": (
        replace(WATCH, before=named(p1=KEPT), now=named(AFTER, p2=KEPT)),
        TrialVerdict.KEPT,
        "2 promises kept",
    ),
    "a-broken-part-with-another-name": (
        replace(WATCH, before=named(p1=BROKEN), now=named(AFTER, p2=BROKEN)),
        TrialVerdict.KEPT,
        "1 promises kept",
    ),
    "loses-a-little": (replace(WATCH, now=seen(steal=0.06)), TrialVerdict.KEPT, "6% of the GPU's time lost"),
    "half-measured": (replace(WATCH, now=seen(minutes=15)), TrialVerdict.KEPT, "15 minutes measured"),
    "less-than-half-measured": (
        replace(WATCH, now=seen(minutes=14)),
        TrialVerdict.UNKNOWN,
        "acme/web: 14 minutes of readings since, 15 are needed",
    ),
    "never-measured": (
        replace(WATCH, before={"1": replace(BEFORE, minutes=0, steal=None)}, now=seen(minutes=0, steal=None)),
        TrialVerdict.UNKNOWN,
        "acme/web: 0 minutes of readings since, 15 are needed",
    ),
    "gone": (replace(WATCH, now={}, gone=("1",)), TrialVerdict.UNKNOWN, "none of its VMs is there any more"),
    "one-gone": (
        replace(WATCH, before={"1": BEFORE, "2": replace(BEFORE, name="acme/old")}, gone=("2",)),
        TrialVerdict.KEPT,
        "acme/web: 2 promises kept",
    ),
    "none-touched": (replace(WATCH, before={}, now={}), TrialVerdict.UNKNOWN, "none of its VMs"),
    "worse-beside-unknown": (
        replace(WATCH, now=seen(minutes=0, rows=rows(gpu_held=BROKEN))),
        TrialVerdict.WORSE,
        "gpu-held is broken",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_judged_by_the_vms_that_it_touches(name: str) -> None:
    watch, verdict, why = CASES[name]
    found = judge(watch)
    assert found.verdict is verdict, found.why
    assert why in found.why


def test_the_shortest_watch_that_is_taken_has_room_for_the_fewest_minutes() -> None:
    (kind,) = (one.type for one in controller.params if one.name == "tune_watch_s")
    assert isinstance(kind, SecondsRange) and kind.min is not None and kind.min >= 60 * FEWEST_MINUTES
    with pytest.raises(click.BadParameter) as refused:
        kind.convert("8m", None, None)
    assert f"{kind.min:g}" in refused.value.message


BEGINS: dict[str, tuple[tuple[SeenVm, ...], str | None, str | None]] = {
    "known": ((BEFORE, AFTER), None, None),
    "eight-minutes": ((replace(BEFORE, minutes=8),), None, None),
    "seven-minutes": (
        (BEFORE, replace(BEFORE, name="acme/db", minutes=7)),
        None,
        "acme/db has no readings of 8 of the last 15 minutes, with which it would be compared",
    ),
    "never-measured": ((replace(BEFORE, minutes=0),), None, "acme/web has no readings of 8 of the last 15 minutes"),
    "no-readings-at-all": ((BEFORE,), "gpu1: no such file", "as before: gpu1: no such file"),
    "no-promises": ((replace(BEFORE, rows={}),), None, "no promise of acme/web is known to be kept"),
    "none-kept": (
        (replace(BEFORE, rows={"ports": BROKEN, "licence": UNKNOWN}),),
        None,
        "no promise of acme/web is known to be kept",
    ),
}


@pytest.mark.parametrize("name", BEGINS)
def test_a_trial_begins_only_with_what_it_will_be_compared_with(name: str) -> None:
    before, problem, refusal = BEGINS[name]
    found = refuse_to_begin(before, problem)
    assert (found is None) if refusal is None else refusal in (found or "")


OLD = Evidence({"limit": "250 W"}, {"limit": "275 W"}, ("1", "2"), 1.0)
EVIDENCE: dict[str, tuple[Evidence, bool]] = {
    "equal": (OLD, True),
    "other-order": (replace(OLD, vms=("2", "1")), True),
    "a-little-more": (replace(OLD, gain=1.9), True),
    "less": (replace(OLD, gain=0.1), True),
    "twice-the-gain": (replace(OLD, gain=2.0), False),
    "another-vm": (replace(OLD, vms=("1", "3")), False),
    "one-vm-less": (replace(OLD, vms=("1",)), False),
    "another-value-before": (replace(OLD, before={"limit": "260 W"}), False),
    "another-value-after": (replace(OLD, after={"limit": "280 W"}), False),
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_advice_is_tried_again_once_its_evidence_is_another(name: str) -> None:
    new, is_same = EVIDENCE[name]
    assert is_same_evidence(OLD, new) is is_same


def test_evidence_without_a_gain_is_the_same_without_one() -> None:
    nothing = replace(OLD, gain=0.0)
    assert is_same_evidence(nothing, nothing)
    assert not is_same_evidence(nothing, OLD)


def test_every_kind_of_advice_is_tuned_or_refused_with_its_reason() -> None:
    assert {*TUNABLE} | {*UNTUNABLE} == set(AdviceKind)
    assert not {*TUNABLE} & {*UNTUNABLE}
    assert len(describe_tunable()) == 2 + len(AdviceKind)


READ: dict[str, tuple[AdviceKind, ...]] = {
    "power-limit": (AdviceKind.POWER_LIMIT,),
    "rebalance, power-limit": (AdviceKind.REBALANCE, AdviceKind.POWER_LIMIT),
    "rebalance,rebalance": (AdviceKind.REBALANCE,),
}


@pytest.mark.parametrize("text", READ)
def test_kinds_are_read_in_their_order_and_once(text: str) -> None:
    assert parse_kinds(text) == READ[text]


REFUSED = {
    "": "names no kind",
    "power-limit,": "a comma too many",
    "all": "'all' is no kind of advice",
    "Rebalance": "'Rebalance' is no kind of advice",
    "power-limit;rebalance": "is no kind of advice",
    "scheduler": "no controller applies scheduler: a driver takes another vGPU scheduler only while no VM runs",
    "size-mode": "no controller applies size-mode",
    "rebalance,smaller-profile": "it needs a new VM",
    "larger-profile": "it needs a new VM",
    "idle-card": "it needs a new VM",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_kind_that_no_controller_applies_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_kinds(text)
    assert REFUSED[text] in refused.value.message
    assert refused.value.hint == "kinds that a controller applies: power-limit, rebalance"
