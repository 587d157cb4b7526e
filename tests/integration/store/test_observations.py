# SPDX-License-Identifier: Apache-2.0
"""Observations in the store: cards that move, two controllers' readings, and records of an older vgpuctl."""

import json
from dataclasses import replace

import pytest

from tests.integration.store.conftest import Clock
from tests.unit.fleet_factory import a40_host
from vgpuctl.errors import HostUnreachable
from vgpuctl.model.way import Way
from vgpuctl.store.store import Store
from vgpuctl.usecases.observed.observations import (
    is_seen_by_controller,
    note_answers,
    note_facts,
    observed_hosts,
)

FACTS = a40_host("gpu1").facts
CARD = replace(FACTS.gpus[0], uuid="GPU-1")


def test_a_card_in_another_slot_is_one_event(store: Store) -> None:
    with store.transaction() as session:
        note_facts(session, "gpu1", replace(FACTS, gpus=(CARD,)))
        note_facts(session, "gpu1", replace(FACTS, gpus=(replace(CARD, address="0000:99:00.0"),)))
        note_facts(session, "gpu1", replace(FACTS, gpus=(replace(CARD, address="0000:99:00.0"),)))
    with store.reading() as session:
        (event,) = session.events(10)
        assert list(observed_hosts(session)["gpu1"].gpus) == ["0000:99:00.0"]
    assert (event.kind, event.subject) == ("gpu-moved", "gpu1 0000:99:00.0")
    assert (event.before, event.after) == ({"address": CARD.address}, {"address": "0000:99:00.0"})


def test_a_record_of_an_older_vgpuctl_counts_as_never_looked(store: Store) -> None:
    old = {"vms": {"0f0f": ["running", 1.0]}, "unknown_since": None, "problem": None}
    with store.transaction() as session:
        session.save_host_record("gpu1", "observations", json.dumps(old))
        assert observed_hosts(session)["gpu1"].state is None
        note_facts(session, "gpu1", FACTS)
        assert observed_hosts(session)["gpu1"].state == "up"


@pytest.mark.parametrize(
    ("pid", "hosts", "age_s", "is_seen"),
    [
        (1, ["gpu1"], 10, True),
        (1, ["gpu1"], 90, False),
        (1, ["gpu2"], 10, False),
        (None, ["gpu1"], 10, False),
    ],
    ids=["it has just read it", "long ago", "another host", "this process itself"],
)
def test_a_controller_that_has_just_read_a_host_knows_better_than_a_command_without_an_answer(
    pid: int | None, hosts: list[str], age_s: int, is_seen: bool, store: Store, clock: Clock
) -> None:
    with store.transaction() as session:
        note_facts(session, "gpu1", FACTS)
        session.beat_controller("watch", hosts)
        session.claim_hosts("watch", hosts)
        if pid is not None:
            session._update("controllers", {"id": "watch"}, pid=pid, machine="another machine")
        clock.now += age_s
        assert is_seen_by_controller(session, "gpu1") is is_seen
        note_answers(session, "gpu1", facts=FACTS, way=Way("root@gpu1 port 2222"))
        note_answers(session, "gpu1", errors=[HostUnreachable("no route")], way=Way("root@gpu1 port 22"))
        assert observed_hosts(session)["gpu1"].state == "up", "nobody has logged in that way"
