# SPDX-License-Identifier: Apache-2.0
"""Claims on entries of the queue: one process serves an entry, and its death frees it."""

import contextlib
from collections.abc import Callable, Iterator

from vgpuctl.errors import ConcurrentChange
from vgpuctl.model.queue import QueueEntry
from vgpuctl.store import codec
from vgpuctl.store.database import StoreConnection
from vgpuctl.store.queue import subject_of
from vgpuctl.store.session import Session

NO_IDLE_LIMIT = "SELECT set_config('idle_in_transaction_session_timeout', '0', true)"


class Claim:
    """An entry that this process serves. Its changes are stored at the end of the block.

    note: takes the reason why the entry waits, and the reference of its error.
    """

    def __init__(self, done: Callable[[], None], note: Callable[[str, str], None]) -> None:
        self.done = done
        self.note = note


def claim_row(connection: StoreConnection, entry: QueueEntry) -> Claim | None:
    """Lock the entry's row (SELECT … FOR UPDATE SKIP LOCKED) for the length of the connection's transaction."""
    if not connection.run("SELECT id FROM queue WHERE id = :id FOR UPDATE SKIP LOCKED", id=entry.id).rows:
        return None

    def done() -> None:
        connection.run("DELETE FROM queue WHERE id = :id", id=entry.id)

    def note(reason: str, refusal: str) -> None:
        change = "UPDATE queue SET reason = :reason, refusal = :refusal WHERE id = :id"
        connection.run(change, reason=codec.plain_text(reason), refusal=refusal, id=entry.id)

    return Claim(done, note)


@contextlib.contextmanager
def claim_by_operation(
    transaction: Callable[[], contextlib.AbstractContextManager[Session]], entry: QueueEntry
) -> Iterator[Claim | None]:
    """Claim by an operation in the journal. All users of an SQLite store are on one machine, so the dead are known."""
    try:
        with transaction() as session:
            if all(one.id != entry.id for one in session.queue()):
                operation = None
            else:
                operation = session.begin_operation("serve-queue", subject_of(entry.id), entry.name, exclusive=True)
    except ConcurrentChange:
        operation = None
    if operation is None:
        yield None
        return

    def done() -> None:
        with transaction() as session:
            session.end_entry(entry.id)

    def note(reason: str, refusal: str) -> None:
        with transaction() as session:
            session.note_in_queue(entry.id, reason, refusal)

    try:
        yield Claim(done, note)
    finally:
        with transaction() as session:
            session.end_operation(operation)
