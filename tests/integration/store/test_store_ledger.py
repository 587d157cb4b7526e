# SPDX-License-Identifier: Apache-2.0
"""The ledger keeps what has ended, whoever asks the database to change it."""

from dataclasses import replace

import pytest

from tests.integration.store.conftest import Clock
from tests.integration.store.samples import bare, host_facts, lease, reserve, vf_share, vm
from vgpuctl.store.failures import DatabaseError
from vgpuctl.store.store import Store


@pytest.fixture
def ledger(store: Store, clock: Clock) -> Store:
    """A store whose ledger has a row that has ended, and one that is open."""
    with store.transaction() as session:
        session.save_facts("gpu1", host_facts(), 1.0)
        session.add_tenant("acme")
        for number, name in enumerate(("ended", "open")):
            session.add_vm(vm(name, tenant="acme"))
            share = replace(lease(vf_share(f"0000:41:00.{number + 2}")), tenant="acme", vm_name=name, id=name)
            reserve(session, share)
            session._begin_interval(share, clock())
        session._end_interval("ended", clock() + 10)
    return store


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE usage SET ended_at = begun_at WHERE ended_at IS NOT NULL",
        "UPDATE usage SET ended_at = NULL",
        "UPDATE usage SET ended_at = ended_at + 1000 WHERE ended_at IS NOT NULL",
        "UPDATE usage SET ended_at = begun_at - 1 WHERE ended_at IS NULL",
        "UPDATE usage SET ended_at = 1",
        "UPDATE usage SET tenant = 'umbrella' WHERE ended_at IS NOT NULL",
        "INSERT INTO usage (lease_id, tenant, vm_uuid, vm_name, host, gpu, profile, framebuffer_mib, compute_slices, "
        "card_part, begun_at, ended_at) SELECT lease_id, tenant, vm_uuid, vm_name, host, gpu, profile, "
        "framebuffer_mib, compute_slices, card_part, begun_at, ended_at FROM usage WHERE ended_at IS NOT NULL",
    ],
)
def test_what_has_ended_is_not_changed(ledger: Store, statement: str) -> None:
    with pytest.raises(DatabaseError, match="a row of the ledger begins open"), bare(ledger) as connection:
        connection.run(statement)


def test_an_open_row_ends_once(ledger: Store, clock: Clock) -> None:
    with ledger.transaction() as session:
        session._end_interval("open", clock() - 100)
        session._end_interval("open", clock() + 100)
        session._end_interval("ended", clock() + 100)
        ends = {one.vm_name: one.ended_at for one in session.intervals(0, clock() + 1)}
    assert ends == {"ended": clock() + 10, "open": clock()}
