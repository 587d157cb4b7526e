# SPDX-License-Identifier: Apache-2.0
"""A process that lives on notices at its next transaction that its store is another one."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.store.conftest import Clock
from tests.postgres_fixture import LocalPostgres
from vgpuctl.errors import StoreReplaced, StoreTooNew, StoreUnusable, VgpuctlError
from vgpuctl.model.event import Actor
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store.backup import write_backup
from vgpuctl.store.restore import StorePlace, restore
from vgpuctl.store.store import Store, open_store


def _write(store: Store) -> None:
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_event(EventKind.TENANT_CREATED, "acme")


def _read(store: Store) -> None:
    with store.reading() as session:
        session.tenants()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store."""
    return tmp_path / "store.db"


@pytest.fixture
def opened(file: Path) -> "Store":
    """A store that a process has used and keeps open."""
    store = open_store(f"sqlite:///{file}", actor=Actor("controller", "root", "desk"))
    _write(store)
    return store


def _moved(file: Path) -> None:
    for one in (file, *file.parent.glob(f"{file.name}-*")):
        one.rename(one.with_name(one.name.replace(file.name, "damaged.db")))


def _moved_and_restored(file: Path) -> None:
    place = StorePlace(f"sqlite:///{file}", time.time, None, Actor("restore-store", "root", "desk"))
    with place.open() as store:
        write_backup(store, file.with_name("backup"), with_key=False)
    _moved(file)
    restore(place, file.with_name("backup"), replace=False, keep=None, dry_run=False)


def _copied_over(file: Path) -> None:
    shutil.copy(file, file.with_name("copy"))
    file.with_name("copy").replace(file)


def _made_anew(file: Path) -> None:
    _moved(file)
    open_store(f"sqlite:///{file}").close()


def _linked_elsewhere(file: Path) -> None:
    _made_anew(file)
    file.rename(file.with_name("other.db"))
    file.symlink_to(file.with_name("other.db"))


@pytest.mark.parametrize("use", [_read, _write, Store.require_same, Store.require_writable])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_moved, "is gone: its file was moved or deleted since this process opened it"),
        (_moved_and_restored, "is another file since this process opened it"),
        (_copied_over, "is another file"),
        (_made_anew, "is another file"),
        (_linked_elsewhere, "is another file"),
    ],
)
def test_another_file_with_the_name_ends_the_process(
    change: Callable[[Path], None], said: str, use: Callable[[Store], None], opened: Store, file: Path
) -> None:
    change(file)
    for _ in range(2):
        with pytest.raises(StoreReplaced, match=said):
            use(opened)
    assert not (change is _moved and file.exists()), "no empty file was made in its place"
    opened.close()


def test_a_file_that_cannot_be_looked_at_is_not_called_gone(opened: Store, file: Path) -> None:
    _moved(file)
    file.symlink_to(file)
    with pytest.raises(StoreUnusable, match="cannot be looked at: Too many levels of symbolic links") as caught:
        _read(opened)
    assert not isinstance(caught.value, StoreReplaced)
    opened.close()


def test_a_transaction_is_not_committed_to_a_file_that_was_moved_meanwhile(opened: Store, file: Path) -> None:
    with pytest.raises(StoreReplaced), opened.transaction() as session:
        session.add_tenant("umbrella")
        _moved(file)
    for one in file.parent.glob("damaged.db*"):
        one.rename(one.with_name(one.name.replace("damaged.db", file.name)))
    with opened.reading() as session:
        assert [one.name for one in session.tenants()] == ["acme"]
    opened.close()


def test_a_rehearsal_does_not_begin_on_another_store(opened: Store, file: Path) -> None:
    _made_anew(file)
    with pytest.raises(StoreReplaced):
        opened.rehearse()
    opened.close()


def test_a_store_that_is_only_read_is_recognised_too(opened: Store, file: Path) -> None:
    opened.close()
    with open_store(f"sqlite:///{file}?mode=ro") as reader:
        _read(reader)
        _made_anew(file)
        with pytest.raises(StoreReplaced, match="is another file"):
            _read(reader)


def _statement(store: Store, sql: str) -> None:
    with store._database.transaction("BEGIN" if store.kind == "sqlite" else "SELECT 1") as connection:
        connection.run(sql)
        connection.commit()


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        ("UPDATE settings SET value = 'x' WHERE name = 'instance'", StoreReplaced, "another one, or was restored"),
        ("DELETE FROM settings WHERE name = 'instance'", StoreReplaced, "another one, or was restored"),
        ("UPDATE vgpuctl_version SET version_num = '0026'", StoreReplaced, "has the schema version 0026, and had 0027"),
        ("UPDATE vgpuctl_version SET version_num = '9999'", StoreTooNew, "9999"),
    ],
)
def test_what_the_store_says_of_itself_is_compared(
    sql: str, error: type[VgpuctlError], said: str, store: Store
) -> None:
    _write(store)
    _statement(store, sql)
    for use in (_read, _write, Store.require_same):
        with pytest.raises(error, match=said):
            use(store)


def test_a_store_that_was_set_back_is_noticed(store: Store) -> None:
    """As by a snapshot of its machine, point-in-time recovery, or a standby that had not heard of the last commits."""
    _write(store)
    _read(store)
    triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'events'"
    if store.kind == "sqlite":
        with store._database.transaction("BEGIN") as connection:
            for row in connection.run(triggers).rows:
                connection.run(f"DROP TRIGGER {row.name}")
            connection.commit()
        _statement(store, "DELETE FROM events")
    else:
        _statement(store, "ALTER TABLE events DISABLE TRIGGER USER; DELETE FROM events")
    with pytest.raises(StoreReplaced, match="was set back: its newest event is None, and was 1"):
        _write(store)


def test_events_that_are_pruned_are_no_step_back(store: Store, clock: Clock) -> None:
    _write(store)
    clock.now += 10
    with store.transaction() as session:
        assert session.prune_events(clock.now).count == 1
    with store.reading() as session:
        assert [one.kind for one in session.events(5)] == [EventKind.EVENTS_PRUNED]


def test_a_dropped_database_of_the_same_name_is_another_store(postgres: LocalPostgres) -> None:
    with postgres.create_database() as database, open_store(database) as store:
        _write(store)
        name = database.rpartition("/")[2]
        store._database.close()
        postgres.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        postgres.execute(f'CREATE DATABASE "{name}"')
        open_store(database).close()
        with pytest.raises(StoreReplaced, match="is another one, or was restored"):
            _read(store)
