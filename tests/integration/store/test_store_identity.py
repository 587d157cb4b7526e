# SPDX-License-Identifier: Apache-2.0
"""A process that lives on notices at its next transaction that its store is another one."""

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests import next_version
from tests.integration.store.conftest import Clock
from tests.integration.store.samples import bare
from tests.postgres_fixture import LocalPostgres
from vgpuctl.errors import StoreReplaced, StoreTooNew, StoreUnusable, VgpuctlError
from vgpuctl.model.event import Actor
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store import commits
from vgpuctl.store.backup import write_backup
from vgpuctl.store.restore import StorePlace, restore
from vgpuctl.store.schema import SCHEMA_VERSION, VERSION_TABLE
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
        for one in sql.split("; "):
            connection.run(one)
        connection.commit()


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        ("UPDATE settings SET value = 'x' WHERE name = 'instance'", StoreReplaced, "another one, or was restored"),
        ("DELETE FROM settings WHERE name = 'instance'", StoreReplaced, "another one, or was restored"),
        ("UPDATE vgpuctl_version SET version_num = '0000'", StoreUnusable, "not one of vgpuctl's"),
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


def test_an_older_schema_is_of_another_store(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    next_version.become(monkeypatch.setattr)
    with open_store(url) as store:
        _write(store)
        _statement(store, f"UPDATE vgpuctl_version SET version_num = '{SCHEMA_VERSION}'")
        for use in (_read, _write, Store.require_same):
            with pytest.raises(StoreReplaced, match=f"has the schema version {SCHEMA_VERSION}, and had"):
                use(store)


def test_a_store_that_was_set_back_is_noticed(store: Store) -> None:
    """As by a snapshot of its machine, point-in-time recovery, or a standby that had not heard of the last commits."""
    _write(store)
    _statement(store, "DELETE FROM commits")
    with pytest.raises(StoreReplaced, match="was set back: its newest commit is number 0, and was 1"):
        _read(store)


def test_commits_of_many_threads_are_one_history(store: Store) -> None:
    def work() -> None:
        for _ in range(10):
            _write(store)
            _read(store)

    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(work) for _ in range(4)]:
            one.result()
    with store._database.transaction("SELECT 1") as connection:
        ids = [row.id for row in connection.run("SELECT id FROM commits ORDER BY id").rows]
    assert ids == list(range(1, 41))


def test_a_process_that_slept_through_all_kept_commits_goes_on(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(store)
    monkeypatch.setattr(commits, "_KEPT", 3)
    with open_store(url) as other:
        for _ in range(6):
            _write(other)
    _read(store)
    _write(store)
    with store.reading() as session:
        assert len(session.events(None)) == 8


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


def _copy(file: Path) -> Path:
    copy = file.with_name("copy.db")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    return copy


def _bring(copy: Path, file: Path) -> None:
    """As `.restore` of the sqlite3 program: the file stays the same one."""
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(file)) as target:
        source.backup(target)


def _beat(store: Store) -> None:
    """A change that leaves no event, as a controller makes one all the time."""
    with store.transaction() as session:
        session.beat_controller("one", [])


def _nothing(_store: Store) -> None:
    pass


@pytest.mark.parametrize("events", [0, 1, 3])
@pytest.mark.parametrize("meanwhile", [_beat, _write, _nothing])
@pytest.mark.parametrize("use", [_read, _write, Store.require_same])
def test_a_copy_that_went_on_by_itself_is_another_store(
    use: Callable[[Store], None], meanwhile: Callable[[Store], None], events: int, opened: Store, file: Path
) -> None:
    copy = _copy(file)
    with open_store(f"sqlite:///{copy}") as other:
        _beat(other)
        for _ in range(events):
            _write(other)
    meanwhile(opened)
    _bring(copy, file)
    with pytest.raises(StoreReplaced):
        use(opened)
    opened.close()


@pytest.mark.parametrize("use", [_read, _write])
@pytest.mark.parametrize("copied", [_copy, lambda file: Path(shutil.copy(file, file.with_name("copy.db")))])
def test_a_file_that_is_written_over_under_its_log_is_another_store(
    copied: Callable[[Path], Path], use: Callable[[Store], None], opened: Store, file: Path
) -> None:
    """As by `cp`: SQLite would read pages of both, and its open connections only those of before."""
    copy = copied(file)
    with open_store(f"sqlite:///{copy}") as other:
        _write(other)
        _beat(other)
    _beat(opened)
    assert file.with_name("store.db-wal").stat().st_size
    with copy.open("rb") as source, file.open("r+b") as target:
        shutil.copyfileobj(source, target)
    for _ in range(2):
        with pytest.raises(StoreReplaced, match="was written over in place"):
            use(opened)
    opened.close()


def test_checkpoints_of_others_are_no_other_store(opened: Store, file: Path) -> None:
    """They change the file at any time, also while it is read."""
    done = threading.Event()

    def checkpoint() -> None:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            while not done.is_set():
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    others = threading.Thread(target=checkpoint)
    others.start()
    try:
        with open_store(f"sqlite:///{file}") as other:
            for _ in range(100):
                _write(other)
                _read(opened)
                _beat(opened)
                _read(other)
    finally:
        done.set()
        others.join()
    opened.close()


def test_who_only_reads_knows_a_copy_too(opened: Store, file: Path) -> None:
    with open_store(f"sqlite:///{file}") as reader:
        copy = _copy(file)
        with open_store(f"sqlite:///{copy}") as other:
            for _ in range(3):
                _beat(other)
        _beat(opened)
        _read(reader)
        _bring(copy, file)
        with pytest.raises(StoreReplaced, match="has another history: its commit number 2 is another one"):
            _read(reader)
    opened.close()


def test_an_earlier_state_that_went_on_is_another_store(opened: Store, file: Path) -> None:
    copy = _copy(file)
    _write(opened)
    _bring(copy, file)
    with open_store(f"sqlite:///{file}") as other:  # in the place itself, before this process looks
        _beat(other)
        _beat(other)
    with pytest.raises(StoreReplaced, match="has another history"):
        _read(opened)
    opened.close()


@pytest.mark.parametrize("meanwhile", [_beat, _nothing])
def test_a_copy_of_a_database_that_takes_its_name_is_another_store(
    meanwhile: Callable[[Store], None], postgres: LocalPostgres
) -> None:
    with postgres.create_database() as database, open_store(database) as store:
        _write(store)
        store._database.close()
        name = database.rpartition("/")[2]
        postgres.execute(f'CREATE DATABASE "{name}_copy" TEMPLATE "{name}"')
        with open_store(f"{database}_copy") as other:
            for _ in range(3):
                _write(other)
        meanwhile(store)
        store._database.close()
        postgres.execute(f'ALTER DATABASE "{name}" RENAME TO "{name}_old"')
        postgres.execute(f'ALTER DATABASE "{name}_copy" RENAME TO "{name}"')
        for _ in range(2):
            with pytest.raises(StoreReplaced, match="is another database, or its tables were made anew"):
                _read(store)
        store._database.close()
        postgres.execute(f'DROP DATABASE "{name}_old"')


@pytest.mark.parametrize(
    "change, said",
    [
        (f"INSERT INTO {VERSION_TABLE} VALUES ('0000')", f"2 rows: '{SCHEMA_VERSION}', '0000'"),
        (f"DELETE FROM {VERSION_TABLE}", "no row"),
    ],
)
def test_a_store_without_exactly_one_version_is_refused(url: str, store: Store, change: str, said: str) -> None:
    with bare(store) as connection:
        connection.run(change)
    for tries_to in (lambda: open_store(url), store.require_same):
        with pytest.raises(StoreUnusable, match=said) as caught:
            tries_to()
        assert "restore a backup" in (caught.value.hint or "")
