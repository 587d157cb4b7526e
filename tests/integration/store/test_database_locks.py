# SPDX-License-Identifier: Apache-2.0
"""Roles of a real PostgreSQL that may only read hold up nobody, and who is in the way is named."""

import contextlib
import os
import secrets
import threading

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import make_url

from tests import next_version
from tests.integration.store.conftest import OPERATOR, READER, TENANT, Fleet
from tests.postgres_fixture import LocalPostgres
from vgpuctl.errors import StoreUnusable
from vgpuctl.model.database_role import Access, Rights
from vgpuctl.model.event import Actor
from vgpuctl.store import postgresql, table_locks
from vgpuctl.store.metadata import metadata
from vgpuctl.store.store import open_store


@pytest.mark.parametrize("rights", [READER, Rights(Access.TENANT, "acme")])
def test_who_may_not_write_holds_up_nobody(fleet: Fleet, rights: Rights) -> None:
    """With an advisory lock this took fifteen seconds and ended in an error."""
    taken = f"SELECT pg_advisory_lock(1), pg_advisory_lock({0x76677075}); SELECT * FROM settings; SELECT * FROM vms"
    with psycopg.connect(fleet.new_role(rights)) as hostile:
        hostile.execute(taken.encode())
        for statement in (
            "SELECT * FROM settings FOR UPDATE",
            "SELECT * FROM settings FOR KEY SHARE",
            "LOCK TABLE settings IN ROW SHARE MODE",
            "LOCK TABLE vms IN ROW EXCLUSIVE MODE",
            "LOCK TABLE vgpuctl_version IN ROW EXCLUSIVE MODE",
            "UPDATE role_tenants SET tenant = 'umbrella'",
            "DELETE FROM role_tenants",
        ):
            if "ROW SHARE" in statement:
                continue  # SELECT gives this right; it excludes no writer
            with pytest.raises(errors.InsufficientPrivilege), hostile.transaction():
                hostile.execute(statement.encode())
        with open_store(fleet.url) as store, store.transaction() as session:
            session.add_tenant("third")


def test_who_writes_for_long_is_named(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "BEGIN_WRITING", postgresql.BEGIN_WRITING.replace("15s", "200ms"))
    one, other = fleet.new_role(OPERATOR), fleet.new_role(OPERATOR)
    with (
        open_store(one, actor=Actor("create-vm", "ann", "desk")) as slow,
        open_store(other) as store,
        slow.transaction() as session,
    ):
        session.add_tenant("slow")
        with pytest.raises(StoreUnusable, match="was locked for") as caught, store.transaction():
            pass
        assert "CONTEXT" not in caught.value.message and "tuple" not in caught.value.message
        (holder,) = caught.value.context
        assert holder.startswith(f"vgpuctl create-vm {os.getpid()} of the role {make_url(one).username} has written")
        with open_store(fleet.url) as everything, everything.reading():
            assert "from 127.0.0.1" in (postgresql.holder(everything._database) or "")


def test_the_machine_of_who_writes_for_long_comes_from_the_store(fleet: Fleet) -> None:
    operator = fleet.new_role(OPERATOR)
    with (
        open_store(fleet.url, actor=Actor("create-vm", "ann", "desk")) as slow,
        slow.operation("create-vm", "web-1"),
        slow.transaction() as session,
        open_store(operator) as store,
    ):
        session.add_tenant("slow")
        machine = os.uname().nodename
        assert f"create-vm {os.getpid()} of the role {LocalPostgres.user} on {machine} has" in (
            postgresql.holder(store._database) or ""
        )


def test_a_tenants_role_does_not_see_who_works_where(fleet: Fleet) -> None:
    with (
        open_store(fleet.url, actor=Actor("create-vm", "ann", "secret-desk")) as store,
        store.reading(),
        psycopg.connect(fleet.new_role(TENANT)) as tenant,
    ):
        seen = str(tenant.execute("SELECT * FROM pg_stat_activity").fetchall())
    assert f"vgpuctl create-vm {os.getpid()}" in seen and "ann" not in seen and "secret-desk" not in seen


def test_a_tenants_role_cannot_fill_the_connections(fleet: Fleet) -> None:
    url = fleet.new_role(Rights(Access.TENANT, "acme"))
    with contextlib.ExitStack() as stack:
        with pytest.raises(psycopg.OperationalError, match="too many connections for role"):
            for _ in range(50):
                stack.enter_context(psycopg.connect(url))
        with pytest.raises(StoreUnusable, match="too many connections for role") as caught:
            open_store(url)
        assert (caught.value.hint or "").startswith("end other programs of this role")
        with open_store(fleet.url) as store, store.reading() as session:
            assert len(session.vms()) == 2


def test_rights_are_granted_while_others_read(fleet: Fleet) -> None:
    url = fleet.new_role(READER)
    done = threading.Event()

    def read() -> None:
        with open_store(url) as store:
            while not done.is_set():
                with store.reading() as session:
                    assert session.vms() and session.leases() and session.tenants()

    readers = [threading.Thread(target=read) for _ in range(4)]
    for one in readers:
        one.start()
    try:
        fleet.new_role(Rights(Access.TENANT, "acme"))
    finally:
        done.set()
        for one in readers:
            one.join()


@pytest.mark.parametrize("rights", [READER, OPERATOR, Rights(Access.TENANT, "acme")])
@pytest.mark.parametrize("given", [READER, OPERATOR, Rights(Access.TENANT, "umbrella"), Rights(Access.NONE)])
def test_an_open_transaction_holds_up_no_grant(fleet: Fleet, rights: Rights, given: Rights) -> None:
    url = fleet.new_role(rights)
    role = make_url(url).username or ""
    with psycopg.connect(url) as slow:
        for table in metadata.sorted_tables:
            slow.execute(f"SELECT count(*) FROM {table.name}".encode())
        with open_store(fleet.url) as store, store.transaction() as session:
            session.grant_role(role, given)
        with open_store(fleet.url) as store, store.reading() as session:
            assert len(session.vms()) == 2
        if given.access is Access.NONE:
            with pytest.raises(errors.InsufficientPrivilege):
                slow.execute("SELECT count(*) FROM vms")
        else:
            fleet.new_role(given)


@pytest.mark.parametrize("rights", [READER, Rights(Access.TENANT, "acme")])
def test_an_upgrade_ends_sessions_that_only_read(
    fleet: Fleet, rights: Rights, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_locks, "_PATIENCE_S", 0.2)
    url = fleet.new_role(rights)
    with psycopg.connect(url, application_name="a report") as slow:
        slow.execute("SELECT count(*) FROM tenants")
        next_version.become(monkeypatch.setattr)
        with open_store(fleet.url) as store, store.reading() as session:
            assert len(session.vms()) == 2
        with pytest.raises(psycopg.OperationalError):
            slow.execute("SELECT 1")
    assert f"has ended a report of the role {make_url(url).username}" in caplog.text


def test_who_holds_up_an_upgrade_is_named(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_locks, "BUSY_TIMEOUT_S", 0.3)
    operator = fleet.new_role(OPERATOR)
    with psycopg.connect(operator, application_name="a report") as slow:
        slow.execute("SELECT * FROM tenants")
        next_version.become(monkeypatch.setattr)
        with pytest.raises(StoreUnusable, match="were in use for") as caught:
            open_store(fleet.url)
        assert slow.execute("SELECT 1").fetchone() == (1,)
    assert [one.partition(" (pid")[0] for one in caught.value.context] == [
        f"a report of the role {make_url(operator).username}"
    ]


def test_who_may_not_write_holds_up_no_new_store(postgres: LocalPostgres) -> None:
    """An advisory lock needs no right, in an empty database either."""
    name = f"role-{secrets.token_hex(4)}"
    postgres.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'x'")
    try:
        with postgres.create_database() as url:
            theirs = make_url(url).set(username=name, password="x").render_as_string(hide_password=False)
            with psycopg.connect(theirs) as hostile:
                hostile.execute(f"SELECT pg_advisory_lock({0x76677075}), pg_advisory_lock(1)")
                for catalog in ("pg_namespace", "pg_class", "pg_type", "pg_attribute"):
                    hostile.execute(f"LOCK TABLE {catalog} IN ACCESS SHARE MODE".encode())
                with open_store(url) as store, store.transaction() as session:
                    session.add_tenant("acme")
    finally:
        postgres.execute(f'DROP ROLE "{name}"')


def test_a_database_with_too_many_connections_is_told_so(fleet: Fleet, postgres: LocalPostgres) -> None:
    url = fleet.new_role(READER)
    name = make_url(url).database
    postgres.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 0')
    with pytest.raises(StoreUnusable, match="too many connections for database") as caught:
        open_store(url)
    assert (caught.value.hint or "").startswith("end programs that are connected")
