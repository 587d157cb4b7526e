# SPDX-License-Identifier: Apache-2.0
"""The store's public interface: open it, and its transactions."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from vgpuctl.errors import StateError, StoreReplaced, StoreUnusable
from vgpuctl.logs import timed
from vgpuctl.model.backup import StoreKind
from vgpuctl.model.event import NOBODY, Actor, Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.vm import printed_name
from vgpuctl.store import commits, postgresql, sqlite, upgrade
from vgpuctl.store.address import PostgresqlAddress, SqliteAddress, default_url, parse_url
from vgpuctl.store.claims import NO_IDLE_LIMIT, Claim, claim_by_operation, claim_row
from vgpuctl.store.codec import FactsReader
from vgpuctl.store.database import Commit, Database, StoreConnection
from vgpuctl.store.failures import DatabaseError, NoConnection, connection_lost, is_busy, outcome_unknown, translate
from vgpuctl.store.identity import StoreIdentity
from vgpuctl.store.sealed import NO_KEY, KeyFile
from vgpuctl.store.session import Session

__all__ = ["Session", "Store", "default_url", "open_store"]


FAILOVER_S = 30
"""How long a run waits for a primary, from the loss of its connection."""
_RETRY_S = 0.3
# Savepoints of one name are nested on both databases.
_BEGIN_PART = "SAVEPOINT rehearsed"
_UNDO_PART = "ROLLBACK TO SAVEPOINT rehearsed"
_END_PART = "RELEASE SAVEPOINT rehearsed"


class Store:
    """An open store; several threads may use it. `name` is its path or URL for messages, without password."""

    def __init__(
        self,
        database: Database,
        address: SqliteAddress | PostgresqlAddress,
        *,
        read_only_reason: str | None,
        clock: Callable[[], float],
        key_file: KeyFile = NO_KEY,
        actor: Actor = NOBODY,
    ) -> None:
        self.name = address.shown
        self.read_only_reason = read_only_reason
        self._database = database
        self._address = address
        self._clock = clock
        self._key_file = key_file
        self._actor = actor
        self._identity = StoreIdentity(address.path if isinstance(address, SqliteAddress) else None, self.name)
        self._facts_reader = FactsReader()
        self._rehearsal: StoreConnection | None = None
        self._rehearsing = threading.RLock()
        self._only_asks = False

    def now(self) -> float:
        """The store's time in seconds since the epoch, UTC. Use cases decide by it."""
        return self._clock()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session]:
        """Read and change the store: everything in the block is committed at its end, or nothing.

        One writer at a time, on both databases: what is read in the block stays true until its end. Keep the block
        short and without side effects. On a store that can only be read, reading works and a change raises
        StoreUnusable. Raises ConcurrentChange and StoreUnusable; StoreNotTheSame where another store has taken the
        place of the one that was opened, or a newer vgpuctl has upgraded it.
        """
        with self._session(writing=self.read_only_reason is None) as session:
            yield session

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """Read one state of the store, without waiting for writers. A change in the block raises StoreUnusable."""
        with self._session(writing=False) as session:
            yield session

    def require_writable(self) -> None:
        """Raise what keeps this vgpuctl from changing the store.

        StoreUnusable: it can only be read. StoreNotTheSame: it is another one, or a newer vgpuctl has upgraded it.
        StoreNotReconciled: it was restored.
        """
        if self.read_only_reason is not None:
            raise self._cannot_write(self.read_only_reason)
        with self.reading() as session:
            session.require_reconciled()

    def require_same(self) -> None:
        """Raise StoreNotTheSame if this is not the store that was opened, or not its schema; every transaction does."""
        with self.reading():
            pass

    @contextlib.contextmanager
    def operation(
        self, kind: str, subject: str, detail: str = "", *, exclusive: bool = False, takes_over: bool = False
    ) -> Iterator[int]:
        """Keep a row of the journal for the length of the block. It is left open only when the process is killed.

        exclusive: raise ConcurrentChange when a run that may be alive has an open operation on the subject.
        takes_over: a block that ends well has done what dead runs left of the subject, and their rows go too.
        """
        with self.transaction() as session:
            operation_id = session.begin_operation(kind, subject, detail, exclusive=exclusive)
        is_done = False
        try:
            yield operation_id
            is_done = takes_over
        finally:
            with self.transaction() as session:
                session.end_operation(operation_id)
                if is_done:
                    session.end_dead_operations(subject)

    @contextlib.contextmanager
    def claim(self, entry: QueueEntry) -> Iterator[Claim | None]:
        """Serve one entry of the queue alone: None when another process does, or when it is gone.

        The claim ends with the block, or with the process. PostgreSQL: a row lock on a connection of its own; SQLite:
        an operation of this process, which counts no more when the process is dead.
        """
        if self.kind is StoreKind.SQLITE:
            with claim_by_operation(self.transaction, entry) as claimed:
                yield self._with_events(entry, claimed)
            return
        with self.reading() as session:
            if session.restore_mark() is not None:
                yield None
                return
        with self._begun(NO_IDLE_LIMIT) as connection:
            yield self._with_events(entry, claim_row(connection, entry))
            connection.commit()

    def rehearse(self, *, of_reader: bool = False) -> None:
        """From now on commit nothing: every later transaction sees the earlier ones, and all are undone at `close`.

        They work on a copy in memory, so that a long dry run keeps nobody waiting. of_reader: the copy of a store that
        can only be read, or that is not reconciled, takes changes too, unless only a part of its rows is seen. Raises
        StoreUnusable.
        """
        if self._rehearsal is None:
            self._rehearsal = self._begin_rehearsal()
            self._key_file = self._key_file.for_rehearsal()
            self._only_asks = of_reader
            if of_reader and self._identity.sees_every_row:
                self.read_only_reason = None

    @contextlib.contextmanager
    def forgetting(self) -> Iterator[None]:
        """Undo at the end of the block what a rehearsal has changed in it. Raises StoreUnusable."""
        self.rehearse()
        assert self._rehearsal is not None
        connection = self._rehearsal
        with self._rehearsing:
            connection.run(_BEGIN_PART)
        try:
            yield
        finally:
            with self._rehearsing:
                connection.run(_UNDO_PART)
                connection.run(_END_PART)

    def _begin_rehearsal(self) -> StoreConnection:
        with self._begun(self._first_statement(writing=False)) as source:
            try:
                if self.kind is StoreKind.SQLITE:
                    copied = sqlite.copy_in_memory(self._database)
                else:
                    copied = postgresql.copy_in_memory(source)
            except sqlite3.Error as exc:
                raise DatabaseError(exc) from exc
        connection = StoreConnection(copied, StoreKind.SQLITE, sqlite3.Error)
        connection.run(sqlite.BEGIN_WRITING)
        return connection

    @property
    def kind(self) -> StoreKind:
        """The database that the store is kept in."""
        return self._database.kind

    def key_content(self) -> bytes | None:
        """The key file's content, None where there is none. Raises StoreUnusable when it cannot be used."""
        return self._key_file.content()

    def copy_to(self, path: Path) -> None:
        """Write one state of the whole store to a new file, in the database's own form, while others use the store.

        Raises StoreUnusable, FileNotWritten.
        """
        if isinstance(self._address, PostgresqlAddress):
            from vgpuctl.store import postgresql_programs

            postgresql_programs.dump(self._address, path)
            return
        try:
            sqlite.copy_to(self._database, path)
        except sqlite3.Error as exc:
            raise StoreUnusable(f"the store {self.name} cannot be copied: {exc}") from exc

    def _with_events(self, entry: QueueEntry, claim: Claim | None) -> Claim | None:
        """The claim whose changes leave events. A reason that is the same as at the last try leaves none."""
        if claim is None:
            return None

        def done() -> None:
            claim.done()
            self._note_queue(EventKind.VM_LEFT_QUEUE, entry, "it was served", after={"reason": None})

        def note(reason: str, refusal: str) -> None:
            claim.note(reason, refusal)
            if reason != entry.reason:
                self._note_queue(EventKind.VM_WAITS, entry, after={"reason": reason})

        return Claim(done, note)

    def _note_queue(self, kind: EventKind, entry: QueueEntry, detail: str = "", *, after: Values) -> None:
        with self.transaction() as session:
            for one in entry.requests:
                label = printed_name(one.tenant, one.name)
                before: Values = {"reason": entry.reason}
                session.add_event(kind, label, detail, tenant=one.tenant, host=one.host, before=before, after=after)

    def close(self) -> None:
        """Close every connection, and undo a rehearsal."""
        if self._rehearsal is not None:
            self._rehearsal.driver.close()
            self._rehearsal = None
        self._database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _session(self, *, writing: bool) -> Iterator[Session]:
        reason = self.read_only_reason
        log = timed("store-transaction", store=self.name) if writing else contextlib.nullcontext()
        with log, self._begin(writing=writing) as connection:
            session = Session(
                connection,
                store_name=self.name,
                clock=self._clock,
                refusal=None if writing and reason is None else self._cannot_write(reason),
                facts_reader=self._facts_reader,
                key_file=self._key_file,
                actor=self._actor,
            )
            if writing and reason is None and not self._only_asks:
                session.refuse_unreconciled()
            yield session
            if session.failure is not None:
                raise session.failure
            if session.has_written and self._rehearsal is None:
                connection.commit_note = commits.note_commit(connection, self._identity.inode)

    def _cannot_write(self, reason: str | None) -> StoreUnusable:
        return StoreUnusable(
            f"the store {self.name} cannot be written: {reason or 'this is a transaction that only reads'}",
            hint="commands that only read work; to change something, make the store writable or give another",
        )

    @contextlib.contextmanager
    def _begin(self, *, writing: bool) -> Iterator[StoreConnection]:
        """A transaction: committed at the end of the block when it writes, rolled back on any exception."""
        if self._rehearsal is not None:
            with self._rehearsed(self._rehearsal) as connection:
                yield connection
            return
        with self._begun(self._first_statement(writing=writing)) as connection:
            yield connection
            if writing:
                self._commit(connection)

    @contextlib.contextmanager
    def _begun(self, first_statement: str) -> Iterator[StoreConnection]:
        """A connection after its first statement; what is not committed at the end of the block is rolled back."""
        known = self._identity.newest
        self._identity.check_place()  # before a connection is opened to another file
        try:
            connection = self._connect(first_statement)
            try:
                self._check_identity(connection, known)
                yield connection
            finally:
                self._database.give_back(connection)
        except DatabaseError as exc:
            raise self._translated(exc) from exc

    def _translated(self, error: DatabaseError) -> StateError:
        """The error; of a store that was locked for long with the one who holds it."""
        holder = None
        if is_busy(error):
            with contextlib.suppress(DatabaseError, OSError):
                if isinstance(self._address, SqliteAddress):
                    holder = sqlite.holder(self._address.path)
                else:
                    holder = postgresql.holder(self._database)
        return translate(error, store_name=self.name, holder=holder)

    def _check_identity(self, connection: StoreConnection, known: Commit) -> None:
        try:
            self._identity.check(connection, known)
        except StoreReplaced:
            upgrade.is_current(connection, store_name=self.name)  # says it better where a newer vgpuctl was here
            raise

    def _first_statement(self, *, writing: bool) -> str:
        if self.kind is StoreKind.SQLITE:
            return sqlite.BEGIN_WRITING if writing else sqlite.BEGIN_READING
        return postgresql.BEGIN_WRITING if writing else postgresql.BEGIN_READING

    @contextlib.contextmanager
    def _rehearsed(self, connection: StoreConnection) -> Iterator[StoreConnection]:
        """A transaction within the one of the rehearsal. One thread at a time."""
        with self._rehearsing:
            try:
                connection.run(_BEGIN_PART)
                try:
                    yield connection
                except BaseException:
                    connection.run(_UNDO_PART)
                    raise
                finally:
                    connection.run(_END_PART)
            except DatabaseError as exc:
                raise translate(exc, store_name=self.name) from exc

    def _connect(self, first_statement: str) -> StoreConnection:
        """A connection in a transaction. Where the URL names several servers, wait while none is the primary."""
        give_up = time.monotonic() + FAILOVER_S
        while True:
            try:
                return self._database.begin(first_statement)
            except NoConnection:
                address = self._address
                is_alone = isinstance(address, SqliteAddress) or not address.has_several_hosts
                if is_alone or time.monotonic() > give_up:
                    raise
            time.sleep(_RETRY_S)

    def _commit(self, connection: StoreConnection) -> None:
        """Commit. When the connection is lost in the middle of it, find out whether the transaction was committed.

        Raises StoreUnusable when it was not, StoreOutcomeUnknown when nobody can say.
        """
        commit = connection.commit_note
        self._identity.check_place()
        try:
            connection.commit()
        except DatabaseError as exc:
            if commit is None or not exc.is_lost:
                raise
            outcome = self._outcome(commit)
            if outcome is None:
                raise outcome_unknown(exc, store_name=self.name) from exc
            if not outcome:
                raise connection_lost(exc, store_name=self.name) from exc
        if commit is not None:
            self._identity.remember(commit)

    def _outcome(self, commit: Commit) -> bool | None:
        give_up = time.monotonic() + FAILOVER_S
        while time.monotonic() < give_up:
            with contextlib.suppress(DatabaseError):
                outcome = commits.was_committed(self._database, commit)
                if outcome is not None:
                    return outcome
            time.sleep(_RETRY_S)
        return None

    def bring_up_to_date(self) -> None:
        """Check the schema's version and migrate when it is older; `open_store` does this."""
        with self._begin(writing=False) as connection:
            if upgrade.is_current(connection, store_name=self.name):
                rights = postgresql.rights(connection) if self.kind is StoreKind.POSTGRESQL else postgresql.EVERY_RIGHT
                if self.read_only_reason is None:
                    self.read_only_reason = rights.why_read_only
                self._identity.learn(connection, sees_every_row=rights.sees_every_row)
                return
            if self.kind is StoreKind.SQLITE:
                upgrade.refuse_stranger(connection, store_name=self.name)
            else:
                postgresql.refuse_to_migrate(connection, store_name=self.name)
        if self.read_only_reason is not None:
            raise StoreUnusable(
                f"the store {self.name} is empty or of an older vgpuctl, and cannot be written: "
                f"{self.read_only_reason}",
                hint="make it writable and run the command again, or give another store",
            )
        if isinstance(self._address, SqliteAddress):
            try:
                sqlite.ensure_wal(self._address)
            except sqlite3.Error as exc:
                raise translate(DatabaseError(exc), store_name=self.name) from exc
        upgrade.migrate(self._database, store_name=self.name)
        with self._begin(writing=False) as connection:
            self._identity.learn(connection, sees_every_row=True)  # only the owner can migrate


def open_store(
    url: str, *, clock: Callable[[], float] = time.time, key_file: Path | None = None, actor: Actor = NOBODY
) -> Store:
    """Open the store at `url` (sqlite:///PATH or postgresql://…), made or migrated when it has to be.

    clock: the time of rows, seconds since the epoch, UTC. key_file: encrypts secret documents in the queue; without it
    a SQLite store makes one beside itself when it needs it, and PostgreSQL has none. actor: who the events name.
    Raises UsageError for a URL that is none, StoreUnusable when the store cannot be opened.
    """
    address = parse_url(url)
    if isinstance(address, SqliteAddress):
        key = KeyFile(key_file or Path(f"{address.path}.key"), makes_key=key_file is None)
        reason = sqlite.prepare(address)
        database = sqlite.database(address, read_only=reason is not None)
    else:
        key = KeyFile(key_file, makes_key=False)
        reason = None
        database = postgresql.database(address, actor)
        try:
            with database.transaction(postgresql.BEGIN_READING):
                pass
        except DatabaseError as exc:
            raise postgresql.connect_failed(exc, address) from exc
    store = Store(database, address, read_only_reason=reason, clock=clock, key_file=key, actor=actor)
    try:
        store.bring_up_to_date()
    except BaseException:
        store.close()
        raise
    return store
