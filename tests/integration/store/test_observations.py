# SPDX-License-Identifier: Apache-2.0
"""Observations in the store: cards that move, two controllers' readings, and records of an older vgpuctl."""

import json
from dataclasses import replace

from tests.unit.fleet_factory import a40_host
from vgpuctl.store.store import Store
from vgpuctl.usecases.support.observations import note_facts, observed_hosts

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
