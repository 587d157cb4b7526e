# SPDX-License-Identifier: Apache-2.0
"""A store in one SQLite file: WAL, foreign keys, one writer at a time, and what can be told before it is opened."""

import contextlib
import errno
import os
import re
import shlex
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from vgpuctl.errors import StoreUnusable
from vgpuctl.local_files import is_out_of_room, make_folder, not_written, room_refused, scratch_folder
from vgpuctl.model.backup import StoreKind
from vgpuctl.store.address import SqliteAddress
from vgpuctl.store.database import Database, Row, StoreConnection
from vgpuctl.store.failures import BUSY_TIMEOUT_S, DatabaseError

BEGIN_WRITING = "BEGIN IMMEDIATE"
BEGIN_READING = "BEGIN"

# SQLite has no type for them and gives 0 and 1.
sqlite3.register_converter("BOOLEAN", lambda value: value != b"0")

# Answers of SQLite where the log's index is missing and cannot be made.
_WITHOUT_INDEX = {"SQLITE_CANTOPEN", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_SHMOPEN", "SQLITE_READONLY_CANTINIT"}
# Opening for writing takes 32 KiB for the index of the write-ahead log (sqlite.org/walformat.html), and then the log.
_SMALLEST_ROOM_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,39}")


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


def database(address: SqliteAddress, *, read_only: bool) -> Database:
    """The database, from which nothing is read yet; the caller begins with BEGIN_WRITING or BEGIN_READING."""
    opens = _reader(address.path) if read_only else _writer(address.path)
    return Database(StoreKind.SQLITE, opens, keeps=not read_only)


def ensure_wal(address: SqliteAddress) -> None:
    """Switch the file to write-ahead logging, which lasts. Readers then never wait for the writer.

    SQLite refuses the switch at once, without its busy timeout, while anybody else has the file locked; hence the
    loop. A file system without shared memory keeps the rollback journal, which works too. Raises sqlite3.Error.
    """
    give_up = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            with contextlib.closing(_writer(address.path)()) as connection:
                if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                    connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > give_up:
                raise
        time.sleep(0.01)


def holder(path: Path) -> str | None:
    """The process that writes the store, in words; None where the kernel shows none to this user.

    Nothing is opened: closing another descriptor of a file drops SQLite's locks on it. Source: proc_locks(5) and
    sqlite.org/walformat.html, "WAL Locks".
    """
    places = {(status.st_dev, status.st_ino) for status in map(_status, (path, Path(f"{path}-shm"))) if status}
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "->" in fields or fields[3] != "WRITE":
            continue
        major, minor, inode = fields[5].split(":")
        if (os.makedev(int(major, 16), int(minor, 16)), int(inode)) in places and int(fields[4]) != os.getpid():
            return f"process {fields[4]} has it locked: {_command_line(fields[4])}"
    return None


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _command_line(pid: str) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
        return _shown_program(words)
    except OSError:
        return "of another user or machine"


def _shown_program(words: Sequence[str]) -> str:
    """The program, and the script that it runs; not their arguments, in which another user's password can stand."""
    names = [Path(word).name for word in words[:3] if word and not word.startswith("-") and "=" not in word]
    names = [name for name in names[:2] if _NAME.fullmatch(name)]
    return " ".join(names[: 2 if names[:1] and names[0].startswith("python") else 1])


def copy_to(database: Database, path: Path) -> None:
    """Copy the database, as one state of it, to a new file in which everything is; nobody waits for it.

    Raises sqlite3.Error, FileNotWritten for a full disk. Source: https://www.sqlite.org/backup.html
    """
    _create(path)
    made = sqlite3.connect(path, isolation_level=None)
    try:
        with contextlib.closing(database.open_driver()) as source:
            source.backup(made)
        made.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    except sqlite3.Error as exc:
        if exc.sqlite_errorname == "SQLITE_FULL":
            raise room_refused("the backup", path) from exc
        raise
    finally:
        made.close()


def in_memory() -> sqlite3.Connection:
    """An empty database that ends with its connection."""
    return _connect(":memory:")


def copy_in_memory(database: Database) -> sqlite3.Connection:
    """A copy of the database, as one state of it, that ends with its connection. Raises sqlite3.Error."""
    made = in_memory()
    with contextlib.closing(database.open_driver()) as source:
        source.backup(made)
    made.execute("PRAGMA foreign_keys = ON")
    return made


def replace_content(path: Path, source: sqlite3.Connection) -> None:
    """Put another database's content in the place of this one's: one transaction, which a kill undoes.

    A process with the store open has a shared lock on the file of a write-ahead log, so the switch to another journal
    is refused while there is one. Raises sqlite3.Error; SQLITE_BUSY then.
    """
    target = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        target.execute("PRAGMA locking_mode = EXCLUSIVE")  # what is locked stays so until the end
        target.execute("PRAGMA synchronous = FULL")
        target.execute("PRAGMA journal_mode = DELETE")
        target.execute("BEGIN EXCLUSIVE")
        target.execute("COMMIT")
        source.backup(target)
    finally:
        target.close()


def check_file(path: Path) -> None:
    """Read the whole of a copy and check it. Raises StoreUnusable when it is damaged."""
    made = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True, isolation_level=None)
    try:
        said = [str(row[0]) for row in made.execute("PRAGMA integrity_check")]
        broken = made.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.DatabaseError as exc:
        said, broken = [str(exc)], []
    finally:
        made.close()
    if said != ["ok"] or broken:
        raise StoreUnusable(
            f"the backup's copy of the store is damaged: {'; '.join(said[:3])}; {len(broken)} rows refer to nothing",
            hint="check the disk and the store with `sqlite3 STORE 'PRAGMA integrity_check'`",
        )


def read_without_log(path: Path, sql: str, **values: object) -> Row | None:
    """The row of a query on the file without its write-ahead log; None if the log or the row does not exist.

    SQLite opens it: closing a descriptor of our own would drop the locks of this process.
    """
    if not Path(f"{path}-wal").exists():
        return None
    with contextlib.closing(_open_to_read(path, "mode=ro&immutable=1")) as driver:
        try:
            return StoreConnection(driver, StoreKind.SQLITE, sqlite3.Error).run(sql, **values).rows[0]
        except (DatabaseError, IndexError):
            return None


def _writer(path: Path) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        connection = _connect(f"file:{quote(str(path))}?mode=rw", uri=True)  # never makes a file
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted or replaced is gone from the file too
        connection.execute("PRAGMA synchronous = FULL")  # a state must outlive a power cut before its side effect
        return connection

    return connect


def _reader(path: Path) -> Callable[[], sqlite3.Connection]:
    """Open for reading only.

    A WAL file can be read where nothing can be written as long as its -wal and -shm are there (somebody has it open),
    or when SQLite is told that nobody writes. A killed run, a copy or a restore can leave a -wal with no -shm: then
    a copy in memory is read. Source: https://www.sqlite.org/wal.html, "Read-Only Databases".
    """

    def connect() -> sqlite3.Connection:
        if not Path(f"{path}-wal").exists():
            return _open_to_read(path, "mode=ro&immutable=1")
        connection = _open_to_read(path, "mode=ro")
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as exc:
            connection.close()
            if exc.sqlite_errorname not in _WITHOUT_INDEX:
                raise
            return _read_copy(path)
        return connection

    return connect


def _open_to_read(path: Path, mode: str) -> sqlite3.Connection:
    return _connect(f"file:{quote(str(path))}?{mode}", uri=True)


def _connect(place: Path | str, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        place,
        uri=uri,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        detect_types=sqlite3.PARSE_DECLTYPES,
    )
    connection.create_function("regexp", 2, _fits, deterministic=True)
    return connection


def _fits(pattern: str, text: str | None) -> bool:
    """The operator REGEXP, which SQLite leaves to its user."""
    return text is not None and re.search(pattern, text) is not None


def _read_copy(path: Path) -> sqlite3.Connection:
    """Read the file and its log into memory, by way of a copy on a disk that takes one.

    Raises sqlite3.OperationalError for a copy that cannot be read, FileNotWritten where no disk takes it.
    """
    files = (path, Path(f"{path}-wal"))
    before = [_state(file) for file in files]
    with scratch_folder("a copy of the store", files) as folder:
        if [_state(file) for file in files] != before:
            raise sqlite3.OperationalError("another run changed the file while it was copied; run the command again")
        copy = sqlite3.connect(folder / path.name, isolation_level=None)
        try:
            copy.execute("PRAGMA journal_mode = DELETE")  # moves the log into the file
            content = copy.serialize()
        finally:
            copy.close()
    made = _connect(":memory:")
    made.deserialize(content)
    made.execute("PRAGMA query_only = ON")
    return made


def _state(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _prepare(address: SqliteAddress) -> str | None:
    path = address.path
    _prepare_folder(address)
    if path.is_dir():
        raise StoreUnusable(f"the store {path} is a folder", hint="give the path of a file, for example with store.db")
    if path.exists() and not path.is_file():
        raise StoreUnusable(f"the store {path} is a pipe, a socket or a device", hint="give the path of a file")
    if not path.exists():
        if address.read_only:
            raise StoreUnusable(f"there is no store {path}", hint="leave out ?mode=ro to make one")
        _refuse_remains(path)
        _create(path)
    if not _may(path, os.R_OK):
        raise StoreUnusable(f"the store {path} may not be read", hint=f"let this user read it: ls -l {path}")
    if address.read_only:
        return "it was opened with ?mode=ro"
    if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
        return _no_room(OSError(errno.EROFS, os.strerror(errno.EROFS)), path.parent)
    if not _may(path, os.W_OK):
        return "its file may not be written"
    if not _may(path.parent, os.W_OK | os.X_OK):
        return f"its folder {path.parent} may not be written, and SQLite keeps its journal there"
    return _why_no_room(path.parent)


def _prepare_folder(address: SqliteAddress) -> None:
    folder = address.path.parent
    if address.is_default and not address.read_only:
        make_folder(folder, "the store's folder", mode=0o700)
    if not folder.is_dir():
        raise StoreUnusable(f"the store's folder {folder} does not exist", hint=f"mkdir -p {folder}")


def _refuse_remains(path: Path) -> None:
    """Raise StoreUnusable where the log of a store lies without its file.

    SQLite would delete the log, in which there may be commits, or share its index with processes that have the moved
    file open. Source: sqlite.org/howtocorrupt.html, "Unlinking or renaming a database file while in use".
    """
    remains = [one for ending in ("-wal", "-shm", "-journal") if (one := Path(f"{path}{ending}")).exists()]
    if remains and not path.exists():  # else another run has just made it: a store's file is there before its journal
        names = " ".join(shlex.quote(str(one)) for one in remains)
        raise StoreUnusable(
            f"{path} is gone, and {' and '.join(one.name for one in remains)} of that store are still there",
            hint=f"bring the store back, or move them to where it went: `mv {names} FOLDER`",
        )


def _create(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return  # another run was first
    except OSError as exc:
        reason = _no_room(exc, path.parent) if is_out_of_room(exc) else exc.strerror
        raise StoreUnusable(
            f"the store {path} cannot be made: {reason}",
            hint=f"let this user write in {path.parent}, or give another store with --database",
        ) from exc


def _why_no_room(folder: Path) -> str | None:
    """Why the folder has no room for SQLite's files; None when it has. A quota shows only when room is taken."""
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        if is_out_of_room(exc):
            return _no_room(exc, folder)
        status = os.statvfs(folder)  # a file system without nameless files (NFS)
        free = status.f_frsize * (status.f_bfree if os.geteuid() == 0 else status.f_bavail)
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return _no_room(full, folder) if free < _SMALLEST_ROOM_BYTES else None
    try:
        os.posix_fallocate(descriptor, 0, _SMALLEST_ROOM_BYTES)
    except OSError as exc:
        return _no_room(exc, folder) if is_out_of_room(exc) else None
    finally:
        os.close(descriptor)
    return None


def _no_room(error: OSError, folder: Path) -> str:
    failure = not_written(error, "the store's journal", folder)
    return f"{failure.message}; {failure.hint}"


def _may(path: Path, mode: int) -> bool:
    """access(2), not open(2): closing a second descriptor of the file would drop SQLite's locks on it."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)
