# SPDX-License-Identifier: Apache-2.0
"""The record of a host's trial: kept, read, and never taken for an empty one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from vgpuctl.errors import StateError
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.promise import PromiseRow, PromiseVerdict
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind, Confidence, Gain
from vgpuctl.scheduler.advice.trial import Evidence, SeenVm
from vgpuctl.store.store import Store, open_store
from vgpuctl.usecases.observed.tuning_record import (
    MoveChange,
    PowerChange,
    Trial,
    Tried,
    TuningRecord,
    note_tuning,
    read_every_tuning,
    read_tuning,
    save_tuning,
)

EVIDENCE = Evidence({"limit": "250 W"}, {"limit": "275 W"}, ("1",), 2.0)
SEEN = SeenVm("acme/web", {PromiseRow.GPU_HELD: PromiseVerdict.KEPT}, 15, 15, 0.0, frozenset({"ports"}))
CHANGES = (
    PowerChange("0000:41:00.0", 250_000, 275_000, "boot"),
    MoveChange("1", "acme/web", "gpu1", "0000:41:00.0", "gpu2", "0000:81:00.0"),
)


def trial(change: PowerChange | MoveChange) -> Trial:
    return Trial(
        advice="power-limit-1",
        kind=AdviceKind.POWER_LIMIT,
        text="it drew its limit",
        host="gpu1",
        gpu="0000:41:00.0",
        tenant=None,
        change=change,
        evidence=EVIDENCE,
        watch_s=600.0,
        begun_at=1.0,
        before={"1": SEEN},
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


@pytest.mark.parametrize("change", CHANGES)
def test_a_trial_is_read_as_it_was_kept(store: Store, change: PowerChange | MoveChange) -> None:
    record = TuningRecord(trial(change), (Tried("other", 1.0, "rolled back", EVIDENCE),), {"third": "no"})
    with store.transaction() as session:
        assert read_tuning(session, "gpu1") == TuningRecord()
        save_tuning(session, "gpu1", record)
    with store.reading() as session:
        assert read_tuning(session, "gpu1") == record
        assert read_every_tuning(session) == {"gpu1": record}
    place = ("gpu2", "0000:81:00.0") if isinstance(change, MoveChange) else ("gpu1", "0000:41:00.0")
    assert trial(change).places == (place,)


@pytest.mark.parametrize("content", ["", "{", '{"trial": 1}', '{"trial": {"state": "paused"}}', '{"tried": null}'])
def test_a_record_that_cannot_be_read_is_not_an_empty_one(store: Store, content: str) -> None:
    with store.transaction() as session:
        session.save_host_record("gpu1", "tuning", content)
    with store.reading() as session, pytest.raises(StateError) as refused:
        read_every_tuning(session)
    assert "gpu1: its record of what is tuned cannot be read" in refused.value.message


def test_only_the_last_tries_and_reasons_are_kept() -> None:
    record = TuningRecord(trial(CHANGES[0]))
    for number in range(120):
        record = record.with_tried(Tried(f"advice-{number}", 1.0, "worse", EVIDENCE))
        record = record.with_told(f"advice-{number}", "no")
    assert (len(record.tried), len(record.told), record.trial) == (50, 50, None)
    assert record.tried_before("advice-119", EVIDENCE, 2.0) is not None
    assert record.tried_before("advice-0", EVIDENCE, 2.0) is None
    again = record.with_tried(Tried("advice-119", 2.0, "unknown", EVIDENCE)).with_told("advice-119", None)
    assert [one.at for one in again.tried if one.advice == "advice-119"] == [2.0]
    assert "advice-119" not in again.told


def test_another_target_is_no_other_evidence_for_some_hours() -> None:
    elsewhere = replace(EVIDENCE, after={"limit": "280 W"}, vms=("1", "2"))
    for until, now, is_tried in ((None, 2.0, False), (9.0, 8.9, True), (9.0, 9.0, False)):
        record = TuningRecord().with_tried(Tried("rebalance-1", 1.0, "worse", EVIDENCE, until))
        assert (record.tried_before("rebalance-1", elsewhere, now) is not None) is is_tried
        assert record.tried_before("rebalance-1", EVIDENCE, now) is not None
        assert record.tried_before("rebalance-1", replace(elsewhere, gain=4.0), now) is None, "twice the gain"
        assert record.tried_before("rebalance-1", replace(elsewhere, before={}), now) is None


@pytest.mark.parametrize("kind", [one for one in EventKind if one.startswith("tuning-")])
def test_no_tenant_sees_the_vms_of_another_one(store: Store, kind: EventKind) -> None:
    own = Advice(
        id="rebalance-1",
        kind=AdviceKind.REBALANCE,
        host="gpu1",
        gpu="0000:41:00.0",
        tenant="acme",
        vm="web",
        text="it loses time",
        before={},
        after={},
        commands=(),
        gain=Gain("", 1.0, "GPU-hours"),
        proof="",
        confidence=Confidence.LOW,
        measured_hours=1.0,
    )
    with store.transaction() as session:
        for what in (own, msgspec.structs.replace(trial(CHANGES[1]), tenant="acme")):
            note_tuning(session, kind, what, "umbrella/db lost time", vms=["acme/web", "umbrella/db"])
    with store.reading() as session:
        found = session.events(None, EventFilter(kinds=(kind,)))
        assert [one.tenant for one in found] == [None, None]


def test_a_step_back_is_an_event_with_the_values_the_other_way_round(store: Store) -> None:
    with store.transaction() as session:
        for kind in (EventKind.TUNING_BEGUN, EventKind.TUNING_ROLLED_BACK, EventKind.TUNING_ENDED):
            note_tuning(session, kind, trial(CHANGES[0]), "why", vms=["acme/web"])
    with store.reading() as session:
        begun, back, ended = session.events(None)
    assert (begun.before, begun.after) == (EVIDENCE.before, EVIDENCE.after) == (back.after, back.before)
    assert (dict(ended.before), dict(ended.after)) == ({}, {})
    with store.transaction() as session:
        for limit in ("250 W", "260 W"):
            note_tuning(session, EventKind.TUNING_ROLLED_BACK, trial(CHANGES[0]), "why", limit=limit)
    with store.reading() as session:
        assert [dict(one.after) for one in session.events(2)] == [{"limit": "250 W"}, {"limit": "260 W"}]
    assert {one.subject for one in (begun, back, ended)} == {"gpu1 0000:41:00.0"}
    assert back.evidence["vms"] == ["acme/web"] and back.evidence["gain"] == 2.0
