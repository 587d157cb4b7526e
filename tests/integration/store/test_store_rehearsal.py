# SPDX-License-Identifier: Apache-2.0
"""A rehearsed store: its transactions see each other, a refused one is undone alone, and nothing is committed."""

from pathlib import Path

import pytest

from tests.integration.store.conftest import READER, TENANT, Fleet
from vgpuctl.errors import ConcurrentChange, StoreUnusable, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store.store import Store, open_store


def test_transactions_see_each_other_and_nothing_is_committed(url: str, store: Store) -> None:
    with open_store(url) as rehearsed:
        rehearsed.rehearse()
        with rehearsed.transaction() as session:
            session.add_tenant("acme")
        with rehearsed.reading() as session:
            assert session.tenant("acme").name == "acme"
        with pytest.raises(ZeroDivisionError), rehearsed.transaction() as session:
            session.add_tenant("globex")
            raise ZeroDivisionError
        with rehearsed.operation("rehearse", "acme"), rehearsed.reading() as session:
            assert [one.name for one in session.tenants()] == ["acme"]
            with pytest.raises(VgpuctlError):
                session.add_tenant("initech")
        with store.reading() as session:
            assert session.tenants() == []
    with store.reading() as session:
        assert session.tenants() == [] and session.open_operations() == []


def test_a_refused_statement_ends_its_own_transaction_alone(url: str, store: Store) -> None:
    with open_store(url) as rehearsed:
        rehearsed.rehearse()
        with rehearsed.transaction() as session:
            session.begin_operation("first", "subject", "", exclusive=True)
        with pytest.raises(ConcurrentChange), rehearsed.transaction() as session:
            session.begin_operation("second", "subject", "", exclusive=True)
        with rehearsed.reading() as session:
            assert [one.kind for one in session.open_operations()] == ["first"]


def test_a_part_of_a_rehearsal_is_forgotten_alone(url: str, store: Store) -> None:
    with open_store(url) as rehearsed:
        rehearsed.rehearse()
        with rehearsed.transaction() as session:
            session.add_tenant("acme")
        with pytest.raises(ZeroDivisionError), rehearsed.forgetting():
            with rehearsed.transaction() as session:
                session.add_tenant("globex")
            raise ZeroDivisionError
        with rehearsed.reading() as session:
            assert [one.name for one in session.tenants()] == ["acme"]


def test_a_rehearsal_keeps_nobody_waiting(url: str, store: Store) -> None:
    with open_store(url) as rehearsed:
        rehearsed.rehearse()
        with rehearsed.transaction() as session:
            session.add_tenant("acme")
        with store.transaction() as session:
            session.add_tenant("globex")
        with rehearsed.reading() as session:
            assert [one.name for one in session.tenants()] == ["acme"]
    with store.reading() as session:
        assert [one.name for one in session.tenants()] == ["globex"]


def test_a_rehearsal_on_postgresql_knows_every_row_but_the_past(fleet: Fleet) -> None:
    with open_store(fleet.url) as store, open_store(fleet.url) as rehearsed:
        rehearsed.rehearse()
        found = []
        for one in (store, rehearsed):
            with one.reading() as session:
                leases = session.leases()
                facts = [session.facts(host) for host in sorted({lease.host for lease in leases})]
                found.append((session.vms(), leases, session.tenants(), session.intervals(0, 1e12), facts))
        assert found[0] == found[1]
        assert all(found[0][:3])
        with rehearsed.transaction() as session:
            session.add_event(EventKind.TENANT_CREATED, "acme", tenant="acme")
            assert len(session.events(None)) == 1


def test_who_may_only_read_asks_on_a_copy_and_who_sees_a_part_does_not(fleet: Fleet) -> None:
    for rights, why in ((READER, "may only read"), (TENANT, "sees the rows of one tenant only")):
        with open_store(fleet.new_role(rights)) as rehearsed:
            rehearsed.rehearse()
            with pytest.raises(StoreUnusable, match=why), rehearsed.transaction() as session:
                session.add_tenant("third")
    with open_store(fleet.new_role(READER)) as rehearsed:
        rehearsed.rehearse(of_reader=True)
        with rehearsed.transaction() as session:
            session.add_tenant("third")
            assert "third" in [one.name for one in session.tenants()]
    with open_store(fleet.new_role(TENANT)) as rehearsed:
        rehearsed.rehearse(of_reader=True)
        with pytest.raises(StoreUnusable, match="sees the rows"), rehearsed.transaction() as session:
            session.add_tenant("third")


def test_the_rehearsal_of_a_reader_works_on_a_sqlite_store_that_cannot_be_written(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    open_store(url).close()
    with open_store(f"{url}?mode=ro") as rehearsed:
        rehearsed.rehearse()
        with pytest.raises(StoreUnusable), rehearsed.transaction() as session:
            session.add_tenant("acme")
    with open_store(f"{url}?mode=ro") as rehearsed:
        rehearsed.rehearse(of_reader=True)
        with rehearsed.transaction() as session:
            session.add_tenant("acme")
    with open_store(url) as store, store.reading() as session:
        assert session.tenants() == []
