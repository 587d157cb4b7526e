# SPDX-License-Identifier: Apache-2.0
"""The record of promises: an event for each row that turns broken or is kept again, once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vgpuctl.model.event import Event
from vgpuctl.model.promise import (
    FRESH_S,
    GpuFault,
    LastFinding,
    Moment,
    PromiseFinding,
    PromiseRow,
    PromiseVerdict,
    Witness,
)
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.store.store import Store, open_store
from vgpuctl.usecases.observed.promise_record import known_kept, note_findings, recorded, recorded_of_hosts
from vgpuctl.usecases.observed.states import read_states

VM = Vm("u", VmRequest("web-1", "acme"), "gpu1", VmState.RUNNING)
KEPT = PromiseFinding(PromiseRow.PORTS, "blue", Witness.OVN, PromiseVerdict.KEPT, "up", "up")
BROKEN = replace(KEPT, verdict=PromiseVerdict.BROKEN, seen="down", remedy="look at ovn-controller")
UNSEEN = replace(KEPT, verdict=PromiseVerdict.NOT_LOOKED_AT, seen="", why="OVN does not answer")
GUEST = PromiseFinding(PromiseRow.GUEST_GPUS, "", Witness.GUEST, PromiseVerdict.KEPT, "A40-8Q", "A40-8Q")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as opened:
        with opened.transaction() as session:
            session.add_tenant("acme")
            session.add_vm(VM)
        yield opened


def note(store: Store, moment: Moment, *findings: PromiseFinding) -> list[str]:
    with store.transaction() as session:
        note_findings(session, [(VM, findings)], moment)
    with store.reading() as session:
        return [str(one.finding.verdict) for one in recorded(session, VM)]


def events(store: Store) -> list[Event]:
    with store.reading() as session:
        return [one for one in session.events(None) if one.kind == "promise-observed"]


def test_a_row_that_turns_broken_is_an_event_and_so_is_its_return(store: Store) -> None:
    assert note(store, Moment.CREATION, KEPT) == ["kept"]
    assert note(store, Moment.CHECK, BROKEN) == ["broken"]
    assert note(store, Moment.CHECK, BROKEN) == ["broken"]
    (first,) = events(store)
    assert (first.subject, first.host, first.before, first.after) == (
        "acme/web-1", "gpu1", {"state": "kept"}, {"state": "broken"},
    )  # fmt: skip
    assert first.detail == "ports blue: promised up, seen down"
    assert first.evidence["finding"] == "promise-broken" and first.evidence["remedy"] == "look at ovn-controller"
    assert note(store, Moment.CHECK, KEPT) == ["kept"]
    assert [one.after for one in events(store)] == [{"state": "broken"}, {"state": "kept"}]


def test_one_look_of_the_controller_is_not_enough_to_call_a_row_broken(store: Store) -> None:
    note(store, Moment.CREATION, KEPT)
    assert note(store, Moment.LOOK, BROKEN) == ["kept"] and events(store) == []
    assert note(store, Moment.LOOK, KEPT) == ["kept"]
    assert note(store, Moment.LOOK, BROKEN) == ["kept"]
    assert note(store, Moment.LOOK, BROKEN) == ["broken"] and len(events(store)) == 1


def test_a_first_look_that_is_broken_says_that_nobody_knows_yet(store: Store) -> None:
    assert note(store, Moment.LOOK, BROKEN) == ["not-looked-at"]
    assert note(store, Moment.LOOK, BROKEN) == ["broken"]


def test_a_witness_that_is_silent_for_a_while_makes_no_second_event(store: Store) -> None:
    note(store, Moment.CHECK, BROKEN)
    assert note(store, Moment.LOOK, UNSEEN) == ["not-looked-at"]
    assert note(store, Moment.LOOK, BROKEN) == ["broken"]
    assert len(events(store)) == 1
    note(store, Moment.LOOK, UNSEEN)
    assert note(store, Moment.LOOK, KEPT) == ["kept"] and len(events(store)) == 2


def test_rows_of_other_moments_stay_until_the_vm_starts_again(store: Store) -> None:
    note(store, Moment.CHECK, KEPT, GUEST)
    assert note(store, Moment.LOOK, KEPT) == ["kept", "kept"]
    assert note(store, Moment.CREATION, KEPT) == ["kept"]


def test_of_several_witnesses_the_worst_counts(store: Store) -> None:
    assert note(store, Moment.CHECK, KEPT, BROKEN, KEPT) == ["broken"]
    with store.reading() as session:
        assert known_kept(recorded(session, VM)) == {(PromiseRow.PORTS, "blue", "up")}


def test_a_vm_that_is_gone_leaves_the_record(store: Store) -> None:
    note(store, Moment.CREATION, KEPT)
    with store.transaction() as session:
        session.delete_vm(VM.uuid)
        other = replace(VM, uuid="v", request=VmRequest("web-2", "acme"))
        session.add_vm(other)
        note_findings(session, [(VM, [KEPT]), (other, [KEPT])], Moment.LOOK)
        assert list(recorded_of_hosts(session)["gpu1"]) == ["v"]


def test_an_old_look_a_silent_host_and_a_gpu_at_fault_say_nothing_of_now() -> None:
    held = LastFinding(
        PromiseFinding(PromiseRow.GPU_HELD, "", Witness.HOST_KERNEL, PromiseVerdict.KEPT, "a", "b"), 0, 0
    )
    port = LastFinding(KEPT, 0, 0)
    assert held.as_of(FRESH_S) is held
    old = held.as_of(FRESH_S + 60).finding
    assert (str(old.verdict), old.seen, old.why) == ("not-looked-at", "", "kept when it was last looked at, 11m ago")
    silent = port.as_of(9, silence="its host gives no answer").finding
    assert silent.why == "kept when it was last looked at, 9s ago; its host gives no answer"
    fault = GpuFault(5, "GPU 0000:41:00.0 is off the bus")
    assert held.as_of(9, fault=fault).finding.why.endswith("9s ago; GPU 0000:41:00.0 is off the bus")
    assert port.as_of(9, fault=fault) is port, "no GPU tells of a port"
    assert replace(held, at=6).as_of(9, fault=fault).finding.verdict is PromiseVerdict.KEPT, "it was looked at since"
    assert LastFinding(UNSEEN, 0, 0).as_of(9999).finding is UNSEEN
    assert LastFinding(BROKEN, 0, 0).as_of(9999).finding.why.startswith("broken when it was last looked at")


def test_metrics_count_rows_and_name_the_broken_ones(store: Store) -> None:
    note(store, Moment.CHECK, BROKEN, GUEST)
    with store.reading() as session:
        states = read_states(session, of=["vm"])
    counts = {row.labels[-1]: row.value for row in states.of("promise_rows")}
    assert counts == {"kept": 1, "broken": 1, "not-looked-at": 0}
    (broken,) = states.of("promise_broken")
    assert (broken.labels, broken.value) == (("gpu1", "acme", "web-1", "ports"), 1)
    assert broken.text == "ports blue: promised up, seen down"
