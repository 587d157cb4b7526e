# SPDX-License-Identifier: Apache-2.0
"""Opening a store in PostgreSQL: a server that is not there or refuses, and databases that cannot be used."""

import socket

import psycopg
import pytest

from tests.integration.store.samples import fill
from tests.postgres_fixture import LocalPostgres
from vgpuctl.errors import StoreUnusable
from vgpuctl.store.store import open_store


def test_postgresql_that_does_not_answer_is_told_without_the_password() -> None:
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        port = nobody_listens.getsockname()[1]
        with pytest.raises(StoreUnusable) as caught:
            open_store(f"postgresql://operator:s3cret@127.0.0.1:{port}/fleet")
    assert f"postgresql://operator:***@127.0.0.1:{port}/fleet" in caught.value.message
    assert "refused" in caught.value.message
    assert "pg_isready" in (caught.value.hint or "")
    assert "s3cret" not in caught.value.message


def test_wrong_password_database_or_user_is_told(postgres: LocalPostgres) -> None:
    for url, said, advice in (
        (postgres.url("postgres", password="s3cret"), "password authentication failed", "PGPASSWORD"),
        (postgres.url("no_such_database"), "does not exist", "createdb no_such_database"),
        (postgres.url("postgres").replace(postgres.user, "stranger"), "password authentication", "check user"),
    ):
        with pytest.raises(StoreUnusable, match=said) as caught:
            open_store(url)
        assert advice in (caught.value.hint or "")
        assert "s3cret" not in caught.value.message
        assert postgres.password not in caught.value.message


def test_postgresql_is_reached_through_its_socket_and_old_names_too(postgres: LocalPostgres) -> None:
    with postgres.create_database() as url:
        name = url.rpartition("/")[2]
        with open_store(postgres.socket_url(name)) as store:
            fill(store)
            assert postgres.password not in store.name
        with open_store(url.replace("postgresql:", "postgres:")) as store, store.reading() as session:
            assert len(session.vms()) == 1
        hidden = f"postgresql://{postgres.user}@127.0.0.1:{postgres.port}/{name}?password={postgres.password}"
        with open_store(hidden) as store:
            assert postgres.password not in store.name


def test_postgresql_user_who_may_only_read_reads(postgres: LocalPostgres) -> None:
    with postgres.create_database() as url:
        with open_store(url) as store:
            fill(store)
        name = url.rpartition("/")[2]
        postgres.execute("CREATE ROLE auditor LOGIN PASSWORD 'look'")
        postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO auditor", database=name)
        auditor = f"postgresql://auditor:look@127.0.0.1:{postgres.port}/{name}"
        with open_store(auditor) as store:
            with store.transaction() as session:
                assert len(session.vms()) == len(session.leases()) == 1
            with pytest.raises(StoreUnusable, match=r"may only read.*grant-store"), store.transaction() as session:
                session.add_tenant("other")
        with postgres.create_database() as empty:
            bare = auditor.replace(name, empty.rpartition("/")[2])
            with pytest.raises(StoreUnusable, match="permission denied"):
                open_store(bare)
        postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with open_store(url) as store:
            with store.reading() as session:
                assert len(session.vms()) == 1
            with pytest.raises(StoreUnusable, match="read-only"), store.transaction() as session:
                session.add_tenant("other")
    postgres.execute("DROP ROLE auditor")


def test_postgresql_that_restarts_between_two_transactions_is_reached_again(postgres: LocalPostgres) -> None:
    with postgres.create_database() as url, open_store(url) as store:
        fill(store)
        end_others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        end_others += " AND pid <> pg_backend_pid()"
        postgres.execute(end_others, database=url.rpartition("/")[2])
        with store.transaction() as session:
            assert len(session.vms()) == 1
        with pytest.raises(StoreUnusable, match="terminat"), store.transaction() as session:
            session.add_tenant("lost")
            postgres.execute(end_others, database=url.rpartition("/")[2])
            session.tenants()
        with store.reading() as session:
            assert [tenant.name for tenant in session.tenants()] == ["acme"]


def test_database_of_another_program_on_postgresql_is_left_alone(postgres: LocalPostgres) -> None:
    with postgres.create_database() as url:
        postgres.execute("CREATE TABLE events (what text)", database=url.rpartition("/")[2])
        with pytest.raises(StoreUnusable, match="already exists") as caught:
            open_store(url)
        assert "a database of its own" in (caught.value.hint or "")
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert found == [("events",)]
