# SPDX-License-Identifier: Apache-2.0
"""Restoring a backup: into an empty place, or in place of a store that is kept; whole or not at all.

SQLite copies the backup into the file within one transaction of its own, under a lock that nobody else with an open
store allows. PostgreSQL drops the old tables and makes the new ones within one transaction.
"""

import hashlib
import re
import sqlite3
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import ConcurrentChange, StoreUnusable, UsageError
from vgpuctl.local_files import folder_beside, private_places, write_file, write_new
from vgpuctl.model.backup import BackupManifest, KeyCopy, RestoreMark, StoreKind
from vgpuctl.model.event import Actor
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.times import format_time
from vgpuctl.store import postgresql, postgresql_programs, sqlite
from vgpuctl.store.address import PostgresqlAddress, SqliteAddress, parse_url
from vgpuctl.store.backup import Unpacked, read_backup, write_backup
from vgpuctl.store.care import RESTORE_MARK, encode_mark
from vgpuctl.store.database import Database
from vgpuctl.store.failures import DatabaseError, translate
from vgpuctl.store.identity import INSTANCE
from vgpuctl.store.liveness import is_running
from vgpuctl.store.schema import SCHEMA_VERSION, VERSION_TABLE
from vgpuctl.store.sealed import KeyFile
from vgpuctl.store.store import Store, open_store

_IN_USE = "the store is in use"
_IS_OTHER = (
    "datname = current_database() AND pid <> pg_backend_pid() "
    "AND (backend_type = 'client backend' OR backend_type IS NULL AND usesysid IS NOT NULL)"
)
"""PostgreSQL shows the kind of another role's process to few, and a user that works by itself has none."""
_LEAVING_S, _POLL_S = 3.0, 0.1
"""How long a server process may take to end after its connection, and how often we look."""
_CLOSE_OTHERS = "end every vgpuctl that uses the store, controllers too, then run the command again"


@dataclass(frozen=True)
class StorePlace:
    """Where a store is, or will be, and who works on it."""

    url: str
    clock: Callable[[], float]
    key_file: Path | None
    actor: Actor

    def open(self) -> Store:
        """Open the store, made when there is none."""
        return open_store(self.url, clock=self.clock, key_file=self.key_file, actor=self.actor)


@dataclass(frozen=True)
class Restored:
    """A restored store. kept: the backup of the store that was there before. key: what to do about the key file."""

    store: str
    manifest: BackupManifest
    kept: str | None
    key: str


def restore(place: StorePlace, path: Path, *, replace: bool, keep: Path | None, dry_run: bool) -> Restored:
    """Restore a backup and mark the store: until it is reconciled with the hosts, it takes no other change.

    replace: a store may be there; it is kept as a backup in the file `keep`. dry_run: check everything, write nothing.
    Raises UsageError for a backup that does not fit the place, ConcurrentChange while a process uses the store,
    StoreUnusable, FileNotWritten.
    """
    address = parse_url(place.url)
    with read_backup(path, private_places()[0] / "restore") as unpacked:
        manifest = unpacked.manifest
        _refuse_unfit(address, manifest)
        key_file = place.key_file or (Path(f"{address.path}.key") if isinstance(address, SqliteAddress) else None)
        key = _key_remark(manifest, key_file, unpacked.key)
        kept = None
        if _has_store(address):
            if not replace:
                raise UsageError(
                    f"there is a store at {address.shown}",
                    hint="--replace keeps it as a backup and restores this one in its place",
                )
            kept = _keep(place, manifest, keep, dry_run=dry_run)
        if not dry_run:
            if unpacked.key is not None and key_file is not None:
                write_new(key_file, unpacked.key, "the key file of the store")
            mark = RestoreMark(manifest.taken_at, place.clock(), str(path.absolute()))
            if isinstance(address, SqliteAddress):
                _into_file(address, unpacked, mark)
            else:
                _into_database(address, unpacked, mark)
            _say_so(place, manifest, mark)
    return Restored(address.shown, manifest, None if kept is None else str(kept), key)


def _refuse_unfit(address: SqliteAddress | PostgresqlAddress, manifest: BackupManifest) -> None:
    kind = StoreKind.SQLITE if isinstance(address, SqliteAddress) else StoreKind.POSTGRESQL
    if kind is not manifest.kind:
        raise UsageError(
            f"the backup is of a {manifest.kind} store, and {address.shown} is {kind}",
            hint=f"give the URL of a {manifest.kind} store with --database",
        )
    if int(manifest.schema) > int(SCHEMA_VERSION):
        raise UsageError(
            f"the backup has schema version {manifest.schema}, this vgpuctl knows up to {SCHEMA_VERSION}",
            hint="a newer vgpuctl wrote it: use that one to restore it",
        )


def _key_remark(manifest: BackupManifest, key_file: Path | None, included: bytes | None) -> str:
    """The fate of the key file. Raises UsageError when another one is in the place of the included one."""
    if manifest.key is KeyCopy.NONE:
        return "the store had no key file"
    there = KeyFile(key_file, makes_key=False).content() if key_file is not None and key_file.exists() else None
    if there is not None and hashlib.sha256(there).hexdigest() == manifest.key_sha256:
        return f"{key_file} is the key of this store"
    if included is not None and key_file is not None:
        if there is not None:
            raise UsageError(f"{key_file} is another key than the backup's", hint="move it away")
        return f"restored to {key_file}"
    return f"put the key with SHA-256 {manifest.key_sha256} at {key_file or 'VGPUCTL_KEY_FILE'}: it is not there"


def _has_store(address: SqliteAddress | PostgresqlAddress) -> bool:
    """True if a store of vgpuctl is there; False for an empty place. Raises UsageError when others' tables are."""
    if isinstance(address, SqliteAddress):
        if not address.path.exists() or not address.path.stat().st_size:
            return False
        _require_writable(address)
        database, begin = sqlite.database(address, read_only=False), sqlite.BEGIN_READING
    else:
        database, begin = postgresql.database(address), postgresql.BEGIN_READING
    try:
        with database.transaction(begin) as connection:
            names, is_of_others = connection.table_names(), connection.is_of_others(VERSION_TABLE)
    except DatabaseError as exc:
        raise translate(exc, store_name=address.shown) from exc
    finally:
        database.close()
    if is_of_others:
        raise UsageError(f"{address.shown} holds tables of another program", hint="name an empty place")
    return bool(names)


def _keep(place: StorePlace, manifest: BackupManifest, keep: Path | None, *, dry_run: bool) -> Path:
    """Back the store up that is there. Raises ConcurrentChange while a command is at work, UsageError."""
    if keep is None:
        raise UsageError("name the file for a backup of the store that is there", hint="--keep FILE")
    with place.open() as store:
        with store.reading() as session:
            there, operations, controllers = session.store_id(), session.open_operations(), session.controllers()
        if there is not None and there != manifest.store_id:
            raise UsageError(
                f"the backup is of another store: of {manifest.store_id}, and {store.name} is {there}",
                hint="restore it to a place of its own",
            )
        alive = [
            *(
                f"{one.kind} of {one.detail}: process {one.pid} on {one.hostname}"
                for one in operations
                if is_running(one) is not False
            ),
            *(f"controller: process {one.pid} on {one.hostname}" for one in controllers if is_running(one)),
        ]
        if alive:
            raise ConcurrentChange(
                _IN_USE,
                context=alive,
                hint=_CLOSE_OTHERS,
            )
        if not dry_run:
            write_backup(store, keep.absolute(), with_key=False)
    return keep.absolute()


def _require_writable(address: SqliteAddress) -> None:
    """Make the file where there is none. Raises StoreUnusable where it cannot be written."""
    reason = sqlite.prepare(address)
    if reason is not None:
        raise StoreUnusable(f"the store {address.path} cannot be written: {reason}")


def _into_file(address: SqliteAddress, unpacked: Unpacked, mark: RestoreMark) -> None:
    _require_writable(address)
    try:
        source = sqlite3.connect(unpacked.content, isolation_level=None)
        try:
            source.execute("DELETE FROM settings WHERE name = ?", (RESTORE_MARK,))
            source.execute("INSERT INTO settings (name, value) VALUES (?, ?)", (RESTORE_MARK, encode_mark(mark)))
            source.execute("DELETE FROM settings WHERE name = ?", (INSTANCE,))
            source.execute("INSERT INTO settings (name, value) VALUES (?, ?)", (INSTANCE, str(uuid.uuid4())))
            sqlite.replace_content(address.path, source)
        finally:
            source.close()
    except sqlite3.Error as exc:
        if exc.sqlite_errorname == "SQLITE_BUSY":
            raise ConcurrentChange(f"{_IN_USE}: another process has {address.path} open", hint=_CLOSE_OTHERS) from exc
        raise StoreUnusable(f"the store {address.path} cannot be restored: {exc}") from exc
    sqlite.ensure_wal(address)


def _into_database(address: PostgresqlAddress, unpacked: Unpacked, mark: RestoreMark) -> None:
    found = re.search(r" TABLE DATA (\S+) settings ", postgresql_programs.contents(unpacked.content))
    database = postgresql.database(address)
    try:
        postgresql_programs.require("psql", address)
        schema = _own_schema(database, address)
        if found is None or found[1] != schema:
            raise UsageError(
                f"the backup's tables are in the schema {found[1] if found else '?'}, and {address.shown} uses {schema}"
            )
        database.close()
        with folder_beside(unpacked.content, "the script of the restore") as folder:
            first, dump, last = (folder / f"{name}.sql" for name in ("first", "dump", "last"))
            write_file(first, _first_script(schema), "the script of the restore")
            postgresql_programs.script(unpacked.content, dump)
            write_file(last, _last_script(schema, mark), "the script of the restore")
            try:
                postgresql_programs.run_scripts(address, [first, dump, last])
            except StoreUnusable as error:
                if _IN_USE in error.message or "deadlock detected" in error.message:
                    raise ConcurrentChange(f"{_IN_USE}: {address.shown}", hint=_CLOSE_OTHERS) from error
                raise
    except DatabaseError as exc:
        raise translate(exc, store_name=address.shown) from exc
    finally:
        database.close()


def _own_schema(database: Database, address: PostgresqlAddress) -> str:
    """The schema of the tables. Raises ConcurrentChange while others are connected to the database.

    A connection that was closed, such as our own a moment ago, counts until its server process has ended.
    """
    give_up = time.monotonic() + _LEAVING_S
    while True:
        with database.transaction(postgresql.BEGIN_READING) as connection:
            others = connection.run(
                "SELECT pid, application_name AS name, coalesce(host(client_addr), 'its own machine') AS client "
                f"FROM pg_stat_activity WHERE {_IS_OTHER}"
            ).rows
            if not others:
                return str(connection.value("SELECT current_schema() AS name"))
        if time.monotonic() > give_up:
            break
        time.sleep(_POLL_S)
    raise ConcurrentChange(
        f"{_IN_USE}: {address.shown} has other connections",
        context=[f"{one.name or 'a program'} from {one.client} (server process {one.pid})" for one in others],
        hint=_CLOSE_OTHERS,
    )


def _first_script(schema: str) -> str:
    """Wait for the writers, take the tables, look once more that nobody else is connected, and drop the tables.

    It waits with none of the tables in hand: with some of them it could be in a deadlock with one who reads.
    """
    from vgpuctl.store.tables import metadata

    names = [*metadata.tables, VERSION_TABLE]
    listed = ", ".join(f"'{name}'" for name in names)
    drops = "\n".join(f'DROP TABLE IF EXISTS "{schema}"."{name}" CASCADE;' for name in names)
    return f"""SET client_min_messages = warning;
{postgresql.LOCK_UPGRADES};
DO $$
DECLARE
  tables text;
BEGIN
  IF to_regclass('settings') IS NOT NULL THEN
    PERFORM 1 FROM settings WHERE name = '{INSTANCE}' FOR UPDATE;
  END IF;
  SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') INTO tables FROM pg_tables
    WHERE schemaname = '{schema}' AND tablename IN ({listed});
  FOR look IN 0..{_LEAVING_S / _POLL_S:.0f} LOOP
    PERFORM pg_stat_clear_snapshot();
    IF NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE {_IS_OTHER}) THEN
      BEGIN
        EXECUTE 'LOCK TABLE ' || tables || ' IN ACCESS EXCLUSIVE MODE NOWAIT';
        RETURN;
      EXCEPTION WHEN lock_not_available THEN
        NULL;
      END;
    END IF;
    PERFORM pg_sleep({_POLL_S});
  END LOOP;
  RAISE EXCEPTION '{_IN_USE}';
END $$;
{drops}
"""


def _last_script(schema: str, mark: RestoreMark) -> str:
    value = encode_mark(mark).replace("'", "''")
    return f"""SET standard_conforming_strings = on;
DELETE FROM "{schema}".settings WHERE name IN ('{RESTORE_MARK}', '{INSTANCE}');
INSERT INTO "{schema}".settings (name, value) VALUES ('{RESTORE_MARK}', '{value}'), ('{INSTANCE}', '{uuid.uuid4()}');
"""


def _say_so(place: StorePlace, manifest: BackupManifest, mark: RestoreMark) -> None:
    """Open the restored store, which migrates it when it is older, and add the event."""
    with place.open() as store, store.transaction() as session:
        after = {"as of": format_time(manifest.taken_at), "file": str(mark.file)}
        session.add_event(EventKind.STORE_RESTORED, "store", after=after, evidence={"sha256": manifest.sha256})
