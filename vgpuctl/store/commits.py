# SPDX-License-Identifier: Apache-2.0
"""The last commits of the store: each transaction that writes leaves its number and a token made at random.

A copy of the store that went on by itself has other tokens from some number on. And a client that loses its connection
at a commit finds out by its token what became of it.
"""

import uuid

from vgpuctl.store import postgresql
from vgpuctl.store.database import Commit, Database, StoreConnection

_KEPT = 10_000
"""Commits. A process that lives on looks every few seconds, and a busy store has some commits in each of them."""

_LAST = "SELECT id, token FROM commits WHERE id = (SELECT max(id) FROM commits)"
_NOTE = "INSERT INTO commits (id, token, inode) VALUES (:id, :token, :inode)"
_FORGET = "DELETE FROM commits WHERE id <= :id"
_READ = (
    "SELECT pg_is_in_recovery() AS is_standby, (SELECT token FROM commits WHERE id = :id) AS token, "
    "(SELECT token FROM commits WHERE id = :id - 1) AS before"
)


def note_commit(connection: StoreConnection, inode: str | None) -> Commit:
    """Name the transaction in the store, just before its commit. inode: of the SQLite file."""
    last = next((Commit(row.id, row.token) for row in connection.run(_LAST).rows), Commit(0, None))
    made = Commit(last.id + 1, uuid.uuid4().hex, last.token)
    connection.run(_NOTE, id=made.id, token=made.token, inode=inode)
    connection.run(_FORGET, id=made.id - _KEPT)
    return made


def was_committed(database: Database, commit: Commit) -> bool | None:
    """True if a transaction was committed, as the PostgreSQL server that takes writes now knows it; False if not.

    The writers' lock is taken first, so that the transaction is over. None while a standby answers, where the server
    lacks the commit before it, and when so many commits followed that it is forgotten. Raises DatabaseError.
    """
    with database.transaction(postgresql.BEGIN_WRITING) as connection:
        (found,) = connection.run(_READ, id=commit.id).rows
    if found.is_standby:
        return None
    if found.token == commit.token:
        return True
    return False if found.before == commit.before else None
