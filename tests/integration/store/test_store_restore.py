# SPDX-License-Identifier: Apache-2.0
"""Restores: into an empty place or over a store that is kept; whole or not at all, and never under anybody's feet."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from tests.postgres_fixture import LocalPostgres
from vgpuctl.errors import ConcurrentChange, StoreNotReconciled, StoreUnusable, UsageError
from vgpuctl.model.backup import BackupManifest, StoreKind
from vgpuctl.model.database_role import Access, Rights
from vgpuctl.model.event import Actor
from vgpuctl.store.backup import write_backup
from vgpuctl.store.restore import StorePlace, restore
from vgpuctl.store.store import open_store

KEEPER = Actor("restore-store", "root", "desk")
RECONCILER = Actor("reconcile-store", "root", "desk")


@pytest.fixture
def place(url: str, key: Path) -> StorePlace:
    """A store with the tenant `kept`, of which there is a backup."""
    return StorePlace(url, time.time, key, KEEPER)


def _backup(place: StorePlace, path: Path) -> BackupManifest:
    with place.open() as store:
        with store.transaction() as session:
            session.add_tenant("kept")
        return write_backup(store, path, with_key=False)


def _add(place: StorePlace, tenant: str) -> None:
    with place.open() as store, store.transaction() as session:
        session.add_tenant(tenant)


def _tenants(place: StorePlace) -> list[str]:
    with place.open() as store, store.reading() as session:
        return [one.name for one in session.tenants()]


def test_a_restored_store_has_what_the_backup_has_and_takes_no_change(place: StorePlace, tmp_path: Path) -> None:
    manifest = _backup(place, tmp_path / "backup")
    _add(place, "later")
    with pytest.raises(UsageError, match="there is a store at"):
        restore(place, tmp_path / "backup", replace=False, keep=None, dry_run=False)
    done = restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old", dry_run=False)
    assert (done.manifest, done.kept) == (manifest, str(tmp_path / "old"))
    assert "is the key of this store" in done.key
    assert _tenants(place) == ["kept"]
    with open_store(place.url) as store:
        with (
            pytest.raises(StoreNotReconciled, match="may not know what is on the hosts"),
            store.transaction() as session,
        ):
            session.add_tenant("globex")
        with pytest.raises(StoreNotReconciled), store.operation("create-vm", "x"):
            pass
        with open_store(place.url) as asks, open_store(place.url) as rehearses:
            asks.rehearse(of_reader=True)  # render-vm, and the plan of a drain
            with asks.transaction() as session:
                session.add_tenant("globex")
            rehearses.rehearse()
            with pytest.raises(StoreNotReconciled), rehearses.transaction() as session:
                session.add_tenant("globex")
        with store.reading() as session:
            assert [one.kind for one in session.events(5)][-1] == "store-restored"
            assert session.store_id() == manifest.store_id
    with replace(place, actor=RECONCILER).open() as store, store.transaction() as session:
        session.lift_restore_mark()
    _add(replace(place, actor=Actor("create-tenant", "root", "desk")), "globex")
    restore(place, tmp_path / "old", replace=True, keep=tmp_path / "older", dry_run=False)
    assert _tenants(place) == ["kept", "later"]


def test_a_dry_run_changes_nothing(place: StorePlace, tmp_path: Path) -> None:
    _backup(place, tmp_path / "backup")
    _add(place, "later")
    restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old", dry_run=True)
    assert _tenants(place) == ["kept", "later"]
    assert not (tmp_path / "old").exists()


def test_a_store_in_use_is_not_replaced(place: StorePlace, tmp_path: Path) -> None:
    _backup(place, tmp_path / "backup")
    with open_store(place.url) as user:
        with user.reading() as session:
            session.tenants()
        with pytest.raises(ConcurrentChange, match="the store is in use") as refused:
            restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old", dry_run=False)
        assert refused.value.hint and "controllers too" in refused.value.hint
        with user.transaction() as session:
            session.add_tenant("later")
    with open_store(place.url) as user, user.operation("create-vm", "acme/web-1", "acme/web-1"):
        with pytest.raises(ConcurrentChange, match="the store is in use") as refused:
            restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old2", dry_run=True)
        assert "create-vm of acme/web-1" in refused.value.context[0]
    assert _tenants(place) == ["kept", "later"]


def test_a_store_of_a_controller_is_not_replaced(place: StorePlace, tmp_path: Path) -> None:
    """Also while it has no connection, as between two tries to reach a server."""
    _backup(place, tmp_path / "backup")
    with place.open() as store, store.transaction() as session:
        session.beat_controller("one", [])
    for dry_run in (True, False):
        with pytest.raises(ConcurrentChange, match="the store is in use") as refused:
            restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old", dry_run=dry_run)
        assert refused.value.context == (f"controller: process {os.getpid()} on {os.uname().nodename}",)
    with place.open() as store, store.transaction() as session:
        session.end_controller("one")
    restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old", dry_run=False)


@pytest.fixture
def owned(postgres: LocalPostgres) -> Iterator[str]:
    """A database whose owner is not a superuser: the server hides other roles' processes from it."""
    name = f"owner_{secrets.token_hex(4)}"
    postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    with postgres.create_database() as url:
        postgres.execute(f'ALTER DATABASE "{make_url(url).database}" OWNER TO {name}')
        yield make_url(url).set(username=name, password="x").render_as_string(hide_password=False)
    postgres.execute(f"DROP ROLE {name}")


def test_the_owner_of_a_database_sees_that_other_roles_use_it(
    owned: str, postgres: LocalPostgres, tmp_path: Path
) -> None:
    place = StorePlace(owned, time.time, None, KEEPER)
    _backup(place, tmp_path / "backup")
    other = postgres.url(make_url(owned).database or "")
    with open_store(other) as user:
        with user.reading() as session:
            session.tenants()
        with pytest.raises(ConcurrentChange, match="the store is in use"):
            restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old", dry_run=False)
    restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "older", dry_run=False)
    assert _tenants(place) == ["kept"]


def test_who_comes_in_the_middle_of_a_restore_waits_or_is_named(owned: str, tmp_path: Path) -> None:
    """They read tables in any order, so a deadlock was possible."""
    place = StorePlace(owned, time.time, None, KEEPER)
    _backup(place, tmp_path / "backup")
    done = threading.Event()

    def come(number: int) -> None:
        while not done.is_set():
            with contextlib.suppress(psycopg.Error), psycopg.connect(owned) as connection:
                for table in ("vms", "tenants", "events", "settings", "leases")[:: 1 if number % 2 else -1]:
                    connection.execute(f"SELECT count(*) FROM {table}".encode())
            done.wait(0.02)

    guests = [threading.Thread(target=come, args=(number,)) for number in range(3)]
    for one in guests:
        one.start()
    try:
        for number in range(3):
            with contextlib.suppress(ConcurrentChange):
                restore(place, tmp_path / "backup", replace=True, keep=tmp_path / f"old-{number}", dry_run=False)
    finally:
        done.set()
        for one in guests:
            one.join()
    assert _tenants(place) == ["kept"]


def test_a_backup_of_another_store_is_not_mixed_in(place: StorePlace, tmp_path: Path, postgres: LocalPostgres) -> None:
    _backup(place, tmp_path / "backup")
    with postgres.create_database() as database:
        other = database if place.url.startswith("postgresql") else f"sqlite:///{tmp_path}/other.db"
        elsewhere = replace(place, url=other)
        _backup(elsewhere, tmp_path / "others")
        with pytest.raises(UsageError, match="the backup is of another store"):
            restore(place, tmp_path / "others", replace=True, keep=tmp_path / "old", dry_run=False)
        wrong = replace(place, url=f"sqlite:///{tmp_path}/new.db" if other == database else database)
        with pytest.raises(UsageError, match=r"the backup is of a .* store, and"):
            restore(wrong, tmp_path / "backup", replace=False, keep=None, dry_run=False)


def test_an_empty_place_takes_a_backup(place: StorePlace, tmp_path: Path, postgres: LocalPostgres) -> None:
    _backup(place, tmp_path / "backup")
    with postgres.create_database() as database:
        empty = replace(place, url=database if place.url.startswith("postgresql") else f"sqlite:///{tmp_path}/empty.db")
        assert restore(empty, tmp_path / "backup", replace=False, keep=None, dry_run=False).kept is None
        assert _tenants(empty) == ["kept"]
    if place.url.startswith("sqlite"):
        assert (tmp_path / "empty.db").stat().st_mode & 0o777 == 0o600


def test_a_server_process_that_is_about_to_end_is_waited_for(tmp_path: Path, postgres: LocalPostgres) -> None:
    """One that was closed is listed until it has ended, for some milliseconds, and on a busy server for longer."""
    with postgres.create_database() as url:
        place = StorePlace(url, time.time, None, KEEPER)
        _backup(place, tmp_path / "backup")
        leaving = psycopg.connect(url.replace("postgresql+psycopg:", "postgresql:"))
        ending = threading.Timer(1, leaving.close)
        ending.start()
        restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old", dry_run=False)
        ending.join()
        assert _tenants(place) == ["kept"]


def test_a_newer_backup_is_refused_in_words(place: StorePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _backup(place, tmp_path / "backup")
    monkeypatch.setattr("vgpuctl.store.restore.SCHEMA_VERSION", "0000")
    with pytest.raises(UsageError, match="this vgpuctl knows up to 0000"):
        restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old", dry_run=False)


def test_a_key_in_the_backup_is_restored_and_a_missing_one_is_named(url: str, key: Path, tmp_path: Path) -> None:
    with open_store(url, key_file=key) as store:
        write_backup(store, tmp_path / "with", with_key=True)
        write_backup(store, tmp_path / "without", with_key=False)
    place = StorePlace(url, time.time, tmp_path / "elsewhere" / "key", KEEPER)
    (tmp_path / "elsewhere").mkdir()
    done = restore(place, tmp_path / "without", replace=True, keep=tmp_path / "old-1", dry_run=False)
    assert "it is not there" in done.key and done.manifest.key_sha256 and done.manifest.key_sha256 in done.key
    done = restore(place, tmp_path / "with", replace=True, keep=tmp_path / "old-2", dry_run=False)
    assert "restored to" in done.key
    assert (tmp_path / "elsewhere" / "key").read_bytes() == key.read_bytes()
    assert (tmp_path / "elsewhere" / "key").stat().st_mode & 0o777 == 0o600


_KILLS = pytest.mark.long(
    "tests/integration/store/test_store_restore.py::test_a_restore_that_is_killed_leaves_the_old_store_or_the_new_one",
    "tests/integration/store/test_store_restore.py::test_who_comes_in_the_middle_of_a_restore_waits_or_is_named",
)
_RESTORE = """
import sys, time
from pathlib import Path
from vgpuctl.model.event import Actor
from vgpuctl.store.restore import StorePlace, restore
url, backup, keep = sys.argv[1:]
place = StorePlace(url, time.time, None, Actor("restore-store", "root", "desk"))
restore(place, Path(backup), replace=True, keep=Path(keep), dry_run=False)
"""


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=_KILLS)], indirect=True)
def test_a_restore_that_is_killed_leaves_the_old_store_or_the_new_one(url: str, tmp_path: Path) -> None:
    place = StorePlace(url, time.time, None, KEEPER)
    _backup(place, tmp_path / "backup")
    for number in range(40):
        _add(place, f"later-{number}")
    old, seen = _tenants(place), set()
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", _RESTORE, url, str(tmp_path / "backup"), str(tmp_path / "first")], check=True)
    takes_s = time.monotonic() - began
    assert _tenants(place) == ["kept"]
    # The first kill comes before the new store is there, whatever the measured time is worth.
    for number, part in enumerate((0, *(0.3 + 0.05 * step for step in range(14)))):
        with replace(place, actor=RECONCILER).open() as store, store.transaction() as session:
            session.lift_restore_mark()
            there = {one.name for one in session.tenants()}
        with open_store(url) as store, store.transaction() as session:
            for name in set(old) - there:
                session.add_tenant(name)
        run = subprocess.Popen(
            [sys.executable, "-c", _RESTORE, url, str(tmp_path / "backup"), str(tmp_path / f"kept-{number}")],
            start_new_session=True,
        )
        time.sleep(takes_s * part)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        _wait_for_the_server(place)
        with open_store(url) as store, store.reading() as session:
            now = [one.name for one in session.tenants()]
            is_new = session.restore_mark() is not None
        assert now == (["kept"] if is_new else old)
        seen.add(is_new)
    assert False in seen


def _wait_for_the_server(place: StorePlace) -> None:
    """PostgreSQL notices that a client is gone when it next reads from it."""
    if place.url.startswith("sqlite"):
        return
    with psycopg.connect(place.url, autocommit=True) as connection:
        while connection.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        ).fetchall():
            time.sleep(0.05)


def test_a_damaged_store_is_named_before_anything_is_replaced(tmp_path: Path) -> None:
    place = StorePlace(f"sqlite:///{tmp_path}/store.db", time.time, None, KEEPER)
    _backup(place, tmp_path / "backup")
    path = tmp_path / "store.db"
    path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    with pytest.raises((StoreUnusable, UsageError)) as refused:
        restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old", dry_run=False)
    assert refused.value.hint
    path.rename(tmp_path / "damaged")
    restore(place, tmp_path / "backup", replace=False, keep=None, dry_run=False)
    assert _tenants(place) == ["kept"]
    with place.open() as store:
        assert store.kind is StoreKind.SQLITE


def test_roles_keep_their_rights_and_a_missing_role_is_named(tmp_path: Path, postgres: LocalPostgres) -> None:
    postgres.execute("CREATE ROLE restored_tenant LOGIN PASSWORD 'x'")
    try:
        with postgres.create_database() as database:
            place = StorePlace(database, time.time, None, KEEPER)
            _backup(place, tmp_path / "plain")
            with place.open() as store, store.transaction() as session:
                session.grant_role("restored_tenant", Rights(Access.TENANT, "kept"))
            with place.open() as store:
                write_backup(store, tmp_path / "backup", with_key=False)
            restore(place, tmp_path / "backup", replace=True, keep=tmp_path / "old", dry_run=False)
            tenant = make_url(database).set(username="restored_tenant", password="x")
            with open_store(tenant.render_as_string(hide_password=False)) as store, store.reading() as session:
                assert [one.name for one in session.tenants()] == ["kept"]
    finally:
        postgres.execute("DROP ROLE restored_tenant")
    with postgres.create_database() as database:
        elsewhere = StorePlace(database, time.time, None, KEEPER)
        with pytest.raises(StoreUnusable, match='role "restored_tenant" does not exist'):
            restore(elsewhere, tmp_path / "backup", replace=False, keep=None, dry_run=False)
        restore(elsewhere, tmp_path / "plain", replace=False, keep=None, dry_run=False)
        assert _tenants(elsewhere) == ["kept"], "what failed left nothing behind"
