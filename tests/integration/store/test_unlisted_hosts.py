# SPDX-License-Identifier: Apache-2.0
"""Hosts that no inventory lists any more leave the store after a week, unless something of a tenant is on them."""

import json
from dataclasses import replace

import pytest

from tests.integration.store import samples
from tests.integration.store.conftest import Clock
from tests.unit.fleet_factory import a40_host
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.store.store import Session, Store
from vgpuctl.usecases.observed.observations import note_facts, observed_hosts
from vgpuctl.usecases.observed.unlisted_hosts import UNLISTED_KEPT_S, forget_unlisted

FACTS = a40_host("gpu1").facts


def test_a_host_that_left_the_inventory_is_forgotten_after_a_week(store: Store, clock: Clock) -> None:
    with store.transaction() as session:
        for name in ("gpu1", "gpu2"):
            note_facts(session, name, FACTS)
        clock.now += UNLISTED_KEPT_S
        assert forget_unlisted(session, ["gpu1"]) == []
        clock.now += 1
        assert forget_unlisted(session, ["gpu1"]) == ["gpu2"]
        assert forget_unlisted(session, ["gpu1"]) == []
        assert set(observed_hosts(session)) == set(session.all_facts()) == {"gpu1"}
        (event,) = [one for one in session.events(100) if one.kind == "host-forgotten"]
        assert event.subject == "gpu2"


@pytest.mark.parametrize("what", ["a VM", "a restriction", "a share of its layout"])
def test_a_host_that_has_something_stays(what: str, store: Store, clock: Clock) -> None:
    with store.transaction() as session:
        note_facts(session, "gpu2", FACTS)
        _add(session, what)
        clock.now += 2 * UNLISTED_KEPT_S
        assert forget_unlisted(session, ["gpu1"]) == []


def _add(session: Session, what: str) -> None:
    if what == "a VM":
        session.add_tenant("acme")
        session.add_vm(replace(samples.vm(), host="gpu2"))
    elif what == "a share of its layout":
        content = {"boot_id": "b", "made": {"0000:41:00.4": "558"}, "profiles": {}}
        session.save_host_record("gpu2", "layout-shares", json.dumps(content))
    else:
        session.restrict("gpu2", WHOLE_HOST, RestrictionKind.CORDON, "for repair")
