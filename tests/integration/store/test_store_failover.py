# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server that is lost in the middle of a transaction: what was committed is known, and said."""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from enum import Enum

import pytest
from sqlalchemy import make_url

from tests.postgres_fixture import LocalPostgres, LocalStandby, find_programs
from vgpuctl.errors import StoreOutcomeUnknown, StoreUnusable
from vgpuctl.store import store as store_module
from vgpuctl.store.address import PostgresqlAddress, parse_url
from vgpuctl.store.store import open_store


class Cut(Enum):
    """Where the line is cut, once. AFTER: the server has answered, and the client does not hear it."""

    BEFORE = "before"
    AFTER = "after"


class Line:
    """Forwards bytes between a client and the server, until it sees a COMMIT."""

    def __init__(self, port: int, cut: Cut, *, stays_cut: bool = False) -> None:
        self._server = port
        self._cut = cut
        self._stays_cut = stays_cut
        self.is_armed = False
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            if self.cuts and self._stays_cut:
                client.close()
                continue
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._server)) as server:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for one in ready:
                    data = one.recv(65536)
                    if not data:
                        return
                    is_commit = self.is_armed and one is client and b"COMMIT" in data
                    if is_commit:
                        self.is_armed = False
                        self.cuts += 1
                        if self._cut is Cut.AFTER:
                            server.sendall(data)
                            server.recv(65536)
                        return
                    (server if one is client else client).sendall(data)


@pytest.fixture
def database(postgres: LocalPostgres) -> Iterator[str]:
    with postgres.create_database() as url:
        open_store(url).close()
        yield url


@contextlib.contextmanager
def _line(database: str, cut: Cut, *, stays_cut: bool = False) -> Iterator[tuple[str, Line]]:
    url = make_url(database)
    assert url.port is not None
    line = Line(url.port, cut, stays_cut=stays_cut)
    try:
        yield url.set(port=line.port).render_as_string(hide_password=False), line
    finally:
        line.close()


def _tenants(url: str) -> list[str]:
    with open_store(url) as store, store.reading() as session:
        return [one.name for one in session.tenants()]


def test_a_commit_that_the_server_did_is_taken_for_done(database: str) -> None:
    with _line(database, Cut.AFTER) as (url, line), open_store(url) as store:
        line.is_armed = True
        with store.transaction() as session:
            session.add_tenant("acme")
        assert line.cuts == 1
        with store.transaction() as session:
            session.add_tenant("globex")
    assert _tenants(database) == ["acme", "globex"]


def test_a_commit_that_never_reached_the_server_is_said_to_have_failed(database: str) -> None:
    with _line(database, Cut.BEFORE) as (url, line), open_store(url) as store:
        with store.transaction() as session:
            session.add_tenant("first")
        line.is_armed = True
        with pytest.raises(StoreUnusable, match="was not committed") as lost, store.transaction() as session:
            session.add_tenant("acme")
        assert not isinstance(lost.value, StoreOutcomeUnknown) and "vgpuctl repair" in (lost.value.hint or "")
        assert line.cuts == 1
    assert _tenants(database) == ["first"]


@pytest.mark.parametrize("cut", Cut)
def test_an_outcome_that_nobody_can_tell_is_said_to_be_unknown(
    database: str, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "FAILOVER_S", 1)
    with _line(database, cut, stays_cut=True) as (url, line), open_store(url) as store:
        line.is_armed = True
        with pytest.raises(StoreOutcomeUnknown, match="may be committed or not"), store.transaction() as session:
            session.add_tenant("acme")
    assert _tenants(database) == (["acme"] if cut is Cut.AFTER else [])


def test_a_loss_before_the_commit_has_changed_nothing(database: str, postgres: LocalPostgres) -> None:
    with open_store(database) as store:
        with pytest.raises(StoreUnusable, match="was not committed"), store.transaction() as session:
            session.add_tenant("acme")
            postgres.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'vgpuctl%'"
            )
            session.add_tenant("globex")
        with store.transaction() as session:
            session.add_tenant("later")
    assert _tenants(database) == ["later"]


def test_a_url_names_several_servers_as_libpq_does() -> None:
    text = "postgresql://op:p%40ss@db-1:5432,db-2:5433/fleet?target_session_attrs=read-write"
    address = parse_url(text)
    assert isinstance(address, PostgresqlAddress)
    options = address.parameters
    assert (options["host"], options["port"]) == ("db-1,db-2", "5432,5433")
    assert (options["user"], options["password"], options["dbname"]) == ("op", "p@ss", "fleet")
    assert options["target_session_attrs"] == "read-write"
    assert "p@ss" not in address.shown and "p%40ss" not in address.shown and "db-2" in address.shown


@pytest.fixture
def pair() -> Iterator[tuple[LocalPostgres, LocalStandby]]:
    """A primary whose commits wait for its standby."""
    programs = find_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed: apt-get install postgresql")
    with LocalPostgres(programs) as primary, LocalStandby(programs, primary) as standby:
        yield primary, standby


def test_a_store_follows_the_primary(pair: tuple[LocalPostgres, LocalStandby]) -> None:
    primary, standby = pair
    with contextlib.ExitStack() as closing:
        primary.execute("CREATE DATABASE fleet")
        url = primary.url("fleet").replace(f":{primary.port}/", f":{primary.port},127.0.0.1:{standby.port}/")
        store = closing.enter_context(open_store(f"{url}?target_session_attrs=read-write"))
        with store.transaction() as session:
            session.add_tenant("before")
        with pytest.raises(StoreUnusable, match="was not committed"), store.transaction() as session:
            session.add_tenant("during")
            primary.crash()
            promotion = threading.Timer(1.0, standby.promote)
            closing.callback(promotion.join)  # its call waits for the promotion too
            promotion.start()
            session.add_tenant("during-too")
        with store.transaction() as session:  # waits for the promotion
            session.add_tenant("after")
        with store.reading() as session:
            assert [one.name for one in session.tenants()] == ["after", "before"]
