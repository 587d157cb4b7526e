# SPDX-License-Identifier: Apache-2.0
"""Quota that runs reclaim for VMs on their way: it counts until the VM holds its shares, or the run ends."""

import os
from dataclasses import replace

from tests.integration.store import racers
from tests.integration.store.samples import host_facts, lease
from tests.integration.store.test_store_concurrency import RACERS, run_race
from vgpuctl.quota.limits import Quota
from vgpuctl.store.store import Store

FRAMEBUFFER = {"framebuffer": 8192}


def _filled(store: Store) -> None:
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_tenant("umbrella")
        session.save_facts("gpu1", host_facts(), 1.0)


def test_a_claim_ends_with_the_lease_of_its_vm_or_with_its_run(store: Store) -> None:
    _filled(store)
    with store.transaction() as session:
        session.claim_quota("reclaim:acme/a,b", "acme", {"a": FRAMEBUFFER, "b": {**FRAMEBUFFER, "cards": 1}})
        session.claim_quota("reclaim:umbrella/c", "umbrella", {"c": FRAMEBUFFER})
        assert session.claimed_quota("acme", without=[]) == {"framebuffer": 16384, "cards": 1}
        assert session.claimed_quota("acme", without=["b"]) == FRAMEBUFFER
        session.claim_quota("reclaim:acme/a,b", "acme", {"a": FRAMEBUFFER, "b": FRAMEBUFFER})
        assert session.claimed_quota("acme", without=[]) == {"framebuffer": 16384}, "the second replaces the first"
        session.reserve("gpu1", 0, [replace(lease(), vm_name="a")])
        assert session.claimed_quota("acme", without=[]) == FRAMEBUFFER
        session.end_own_operations("reclaim:acme/a,b")
        assert session.claimed_quota("acme", without=[]) == {}
        assert session.claimed_quota("umbrella", without=[]) == FRAMEBUFFER


def test_many_runs_at_once_reclaim_no_more_than_the_guarantee(store: Store, url: str) -> None:
    _filled(store)
    with store.transaction() as session:
        session.set_quotas("acme", [Quota("framebuffer", None, 2 * 8192)])
    answers = run_race(racers.reclaim_guarantee, url)
    assert (len(answers), sum(answers)) == (RACERS, 2)
    with store.reading() as session:
        claims = [one for one in session.open_operations() if one.pid != os.getpid()]
        assert len(claims) == 2
        assert session.claimed_quota("acme", without=[]) == {}, "what dead runs claimed counts no more"
