# SPDX-License-Identifier: Apache-2.0
"""Opening: new, current, older and newer stores, and those that cannot be used, each with an error that helps."""

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

from tests import next_version
from tests.integration.store.samples import bare, fill
from vgpuctl.errors import StoreUnusable, UsageError
from vgpuctl.model.backup import StoreKind
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import LeaseState
from vgpuctl.store import tables, upgrade
from vgpuctl.store.address import default_path
from vgpuctl.store.failures import DatabaseError
from vgpuctl.store.metadata import metadata
from vgpuctl.store.schema import SCHEMA_VERSION, VERSION_TABLE
from vgpuctl.store.store import Store, default_url, open_store

NOBODY = 65534
_AGAINST_THE_RULES = (
    "UPDATE events SET os_user = 'mallory'",
    "DELETE FROM events",
    "UPDATE usage SET ended_at = begun_at - 1",
)
"""On PostgreSQL rights keep the events."""


def assert_only_readable(store: Store) -> None:
    """Every list works, every change is refused with the reason."""
    with store.transaction() as session:
        assert [tenant.name for tenant in session.tenants()] == ["acme"]
        assert len(session.vms()) == len(session.leases()) == len(session.all_facts()) == 1
        with pytest.raises(StoreUnusable, match="cannot be written") as caught:
            session.add_tenant("other")
        assert "make the store writable" in (caught.value.hint or "")
    with store.reading() as session:
        assert [tenant.name for tenant in session.tenants()] == ["acme"]
    with pytest.raises(StoreUnusable), store.operation("create-vm", "acme/web-1"):
        raise AssertionError("an operation began without a journal")


@contextlib.contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Lose root's rights for a while: file modes do not bind root."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that any user can reach and write."""
    folder = tmp_path_factory.mktemp("open")
    modes = [(parent, parent.stat().st_mode) for parent in folder.parents if parent.owner() == folder.owner()]
    for parent, mode in modes:
        if not mode & stat.S_IXOTH:
            parent.chmod(mode | stat.S_IXOTH)
    folder.chmod(0o777)
    yield folder
    for parent, mode in modes:
        if not mode & stat.S_IXOTH:
            parent.chmod(stat.S_IMODE(mode))


def test_a_new_store_has_the_tables_and_the_version(url: str) -> None:
    open_store(url).close()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, tables.complete_metadata()) == []
        assert context.get_current_revision() == SCHEMA_VERSION
        found = inspect(connection)
        for table in metadata.sorted_tables:
            assert {index["name"] for index in found.get_indexes(table.name)} >= {i.name for i in table.indexes}
            key = found.get_pk_constraint(table.name)["name"]
            assert key == table.primary_key.name or (key is None and url.startswith("sqlite"))  # AUTOINCREMENT
    engine.dispose()


def test_newest_migration_is_the_version_of_the_code() -> None:
    assert ScriptDirectory.from_config(upgrade.config()).get_heads() == [SCHEMA_VERSION]


def test_newer_store_is_refused_with_both_versions(url: str, store: Store) -> None:
    strange = [(version, "not one of vgpuctl's") for version in ("ab12cd", "0000", "1", "00001", "²²²²")]
    for version, said in (("0999", f"0999.*up to {SCHEMA_VERSION}"), *strange):
        with bare(store) as connection:
            connection.run(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'")
        with pytest.raises(StoreUnusable, match=said):
            open_store(url)


def test_failed_migration_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr("vgpuctl.store.guards.statements", fail)
        with pytest.raises(RuntimeError):
            open_store(url)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    assert inspect(engine).get_table_names() == []
    engine.dispose()
    with open_store(url) as store:
        fill(store)
    with monkeypatch.context() as patched:
        next_version.become(patched.setattr)
        patched.setattr("alembic.operations.Operations.create_index", fail)
        with pytest.raises(RuntimeError):
            open_store(url)
    with open_store(url) as store, store.reading() as session:
        assert len(session.vms()) == 1


def test_an_upgrade_keeps_the_rows_and_the_rules_of_the_database(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(url) as store:
        fill(store)
        with store.transaction() as session:
            session.set_lease_state(session.leases()[0].id, LeaseState.RUNNING)
        with store.reading() as session:
            before = [(vm.uuid, vm.request) for vm in session.vms()], session.leases(), len(session.events(None))
    next_version.become(monkeypatch.setattr)
    with open_store(url) as store:
        with store.reading() as session:
            assert before == (
                [(vm.uuid, vm.request) for vm in session.vms()], session.leases(), len(session.events(None))
            )  # fmt: skip
        with bare(store) as connection:
            assert connection.value("SELECT vms FROM made_up WHERE tenant = 'acme'") == 1
        for statement in _AGAINST_THE_RULES if store.kind is StoreKind.SQLITE else _AGAINST_THE_RULES[-1:]:
            with pytest.raises(DatabaseError, match=r"only ever added|ended once"), bare(store) as connection:
                connection.run(statement)


def test_opening_a_current_sqlite_store_imports_its_driver_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    open_store(url).close()
    program = (
        "import sys; from vgpuctl.store.store import open_store\n"
        "with open_store(sys.argv[1]) as store, store.reading() as session: session.vms(), session.leases()\n"
        "slow = ('alembic', 'psycopg', 'sqlalchemy')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_default_store_lies_in_the_users_data_folder_for_the_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", f"{tmp_path}/data")
    assert default_url() == f"sqlite:///{tmp_path}/data/vgpuctl/store.db"
    with open_store(default_url()) as store:
        fill(store)
    assert stat.S_IMODE(default_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(default_path().parent.stat().st_mode) == 0o700


def test_sqlite_store_uses_wal_foreign_keys_and_full_sync(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store, bare(store) as connection:
        found = [connection.value(f"PRAGMA {name}") for name in ("journal_mode", "foreign_keys", "synchronous")]
    assert found == ["wal", 1, 2]


def test_odd_paths_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a b?c#d%20e.db", "relative.db", "ü;x=y.db"):
        with open_store(f"sqlite:///{name}") as store:
            fill(store)
        assert (tmp_path / name).is_file()
        with open_store(f"sqlite:///{name}?mode=ro") as store:
            assert_only_readable(store)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "mysql://root:s3cret@localhost/x",
        "postgresql://user:s3cret@localhost",
        "postgresql://user:s3cret@[::1/x",
        "postgresql://user:s3cret@localhost:port/x",
        "sqlite:///~no-such-user-here/store.db",
    ],
)
def test_url_that_is_none_is_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert "s3cret" not in f"{caught.value.message} {caught.value.hint}"
    assert "sqlite:///PATH" in (caught.value.hint or "")


def test_missing_folder_is_told_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="does not exist") as caught:
        open_store(f"sqlite:///{tmp_path}/no/such/store.db")
    assert caught.value.hint == f"mkdir -p {tmp_path}/no/such"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("query", ["", "?mode=ro"])
def test_a_pipe_in_place_of_the_file_is_refused_at_once(tmp_path: Path, query: str) -> None:
    os.mkfifo(tmp_path / "store.db")
    with pytest.raises(StoreUnusable, match="is a pipe, a socket or a device"):
        open_store(f"sqlite:///{tmp_path}/store.db{query}")


def test_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="is a folder"):
        open_store(f"sqlite:///{tmp_path}")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match="does not exist"):
        open_store(f"sqlite:///{tmp_path}/file/store.db")


def test_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("These are notes, long enough to be looked at as a database header.\n" * 20)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match=f"{path}.*not a database") as caught:
        open_store(f"sqlite:///{path}")
    assert "does not exist yet" in (caught.value.hint or "")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        "CREATE TABLE bookmarks (url TEXT)",
        "CREATE VIEW answer AS SELECT 42",
        "PRAGMA application_id = 252006674",
        "PRAGMA user_version = 7",
    ],
)
def test_database_of_another_program_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bookmarks.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(content)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match="not one of vgpuctl"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_damaged_store_is_told(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(f"sqlite:///{path}") as store:
        fill(store)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(StoreUnusable, match="malformed"), open_store(f"sqlite:///{path}") as store:
        fill(store)


def test_file_that_may_not_be_written_is_only_read(open_folder: Path) -> None:
    path = open_folder / "store.db"
    with open_store(f"sqlite:///{path}") as store:
        fill(store)
    path.chmod(0o444)
    with acting_as(NOBODY), open_store(f"sqlite:///{path}") as store:
        assert store.read_only_reason == "its file may not be written"
        assert_only_readable(store)


@pytest.mark.parametrize("writer_is_there", [False, True])
def test_store_in_a_folder_that_may_not_be_written_is_only_read(open_folder: Path, *, writer_is_there: bool) -> None:
    path = open_folder / "store.db"
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(f"sqlite:///{path}"))
        fill(store)
        path.chmod(0o666)
        open_folder.chmod(0o555)
        if writer_is_there and os.geteuid() == 0:
            assert Path(f"{path}-wal").exists()
            for suffix in ("-wal", "-shm"):
                Path(f"{path}{suffix}").chmod(0o644)
        else:
            store.close()
            assert not Path(f"{path}-wal").exists() or os.geteuid() != 0
        with acting_as(NOBODY), open_store(f"sqlite:///{path}") as reader:
            assert "may not be written" in (reader.read_only_reason or "")
            assert_only_readable(reader)
    open_folder.chmod(0o777)


def test_file_that_may_not_be_read_and_folder_that_may_not_be_written_are_told(open_folder: Path) -> None:
    path = open_folder / "store.db"
    open_store(f"sqlite:///{path}").close()
    path.chmod(0)
    with acting_as(NOBODY), pytest.raises(StoreUnusable, match="may not be read"):
        open_store(f"sqlite:///{path}")
    open_folder.chmod(0o555)
    with acting_as(NOBODY), pytest.raises(StoreUnusable, match=r"cannot be made: Permission denied"):
        open_store(f"sqlite:///{open_folder}/new.db")
    open_folder.chmod(0)
    with acting_as(NOBODY), pytest.raises(StoreUnusable, match="cannot be looked at: Permission denied"):
        open_store(f"sqlite:///{path}")
    open_folder.chmod(0o777)
    with pytest.raises(StoreUnusable, match="File name too long"):
        open_store(f"sqlite:///{open_folder}/{'x' * 300}")


def test_empty_or_missing_store_cannot_be_made_read_only(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="there is no store"):
        open_store(f"sqlite:///{tmp_path}/store.db?mode=ro")
    (tmp_path / "store.db").touch()
    with pytest.raises(StoreUnusable, match="empty or of an older vgpuctl"):
        open_store(f"sqlite:///{tmp_path}/store.db?mode=ro")


def test_full_disk_is_told_and_the_store_lives_on(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        fill(store)
        with bare(store) as connection:
            connection.run(f"PRAGMA max_page_count = {connection.value('PRAGMA page_count')}")
        with pytest.raises(StoreUnusable, match="full") as caught, store.transaction() as session:
            session.add_event(EventKind.HOST_ADOPTED, "x", "y" * 100_000)
        assert "free some space" in (caught.value.hint or "")
        with store.transaction() as session:
            assert session.events(1, EventFilter(kinds=("host-*",))) == []
            session.add_tenant("small")


def test_a_store_that_another_run_makes_meanwhile_is_not_taken_for_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run comes between the look for the file and the look for its journal."""
    path, exists = tmp_path / "store.db", Path.exists

    def look(one: Path) -> bool:
        found = exists(one)
        if one == path and not found:
            open_store(f"sqlite:///{path}.other").close()
            Path(f"{path}.other").rename(path)
            Path(f"{path}-journal").touch()
        return found

    monkeypatch.setattr(Path, "exists", look)
    with open_store(f"sqlite:///{path}") as store, store.reading() as session:
        assert session.tenants() == []
    path.unlink()
    monkeypatch.undo()
    Path(f"{path}-journal").touch()
    with pytest.raises(StoreUnusable, match=r"is gone, and store\.db-journal of that store are still there"):
        open_store(f"sqlite:///{path}")
