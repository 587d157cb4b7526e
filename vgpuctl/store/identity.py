# SPDX-License-Identifier: Apache-2.0
"""Recognition of the store that a process has opened, at the beginning of each of its transactions.

A process that lives on may find another store in the place of its own: the file was moved and a backup restored, the
database was dropped and made again, a copy that went on by itself took the place, or the server was set back to an
earlier state. Its knowledge of VMs is then wrong, and its rows would go to another store. So it ends.

A store has the setting INSTANCE, which each restore changes. Its place is device and inode of an SQLite file, and the
numbers of the database and of a table on PostgreSQL. Its history is checked by the newest commit that this process has
seen or made: the store must still have it, under the same number.
"""

import os
from pathlib import Path
from types import SimpleNamespace

from vgpuctl.errors import StoreReplaced, StoreUnusable
from vgpuctl.model.backup import StoreKind
from vgpuctl.store import sqlite
from vgpuctl.store.database import Commit, StoreConnection
from vgpuctl.store.failures import DatabaseError
from vgpuctl.store.schema import VERSION_TABLE

INSTANCE = "instance"

_NO_COMMIT = Commit(0, None)
_PLACE = {
    StoreKind.SQLITE: "NULL AS place, false AS is_standby",
    StoreKind.POSTGRESQL: "(SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || "
    "'settings'::regclass::oid AS place, pg_is_in_recovery() AS is_standby",
}
_READ_SCHEMA = f"SELECT CASE count(*) WHEN 1 THEN min(version_num) END FROM {VERSION_TABLE}"
_READ = f"SELECT (SELECT value FROM settings WHERE name = '{INSTANCE}') AS instance, ({_READ_SCHEMA}) AS schema"
_READ_COMMITS = (
    "(SELECT token FROM commits WHERE id = :known) AS known, newest.id, newest.token, newest.inode "
    "FROM (SELECT max(id) AS id FROM commits) AS last LEFT JOIN commits AS newest ON newest.id = last.id"
)
_TOKEN = "SELECT token FROM commits WHERE id = :id"
_HINT = "start this again: it then opens the store that is there now, and looks at it anew"


class StoreIdentity:
    """Instance, place and newest commit of the opened store. Nothing is known, and nothing refused, before `learn`.

    file: of SQLite. store_name: for errors.
    """

    def __init__(self, file: Path | None, store_name: str) -> None:
        self._file = file
        self._store_name = store_name
        self._file_place: tuple[int, int] | None = None
        self._file_state: tuple[int, int] | None = None
        self._known: SimpleNamespace | None = None
        self._sees_commits = False
        self._newest = _NO_COMMIT

    def learn(self, connection: StoreConnection, *, sees_every_row: bool) -> None:
        """Take the store of this transaction for the one of this process. sees_every_row: False for a tenant's role."""
        self._sees_commits = sees_every_row
        self._known = self._read(connection, _NO_COMMIT)
        if self._known.instance is None and sees_every_row:
            raise StoreUnusable(
                f"the store {self._store_name} has lost the name by which it is known", hint="restore it from a backup"
            )
        self._file_place = self._find_place()
        self._file_state = self._find_state()
        if sees_every_row:
            self.remember(Commit(self._known.id or 0, self._known.token))

    @property
    def sees_every_row(self) -> bool:
        """False for a tenant's role, and before `learn`."""
        return self._sees_commits

    @property
    def newest(self) -> Commit:
        """The newest commit that this process has seen or made; read it before a transaction begins."""
        return self._newest

    @property
    def inode(self) -> str | None:
        """Of the SQLite file that was opened, None on PostgreSQL."""
        return None if self._file_place is None else str(self._file_place[1])

    def remember(self, commit: Commit) -> None:
        """Note a commit that is in the store. Where two threads come at once either may win: both are in the store."""
        if commit.id > self._newest.id:
            self._newest = commit

    def check(self, connection: StoreConnection, known: Commit) -> None:
        """Compare the store of this transaction. known: `newest` of before it began.

        Raises StoreReplaced, DatabaseError.
        """
        if self._known is None:
            return
        self.check_place()
        try:
            found = self._read(connection, known)
        except DatabaseError:
            connection.rollback()  # the tables are others
            self._compare_schema(connection.value(_READ_SCHEMA))
            raise
        self._compare_schema(found.schema)
        if found.instance != self._known.instance:
            raise self._replaced("is another one, or was restored from a backup")
        if found.place != self._known.place:
            raise self._replaced("is another database, or its tables were made anew")
        if self._sees_commits:
            self._check_commits(found, known)
            self._check_file(connection, found)

    def _check_commits(self, found: SimpleNamespace, known: Commit) -> None:
        newest = Commit(found.id or 0, found.token)
        if newest.id < known.id:
            if found.is_standby:
                return  # it is behind the server that this process has asked before
            raise self._replaced(f"was set back: its newest commit is number {newest.id}, and was {known.id}")
        if found.known not in (known.token, None):
            raise self._replaced(f"has another history: its commit number {known.id} is another one")
        if newest.id > known.id and found.inode not in (self.inode, None):
            raise self._replaced("was written elsewhere: a copy of it was brought here")
        self.remember(newest)

    def _check_file(self, connection: StoreConnection, found: SimpleNamespace) -> None:
        """Look for a file that was written over in place: under its write-ahead log, SQLite reads both as one.

        While a transaction reads, a checkpoint moves nothing newer than what it reads from the log to the file.
        """
        state = self._find_state()
        if self._file is None or state == self._file_state:
            return
        content = sqlite.read_without_log(self._file, f"{_READ}, {_READ_COMMITS}", known=0)
        if content is None or self._find_state() != state:
            return  # in the middle of a checkpoint; the next transaction looks again
        is_known = content.id is None or connection.value(_TOKEN, id=content.id) in (content.token, None)
        if content.instance != found.instance or not is_known or (content.id or 0) > (found.id or 0):
            raise self._replaced("was written over in place")
        self._file_state = state

    def check_place(self) -> None:
        """Compare the file that has the store's name now with the one that was opened.

        Raises StoreReplaced, and StoreUnusable where the file cannot be looked at.
        """
        if self._known is None or self._file is None:
            return
        if self._find_place() != self._file_place:
            raise self._replaced("is another file")

    def _read(self, connection: StoreConnection, known: Commit) -> SimpleNamespace:
        common = f"{_READ}, {_PLACE[connection.kind]}"
        if not self._sees_commits:
            (row,) = connection.run(common).rows
        else:
            (row,) = connection.run(f"{common}, {_READ_COMMITS}", known=known.id).rows
        return row

    def _compare_schema(self, found: str | None) -> None:
        if self._known is not None and found != self._known.schema:
            raise self._replaced(f"has the schema version {found}, and had {self._known.schema}")

    def _find_state(self) -> tuple[int, int] | None:
        """Time of change in nanoseconds and size in bytes of the file, None on PostgreSQL."""
        if self._file is None:
            return None
        status = self._status(self._file)
        return status.st_mtime_ns, status.st_size

    def _find_place(self) -> tuple[int, int] | None:
        """Device and inode of the file, None on PostgreSQL."""
        if self._file is None:
            return None
        status = self._status(self._file)
        return status.st_dev, status.st_ino

    def _status(self, file: Path) -> os.stat_result:
        try:
            return os.stat(file)  # noqa: PTH116 - at each transaction
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise self._replaced("is gone: its file was moved or deleted") from exc
        except OSError as exc:
            raise StoreUnusable(
                f"the store {self._store_name} cannot be looked at: {exc.strerror}",
                hint="look at the rights and the disk of its folder",
            ) from exc

    def _replaced(self, what: str) -> StoreReplaced:
        return StoreReplaced(f"the store {self._store_name} {what} since this process opened it", hint=_HINT)
