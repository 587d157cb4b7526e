# SPDX-License-Identifier: Apache-2.0
"""The locks of all tables on PostgreSQL, which an upgrade needs, also against those who read.

A transaction that reads and stays open holds them up. A session of a role that may not write, such as a tenant's, is
ended then; of others the error tells who they are.
"""

import time

from vgpuctl.errors import StoreUnusable
from vgpuctl.logs import PROGRESS
from vgpuctl.store.database import Row, StoreConnection
from vgpuctl.store.failures import BUSY_TIMEOUT_S, DatabaseError

_PATIENCE_S = 5
"""With a session that only reads."""
_PAUSE_S = 0.05
_IN_USE, _NO_RIGHT = "55P03", "42501"
"""SQLSTATEs: PostgreSQL manual, appendix A."""
_TABLES = "SELECT quote_ident(tablename) AS name FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1"
_HOLDERS = (
    "SELECT DISTINCT a.pid, a.usename AS role, a.application_name AS name, "
    "coalesce(has_table_privilege(a.usesysid, to_regclass('vms'), 'INSERT'), true) AS may_write "
    "FROM pg_locks l JOIN pg_class c ON c.oid = l.relation AND c.relnamespace = current_schema()::regnamespace "
    "JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.granted AND l.pid <> pg_backend_pid() "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY a.pid"
)


def take(connection: StoreConnection, *, store_name: str) -> None:
    """Lock every table of the store for the rest of the transaction. Raises StoreUnusable, DatabaseError.

    It waits with none of the tables in hand: with them it could be in a deadlock, and everybody would wait behind it.
    """
    tables = ", ".join(row.name for row in connection.run(_TABLES).rows)
    if not tables:
        return
    begun = time.monotonic()
    refused: set[int] = set()
    while not _is_done(connection, f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE NOWAIT", unless=_IN_USE):
        waited_s = time.monotonic() - begun
        holders = connection.run(_HOLDERS).rows
        if waited_s > BUSY_TIMEOUT_S:
            raise StoreUnusable(
                f"the tables of the store {store_name} were in use for {BUSY_TIMEOUT_S} s",
                context=[_named(one) for one in holders],
                hint="end what reads for long, then run the command again: SELECT pg_terminate_backend(PID)",
            )
        for one in holders if waited_s > _PATIENCE_S else ():
            if not one.may_write and one.pid not in refused:
                _end(connection, one, refused)
        time.sleep(_PAUSE_S)


def _end(connection: StoreConnection, holder: Row, refused: set[int]) -> None:
    """End a session, if this role may: as a superuser, or a member of pg_signal_backend or of the other role."""
    if _is_done(connection, f"SELECT pg_terminate_backend({holder.pid})", unless=_NO_RIGHT):
        PROGRESS.warning("the upgrade has ended %s, which held the tables and may only read", _named(holder))
    else:
        refused.add(holder.pid)


def _is_done(connection: StoreConnection, statement: str, *, unless: str) -> bool:
    """Run a statement; False for an error of this SQLSTATE, with nothing of the transaction lost."""
    connection.run("SAVEPOINT table_locks")
    try:
        connection.run(statement)
        return True
    except DatabaseError as exc:
        if exc.code != unless:
            raise
    connection.run("ROLLBACK TO SAVEPOINT table_locks")
    return False


def _named(holder: Row) -> str:
    return f"{holder.name or 'a program'} of the role {holder.role} (pid {holder.pid})"
