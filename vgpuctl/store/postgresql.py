# SPDX-License-Identifier: Apache-2.0
"""A store in a PostgreSQL database, with the same manners as the SQLite file: one writer at a time, steady reads."""

import os
import sqlite3
from dataclasses import dataclass

from vgpuctl.errors import StoreUnusable
from vgpuctl.model.backup import StoreKind
from vgpuctl.model.event import NOBODY, Actor
from vgpuctl.store import sqlite
from vgpuctl.store.address import PostgresqlAddress
from vgpuctl.store.database import Database, StoreConnection
from vgpuctl.store.failures import BUSY_TIMEOUT_S, DatabaseError
from vgpuctl.store.identity import INSTANCE
from vgpuctl.store.schema import VERSION_TABLE

USUAL = {"connect_timeout": "10", "application_name": "vgpuctl"}
"""Parameters of libpq where the URL says nothing else. The timeout is in seconds."""

_LONGEST_NAME = 63
"""NAMEDATALEN - 1 of PostgreSQL, which cuts an application's name there."""

ENCODING = "utf8"
"""Of text, whatever URL and server say. For SQL_ASCII, which a server of the locale C has, psycopg gives bytes."""

_IDLE_LIMIT_S = 60
_LIMITS = (
    f"SELECT set_config('idle_in_transaction_session_timeout', '{_IDLE_LIMIT_S}s', true), "
    f"set_config('lock_timeout', '{BUSY_TIMEOUT_S}s', true);"
)

LOCK_WRITERS = f"SELECT value FROM settings WHERE name = '{INSTANCE}' FOR UPDATE"
"""One writer at a time: the lock of a row, which only those can take who may change it.

An advisory lock needs no right, so a tenant's role could hold it.
"""

BEGIN_WRITING = f"{_LIMITS} {LOCK_WRITERS}"
"""One round trip. A writer that vanished without a word (power, network) is ended by the server after _IDLE_LIMIT_S."""

LOCK_UPGRADES = f"""DO $$ BEGIN
  IF to_regclass('{VERSION_TABLE}') IS NULL THEN
    BEGIN
      CREATE TABLE {VERSION_TABLE} (
        version_num varchar(32) NOT NULL, CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num)
      );
    EXCEPTION WHEN unique_violation OR duplicate_table THEN
      NULL;
    END;
  END IF;
  LOCK TABLE {VERSION_TABLE} IN EXCLUSIVE MODE;
END $$"""
"""One upgrade at a time: a lock that only the owner of the tables can take.

In an empty database the table is made as alembic makes it. Who comes second waits for the first one's commit there.
"""

BEGIN_UPGRADING = f"{_LIMITS} {LOCK_UPGRADES}"

# The rights of the role: to write, and to see the rows of all tenants or of one (vgpuctl.store.row_policies).
_RIGHTS = (
    "SELECT current_user AS role, has_table_privilege('vms', 'INSERT') AS may_write, "
    "row_security_active('vms') AND NOT has_table_privilege('role_tenants', 'SELECT') AS sees_a_part"
)
_OWNER = (
    "SELECT current_user AS role, pg_get_userbyid(relowner) AS owner, pg_has_role(relowner, 'USAGE') AS is_owner "
    f"FROM pg_class WHERE oid = to_regclass('{VERSION_TABLE}')"
)

# The transaction that has locked the row stands in its xmax (PostgreSQL manual, "System Columns"). The server shows the
# address and the time of other roles to few; the machine of a command that is at work stands in the store.
_HOLDER = (
    "SELECT a.pid, a.usename AS role, a.application_name AS name, host(a.client_addr) AS client, "
    "extract(epoch FROM now() - a.xact_start) AS s, (SELECT min(o.hostname) FROM operations o "
    "WHERE a.application_name = 'vgpuctl ' || o.kind || ' ' || o.pid) AS machine "
    "FROM settings w JOIN pg_locks l ON l.transactionid = w.xmax AND l.locktype = 'transactionid' AND l.granted "
    f"JOIN pg_stat_activity a ON a.pid = l.pid WHERE w.name = '{INSTANCE}'"
)

_PAST = ("events", "commits")
BEGIN_READING = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


def holder(database: Database) -> str | None:
    """The writer that others wait for, in words; None when there is none any more. Raises DatabaseError."""
    with database.transaction(BEGIN_READING) as connection:
        for row in connection.run(_HOLDER).rows:
            since = "" if row.s is None else f" for {row.s:.0f} s"
            where = f" on {row.machine}" if row.machine else f" from {row.client}" if row.client else ""
            return f"{row.name or 'a program'} of the role {row.role}{where} has written{since} (server pid {row.pid})"
    return None


def database(address: PostgresqlAddress, actor: Actor = NOBODY) -> Database:
    """The database, to which nothing is connected yet.

    actor: its command is what the server shows for the connections, to every role; user and machine are not.
    """
    import psycopg

    from vgpuctl.store.libpq_files import connect

    name = f"vgpuctl {actor.command} {os.getpid()}" if actor.command else USUAL["application_name"]
    usual = {**USUAL, "application_name": name.encode("ascii", "replace").decode()[:_LONGEST_NAME]}
    parameters = {**usual, **address.parameters, "client_encoding": ENCODING}
    return Database(StoreKind.POSTGRESQL, lambda: connect(parameters), psycopg.Error)


def copy_in_memory(source: StoreConnection) -> sqlite3.Connection:
    """A copy of the store of a transaction, in a database of SQLite that ends with its connection.

    Without events and commits, which are most of the rows: a dry run adds to them and asks nothing of them.
    Raises DatabaseError, sqlite3.Error.
    """
    from sqlalchemy.dialects import sqlite as sqlite_dialect
    from sqlalchemy.schema import CreateIndex, CreateTable

    from vgpuctl.store.tables import complete_metadata

    made, dialect = sqlite.in_memory(), sqlite_dialect.dialect()
    for table in complete_metadata().sorted_tables:
        made.execute(str(CreateTable(table).compile(dialect=dialect)))
        for index in table.indexes:
            made.execute(str(CreateIndex(index).compile(dialect=dialect)))
        if table.name in _PAST:
            continue
        names = ", ".join(column.name for column in table.c)
        places = ", ".join("?" for _column in table.c)
        rows = [tuple(vars(row).values()) for row in source.run(f"SELECT {names} FROM {table.name}").rows]
        made.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({places})", rows)
    made.execute("PRAGMA foreign_keys = ON")
    return made


@dataclass(frozen=True)
class RoleRights:
    """The rights of a role. why_read_only: None when it can write."""

    why_read_only: str | None
    sees_every_row: bool


EVERY_RIGHT = RoleRights(None, sees_every_row=True)


def rights(connection: StoreConnection) -> RoleRights:
    """The rights of the role of a connection."""
    (found,) = connection.run(_RIGHTS).rows
    if found.sees_a_part:
        return RoleRights(f"the role {found.role} sees the rows of one tenant only", sees_every_row=False)
    if found.may_write:
        return EVERY_RIGHT
    reason = f"the role {found.role} may only read (the owner can change that with `vgpuctl grant-store`)"
    return RoleRights(reason, sees_every_row=True)


def refuse_to_migrate(connection: StoreConnection, *, store_name: str) -> None:
    """Raise StoreUnusable when there is an older store that the role of the connection does not own.

    The transaction may be aborted already, by the look for a version.
    """
    connection.rollback()
    for row in connection.run(_OWNER).rows:
        if row.is_owner:
            continue
        raise StoreUnusable(
            f"the store {store_name} is of an older vgpuctl, and the role {row.role} does not own it",
            hint=f"run any command once as its owner {row.owner}, which brings it up to date",
        )


def connect_failed(error: DatabaseError, address: PostgresqlAddress) -> StoreUnusable:
    """Say why no connection came about. The driver gives no code here, only the server's words."""
    said = str(error)
    if "password" in said or "authentication" in said:
        hint = "check user and password in the URL, PGPASSWORD or ~/.pgpass"
    elif "too many connections for role" in said:
        hint = "end other programs of this role; a tenant's role has few connections (docs/store.md)"
    elif "too many connections" in said or "too many clients" in said or "connection slots" in said:
        hint = "end programs that are connected, or raise the limit: SELECT * FROM pg_stat_activity"
    elif 'database "' in said and "does not exist" in said:
        hint = f"create it: createdb {address.parameters.get('dbname')}"
    elif 'role "' in said and "does not exist" in said:
        hint = "check the user in the URL"
    else:
        hint = "check that PostgreSQL runs there and that this machine may reach it: pg_isready -h HOST -p PORT"
    return StoreUnusable(f"no connection to the store {address.shown}: {said}", hint=hint)
