# SPDX-License-Identifier: Apache-2.0
"""Roles of a real PostgreSQL: what an operator, a reader and a tenant can do on the store, and what they cannot."""

import secrets

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import make_url

from tests import next_version
from tests.integration.store.conftest import OPERATOR, READER, TENANT, Fleet
from tests.integration.store.samples import bare, vm
from tests.postgres_fixture import LocalPostgres
from vgpuctl.errors import NotFound, StoreUnusable, UsageError
from vgpuctl.model.database_role import Access, Rights, parse_rights
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store.failures import DatabaseError
from vgpuctl.store.metadata import metadata
from vgpuctl.store.store import open_store


def _refused(url: str, statement: str) -> bool:
    with psycopg.connect(url) as connection:
        try:
            connection.execute(statement.encode())
        except errors.InsufficientPrivilege:
            return True
    return False


def test_an_operator_changes_the_store_and_the_database_says_who(fleet: Fleet) -> None:
    url = fleet.new_role(OPERATOR)
    with open_store(url) as store:
        assert store.read_only_reason is None
        with store.operation("create-vm", "x"), store.transaction() as session:
            session.add_tenant("third")
            session.add_event(EventKind.TENANT_CREATED, "third", tenant="third")
            assert session.vm("acme", "web") is not None
        with store.reading() as session:
            (event,) = session.events(1)
    assert event.database_role == make_url(url).username


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET os_user = 'mallory'",
        "DELETE FROM events",
        "TRUNCATE events",
        "DROP TABLE events",
        "ALTER TABLE events ALTER COLUMN database_role DROP DEFAULT",
        "INSERT INTO events (at, kind, subject, detail, database_role) VALUES (1, 'x', 'x', 'x', 'mallory')",
        "INSERT INTO events (id, at, kind, subject, detail) VALUES (1000, 1, 'x', 'x', 'x')",
        "UPDATE vgpuctl_version SET version_num = '0000'",
        "CREATE TABLE mine (x int)",
        "TRUNCATE vms",
        "ALTER TABLE vms DISABLE ROW LEVEL SECURITY",
    ],
)
def test_an_operator_can_not_touch_what_is_written_or_the_schema(fleet: Fleet, statement: str) -> None:
    assert _refused(fleet.new_role(OPERATOR), statement)


def test_the_login_is_written_also_after_set_role(fleet: Fleet, postgres: LocalPostgres) -> None:
    url, other = fleet.new_role(OPERATOR), fleet.new_role(OPERATOR)
    name, group = make_url(url).username, make_url(other).username
    postgres.execute(f'GRANT "{group}" TO "{name}"')
    with psycopg.connect(url) as connection:
        connection.execute(f'SET ROLE "{group}"'.encode())
        connection.execute("INSERT INTO events (at, kind, subject, detail) VALUES (1, 'x', 'x', 'x')")
        last = "SELECT database_role FROM events ORDER BY id DESC LIMIT 1"
        assert connection.execute(last).fetchone() == (name,)


def test_a_reader_reads_everything_and_a_change_says_why_not(fleet: Fleet) -> None:
    url = fleet.new_role(READER)
    with open_store(url) as store:
        with store.transaction() as session:
            assert {one.name for one in session.tenants()} == {"acme", "umbrella"}
            assert len(session.vms()) == 2
        with pytest.raises(StoreUnusable, match="may only read"), store.transaction() as session:
            session.add_tenant("third")
    assert _refused(url, "DELETE FROM vms")


def test_a_tenant_sees_its_rows_of_every_table_and_no_other(fleet: Fleet) -> None:
    url = fleet.new_role(Rights(Access.TENANT, "acme"))
    with open_store(url) as store, store.reading() as session:
        assert store.read_only_reason is not None
        assert "one tenant" in store.read_only_reason
        assert [one.name for one in session.tenants()] == ["acme"]
        assert [one.request.tenant for one in session.vms()] == ["acme"]
        assert [one.tenant for one in session.leases()] == ["acme"]
        assert {one.tenant for one in session.events(None)} == {"acme"}
        assert session.queue() == []
        assert session.all_facts() == {}
    with psycopg.connect(url) as mine, psycopg.connect(fleet.url) as everything:
        for table in metadata.sorted_tables:
            query = f"SELECT * FROM {table.name}".encode()
            mine_rows, every_row = mine.execute(query).fetchall(), everything.execute(query).fetchall()
            assert not [row for row in mine_rows if "umbrella" in row], table.name
            assert len(mine_rows) <= len(every_row)
    assert _refused(url, "INSERT INTO events (at, kind, subject, detail) VALUES (1, 'x', 'x', 'x')")


def test_policies_of_a_tenant_hide_nothing_from_others(fleet: Fleet) -> None:
    operator, reader = fleet.new_role(OPERATOR), fleet.new_role(READER)
    fleet.new_role(Rights(Access.TENANT, "acme"))
    for url in (operator, reader, fleet.url):
        with open_store(url) as store, store.reading() as session:
            assert len(session.vms()) == 2
    with open_store(operator) as store, store.transaction() as session:
        session.add_tenant("third")


def test_an_operator_who_is_also_a_tenants_role_stays_an_operator(fleet: Fleet, postgres: LocalPostgres) -> None:
    url, tenant = fleet.new_role(OPERATOR), fleet.new_role(Rights(Access.TENANT, "acme"))
    postgres.execute(f'GRANT "{make_url(tenant).username}" TO "{make_url(url).username}"')
    with open_store(url) as store, store.transaction() as session:
        assert store.read_only_reason is None
        assert len(session.vms()) == 2


def test_a_member_of_a_tenants_role_sees_the_rows_of_that_tenant(fleet: Fleet, postgres: LocalPostgres) -> None:
    group, url = fleet.new_role(Rights(Access.TENANT, "acme")), fleet.new_role(Rights(Access.NONE))
    postgres.execute(f'GRANT "{make_url(group).username}" TO "{make_url(url).username}"')
    with open_store(url) as store, store.reading() as session:
        assert "one tenant" in (store.read_only_reason or "")
        assert [one.request.tenant for one in session.vms()] == ["acme"]


def test_a_table_of_a_tenants_own_opens_no_row(fleet: Fleet) -> None:
    """Its names come first in PostgreSQL's search path; the policies mean the store's tables by number."""
    url = fleet.new_role(Rights(Access.TENANT, "acme"))
    name = make_url(url).username
    with psycopg.connect(fleet.url) as owner:
        owner.execute(f'GRANT TEMPORARY ON DATABASE "{make_url(url).database}" TO "{name}"'.encode())
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TEMP TABLE role_tenants (role text, tenant text, since float8)")
        connection.execute(f"INSERT INTO pg_temp.role_tenants VALUES ('{name}', 'umbrella', 0)".encode())
        connection.execute("CREATE TEMP TABLE networks (id text, tenant text)")
        assert connection.execute("SELECT name FROM tenants").fetchall() == [("acme",)]
        assert connection.execute("SELECT tenant FROM vms").fetchall() == [("acme",)]
        assert connection.execute("SELECT count(*) FROM commits").fetchone() == (0,)


def test_rights_are_replaced_and_granted_twice_is_no_change(fleet: Fleet) -> None:
    url = fleet.new_role(Rights(Access.TENANT, "acme"))
    role = make_url(url).username or ""
    with open_store(fleet.url) as store:
        with store.transaction() as session:
            assert not session.grant_role(role, Rights(Access.TENANT, "acme"))[1]
            assert session.grant_role(role, OPERATOR)[1]
            assert not session.grant_role(role, OPERATOR)[1]
        with open_store(url) as opened, opened.reading() as session:
            assert len(session.vms()) == 2
        with store.transaction() as session:
            assert session.grant_role(role, Rights(Access.NONE))[1]
            (event,) = session.events(1)
    assert (event.kind, event.before, event.after) == ("role-granted", {"as": "operator"}, {"as": "none"})
    with pytest.raises(StoreUnusable, match="permission denied"):
        open_store(url)


def test_tables_of_a_later_version_are_an_operators_too(fleet: Fleet) -> None:
    operator, reader = fleet.new_role(OPERATOR), fleet.new_role(READER)
    tenant = fleet.new_role(Rights(Access.TENANT, "acme"))
    with psycopg.connect(fleet.url) as connection:
        connection.execute("CREATE TABLE later (id bigserial PRIMARY KEY, tenant text)")
    assert not _refused(operator, "INSERT INTO later (tenant) VALUES ('umbrella')")
    assert not _refused(reader, "SELECT * FROM later")
    assert _refused(tenant, "SELECT * FROM later"), "a new table is closed to tenants until an upgrade gives it a rule"


def test_only_the_owner_grants_and_only_to_roles_that_rights_restrict(fleet: Fleet) -> None:
    operator = fleet.new_role(OPERATOR)
    with (
        open_store(operator) as store,
        pytest.raises(StoreUnusable, match="only the owner"),
        store.transaction() as one,
    ):
        one.grant_role(make_url(operator).username or "", OPERATOR)
    with open_store(fleet.url) as store:
        with pytest.raises(NotFound, match="no role"), store.transaction() as session:
            session.grant_role("nobody", OPERATOR)
        with pytest.raises(UsageError, match="no right restricts"), store.transaction() as session:
            session.grant_role(LocalPostgres.user, OPERATOR)


def test_only_the_owner_prunes_events(fleet: Fleet) -> None:
    operator = open_store(fleet.new_role(OPERATOR))
    with operator, pytest.raises(StoreUnusable, match="only the owner"), operator.transaction() as session:
        session.prune_events(2e9)
    with open_store(fleet.url) as store, store.transaction() as session:
        assert session.prune_events(2e9).count > 0


def test_an_older_store_is_brought_up_to_date_by_its_owner_only(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = fleet.new_role(OPERATOR)
    next_version.become(monkeypatch.setattr)
    with pytest.raises(StoreUnusable, match="does not own it") as caught:
        open_store(operator)
    assert LocalPostgres.user in (caught.value.hint or "")


def test_sqlite_has_no_roles_and_keeps_events_as_they_are(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        with pytest.raises(UsageError, match="no roles"), store.transaction() as session:
            session.grant_role("ann", OPERATOR)
        with store.transaction() as session:
            session.add_event(EventKind.TENANT_CREATED, "acme")
        for statement in ("UPDATE events SET os_user = 'mallory'", "DELETE FROM events"):
            with pytest.raises(DatabaseError, match="only ever added"), bare(store) as connection:
                connection.run(statement)


@pytest.mark.parametrize("text", ["", "tenant", "tenant:", "owner", "operator:acme", "tenant:-x"])
def test_rights_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_rights(text)


def test_rights_are_read_as_they_are_written() -> None:
    for text in ("operator", "read-only", "none", "tenant:acme"):
        assert str(parse_rights(text)) == text


def test_a_tenants_role_makes_no_temporary_table(fleet: Fleet) -> None:
    assert _refused(fleet.new_role(TENANT), "CREATE TEMP TABLE mine (x int)")


def test_the_rights_of_a_tenants_role_end_with_the_tenant(fleet: Fleet) -> None:
    url = fleet.new_role(Rights(Access.TENANT, "acme"))
    role = make_url(url).username or ""

    def seen() -> tuple[int, int, int]:
        with open_store(url) as store, store.reading() as session:
            return len(session.tenants()), len(session.vms()), len(session.events(None))

    assert seen() == (1, 1, 2)  # its VM, and what was granted
    with open_store(fleet.new_role(OPERATOR)) as store:
        with store.transaction() as session:
            assert session.roles_of("acme") == [role]
            session.end_roles_of("acme")
            session.add_event(EventKind.TENANT_OFFBOARDED, "acme", tenant="acme")
        assert seen() == (0, 0, 0)
        with store.transaction() as session:  # the next tenant of the name
            session.add_vm(vm("next", tenant="acme"))
        assert seen() == (0, 0, 0)
    with open_store(fleet.url) as store, store.transaction() as session:
        assert session.grant_role(role, Rights(Access.TENANT, "acme"))[1]
        session.add_event(EventKind.TENANT_CREATED, "acme", tenant="acme")
    tenants, vms, events_ = seen()
    assert (tenants, vms) == (1, 2) and events_ == 2, "the events of the tenant before are not shown"


def test_a_tenants_role_is_a_member_of_no_other(fleet: Fleet, postgres: LocalPostgres) -> None:
    tenant, reader = fleet.new_role(Rights(Access.NONE)), fleet.new_role(READER)
    name = make_url(tenant).username or ""
    postgres.execute(f'GRANT "{make_url(reader).username}" TO "{name}"')
    with (
        open_store(fleet.url) as store,
        pytest.raises(UsageError, match="is a member of") as caught,
        store.transaction() as session,
    ):
        session.grant_role(name, Rights(Access.TENANT, "acme"))
    assert (caught.value.hint or "").startswith('REVOKE "')


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM usage",
        "DELETE FROM traffic",
        "UPDATE traffic SET tenant = 'umbrella'",
        "UPDATE usage SET tenant = 'umbrella'",
        "UPDATE usage SET begun_at = 2000000000",
        "TRUNCATE usage",
        "INSERT INTO role_tenants SELECT",
        "ALTER TABLE usage DISABLE TRIGGER ALL",
        "SET session_replication_role = replica",
        "CREATE RULE mine AS ON UPDATE TO usage DO INSTEAD NOTHING",
    ],
)
def test_an_operator_takes_nothing_from_the_ledger(fleet: Fleet, statement: str) -> None:
    assert _refused(fleet.new_role(OPERATOR), statement)


@pytest.mark.parametrize(
    ("power", "said", "refused"),
    [
        ("CREATEROLE", "may create roles and grant them", {OPERATOR, READER, TENANT}),
        ("REPLICATION", "may copy the whole server", {OPERATOR, READER, TENANT}),
        ("BYPASSRLS", "bypasses row security", {OPERATOR, READER, TENANT}),
        ("SUPERUSER", "is a superuser", {OPERATOR, READER, TENANT}),
        ("CREATEDB", "may create databases", {TENANT}),
        ("IN ROLE pg_read_all_data", "is a member of pg_read_all_data", {TENANT}),
        ("IN ROLE pg_write_all_data", "is a member of pg_write_all_data", {OPERATOR, READER, TENANT}),
        ("IN ROLE pg_monitor", "is a member of pg_monitor", {TENANT}),
        ("IN ROLE pg_signal_backend", "is a member of pg_signal_backend", {OPERATOR, READER, TENANT}),
        ("IN ROLE pg_read_server_files", "is a member of pg_read_server_files", {OPERATOR, READER, TENANT}),
        ("IN ROLE pg_execute_server_program", "is a member of pg_execute", {OPERATOR, READER, TENANT}),
        ("IN ROLE power_group", "is a member of power_group, which may create roles", {OPERATOR, READER, TENANT}),
        ("NOINHERIT IN ROLE power_group", "is a member of power_group", {OPERATOR, READER, TENANT}),
        ("CONNECTION LIMIT 3", "", set()),
    ],
)
def test_a_role_that_may_do_more_than_its_rights_say_is_refused(
    fleet: Fleet, postgres: LocalPostgres, power: str, said: str, refused: set[Rights]
) -> None:
    name = f"role-{secrets.token_hex(4)}"
    postgres.execute("CREATE ROLE power_group CREATEROLE")
    postgres.execute(f'CREATE ROLE "{name}" LOGIN {power}')
    try:
        with open_store(fleet.url) as store:
            for rights in (OPERATOR, READER, TENANT):
                if rights in refused:
                    with pytest.raises(UsageError, match=said) as caught, store.transaction() as session:
                        session.grant_role(name, rights)
                    assert "no right restricts it" in caught.value.message and caught.value.hint
                else:
                    with store.transaction() as session:
                        session.grant_role(name, rights)
            with store.transaction() as session:
                session.grant_role(name, Rights(Access.NONE))
    finally:
        postgres.execute(f'DROP ROLE "{name}"')
        postgres.execute("DROP ROLE power_group")
