# SPDX-License-Identifier: Apache-2.0
"""A store in one SQLite file: WAL, foreign keys, one writer at a time, and what can be told before it is opened."""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Engine, NullPool, QueuePool, create_engine
from sqlalchemy.exc import OperationalError

from vgpuctl.errors import StoreUnusable
from vgpuctl.store.address import SqliteAddress
from vgpuctl.store.failures import BUSY_TIMEOUT_S, error_code

BEGIN_WRITING = "BEGIN IMMEDIATE"
BEGIN_READING = "BEGIN"

# Opening for writing takes 32 KiB for the index of the write-ahead log (sqlite.org/walformat.html), and then the log.
_SMALLEST_ROOM_BYTES = 64 * 1024


def prepare(address: SqliteAddress) -> str | None:
    """Look at the file and its folder, and make the file (only its owner may read it) when there is none.

    Returns why the store can only be read, None when it can be written. Raises StoreUnusable when it cannot be used.
    """
    try:
        return _prepare(address)
    except OSError as exc:
        raise StoreUnusable(
            f"the store {address.path} cannot be looked at: {exc.strerror}",
            hint=f"let this user enter {address.path.parent}, or give another store with --database",
        ) from exc


def open_engine(address: SqliteAddress, *, read_only: bool) -> Engine:
    """Build the engine. Nothing is read yet; the caller begins with BEGIN_WRITING or BEGIN_READING."""
    url = URL.create("sqlite", database=str(address.path))
    if read_only:
        return create_engine(url, creator=_reader(address.path), poolclass=NullPool)
    return create_engine(url, creator=_writer(address.path), poolclass=QueuePool, max_overflow=-1)


def ensure_wal(engine: Engine) -> None:
    """Switch the file to write-ahead logging, which lasts. Readers then never wait for the writer.

    SQLite refuses the switch at once, without its busy timeout, while anybody else has the file locked; hence the
    loop. A file system without shared memory keeps the rollback journal, which works too.
    """
    give_up = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            with engine.connect() as connection:
                if connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
                    connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            return
        except OperationalError as exc:
            if error_code(exc) != "SQLITE_BUSY" or time.monotonic() > give_up:
                raise
        time.sleep(0.01)


def _writer(path: Path) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted or replaced is gone from the file too
        connection.execute("PRAGMA synchronous = FULL")  # a state must outlive a power cut before its side effect
        return connection

    return connect


def _reader(path: Path) -> Callable[[], sqlite3.Connection]:
    """Open for reading only.

    A WAL file can be read where nothing can be written as long as its -wal and -shm are there (somebody has it open),
    or when SQLite is told that nobody writes. Source: https://www.sqlite.org/wal.html, "Read-Only Databases".
    """

    def connect() -> sqlite3.Connection:
        mode = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
        return sqlite3.connect(
            f"file:{quote(str(path))}?{mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )

    return connect


def _prepare(address: SqliteAddress) -> str | None:
    path = address.path
    _prepare_folder(address)
    if path.is_dir():
        raise StoreUnusable(f"the store {path} is a folder", hint="give the path of a file, for example with store.db")
    if not path.exists():
        if address.read_only:
            raise StoreUnusable(f"there is no store {path}", hint="leave out ?mode=ro to make one")
        _create(path)
    if not _may(path, os.R_OK):
        raise StoreUnusable(f"the store {path} may not be read", hint=f"let this user read it: ls -l {path}")
    if address.read_only:
        return "it was opened with ?mode=ro"
    if not _may(path, os.W_OK):
        return "its file may not be written"
    if not _may(path.parent, os.W_OK | os.X_OK):
        return f"its folder {path.parent} may not be written, and SQLite keeps its journal there"
    if _free_bytes(path.parent) < _SMALLEST_ROOM_BYTES:
        return f"the disk of its folder {path.parent} is full; free some space there"
    return None


def _prepare_folder(address: SqliteAddress) -> None:
    folder = address.path.parent
    if address.is_default and not address.read_only:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise StoreUnusable(
                f"the store's folder {folder} cannot be made: {exc.strerror}",
                hint="give another store with --database",
            ) from exc
    if not folder.is_dir():
        raise StoreUnusable(f"the store's folder {folder} does not exist", hint=f"mkdir -p {folder}")


def _create(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return  # another run was first
    except OSError as exc:
        raise StoreUnusable(
            f"the store {path} cannot be made: {exc.strerror}",
            hint=f"let this user write in {path.parent}, or give another store with --database",
        ) from exc


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_frsize * (status.f_bfree if os.geteuid() == 0 else status.f_bavail)


def _may(path: Path, mode: int) -> bool:
    """access(2), not open(2): closing a second descriptor of the file would drop SQLite's locks on it."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)
