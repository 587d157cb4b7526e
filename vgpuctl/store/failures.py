# SPDX-License-Identifier: Apache-2.0
"""Errors of sqlite3 and psycopg as errors of vgpuctl."""

from vgpuctl.errors import ConcurrentChange, StateError, StoreOutcomeUnknown, StoreUnusable, UsageError

BUSY_TIMEOUT_S = 15

_SHOWN = 60
_SAME_AGAIN = "run the same command again; it looks at the store anew"

# SQLSTATE (PostgreSQL, appendix A) and sqlite3's names of result codes.
_REFUSED_ROWS = ("23", "SQLITE_CONSTRAINT")
_CONFLICTS = {"40001", "40P01", "SQLITE_BUSY_SNAPSHOT"}
_BUSY = {"SQLITE_BUSY", "55P03"}
_FULL = {"53100", "SQLITE_FULL"}
_HINTS = {
    "55P03": "another vgpuctl has been writing for long; look for one that hangs, then run the command again",
    "SQLITE_BUSY": "another vgpuctl has been writing for long; look for one that hangs, then run the command again",
    "25006": "the server only reads (a standby?); connect to the primary",
    "25P03": "this run was stopped or slept inside a transaction; run the command again",
    "42501": "let the owner of the database grant this user the rights to read, write and create tables",
    "42P07": "tables of these names belong to another program; give vgpuctl a database of its own",
    "53100": "free some space on the database server's disk",
    "SQLITE_FULL": "free some space on the disk of the store",
    "SQLITE_READONLY": "make the file and its folder writable, or give another store",
    "SQLITE_CANTOPEN": "look at the rights of the file and of its folder",
    "SQLITE_NOTADB": "give the path of a vgpuctl store, or of a file that does not exist yet",
    "SQLITE_CORRUPT": "the file is damaged; restore it from a backup",
    "SQLITE_PROTOCOL": "the file system of the store cannot lock files; keep the store on a local disk",
    "SQLITE_IOERR": "look at the disk of the store; SQLite needs a local file system",
}


class DatabaseError(Exception):
    """An error of the driver. It leaves the store translated.

    code: the SQLSTATE or sqlite3's name of the result code, empty when there is none. is_lost: the connection is gone.
    """

    def __init__(self, error: BaseException, *, is_lost: bool = False) -> None:
        said = str(error).partition("\nCONTEXT:")[0]  # where in its files PostgreSQL was
        super().__init__(" ".join(said.split()) or type(error).__name__)
        self.code: str = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None) or ""
        self.is_lost = is_lost


class NoConnection(DatabaseError):
    """No connection came about."""


def is_busy(error: DatabaseError) -> bool:
    """True if somebody else has locked the store for too long."""
    return error.code in _BUSY


def translate(
    error: DatabaseError, *, store_name: str, conflict: str | None = None, holder: str | None = None
) -> StateError:
    """Turn a database error into ConcurrentChange (somebody was first) or StoreUnusable.

    conflict: what a refused constraint means here. holder: who has locked the store, where that is known.
    The message never holds the password: drivers do not print it, and store_name hides it.
    """
    said, code = str(error), error.code
    if code.startswith(_REFUSED_ROWS):
        return ConcurrentChange(conflict or f"the store {store_name} refused a row: {said}", hint=_SAME_AGAIN)
    if code in _CONFLICTS:
        return ConcurrentChange(f"another run changed the store {store_name} first: {said}", hint=_SAME_AGAIN)
    if code in _BUSY:
        return StoreUnusable(
            f"the store {store_name} was locked for {BUSY_TIMEOUT_S} s: {said}",
            context=() if holder is None else (holder,),
            hint="wait for it, or end it, then run the command again" if holder else _HINTS[code],
        )
    if error.is_lost:
        return connection_lost(error, store_name=store_name)
    if code in _FULL:
        return StoreUnusable(f"the disk of the store {store_name} is full: {said}", hint=_HINTS[code])
    return StoreUnusable(f"the store {store_name} answered: {said}", hint=_HINTS.get(_family(code)))


def connection_lost(error: DatabaseError, *, store_name: str) -> StoreUnusable:
    """The connection ended before the commit: the server has rolled the transaction back."""
    return StoreUnusable(
        f"the connection to the store {store_name} was lost; what this transaction changed was not committed: {error}",
        hint="when the database answers again, run `vgpuctl repair`, then the command",
    )


def outcome_unknown(error: DatabaseError, *, store_name: str) -> StoreOutcomeUnknown:
    """The connection ended during the commit, and no server says what became of it."""
    return StoreOutcomeUnknown(
        f"the connection to the store {store_name} was lost during a commit, and no primary answered since: the "
        f"transaction may be committed or not: {error}",
        hint="when the database answers again, run `vgpuctl repair`, then the command; both look at what is there",
    )


def not_utf_8(error: UnicodeEncodeError) -> UsageError:
    """A text that no database holds: an argument in the encoding of another terminal."""
    return UsageError(
        f"the text {str(error.object)[:_SHOWN]!a} is not UTF-8, and the store holds nothing else",
        hint="give names and reasons in UTF-8; `locale` shows the terminal's encoding",
    )


def _family(code: str) -> str:
    """SQLITE_IOERR_SHMOPEN and similar codes are listed by their first two words."""
    return code if code in _HINTS else "_".join(code.split("_")[:2])
