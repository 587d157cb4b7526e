# SPDX-License-Identifier: Apache-2.0
"""A store in a PostgreSQL database, with the same manners as the SQLite file: one writer at a time, steady reads."""

import uuid
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, TextClause, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from vgpuctl.errors import StoreUnusable
from vgpuctl.store.address import PostgresqlAddress
from vgpuctl.store.failures import BUSY_TIMEOUT_S, answer
from vgpuctl.store.tables import VERSION_TABLE

CONNECT_TIMEOUT_S = 10

WRITERS = 0x76677075  # "vgpu": the advisory lock of this database's writers
_IDLE_LIMIT_S = 60

# One round trip. A writer that vanished without a word (power, network) is ended by the server after _IDLE_LIMIT_S.
BEGIN_WRITING: TextClause = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :idle, true), "
    "set_config('lock_timeout', :lock, true), pg_advisory_xact_lock(:writers)"
).bindparams(idle=f"{_IDLE_LIMIT_S}s", lock=f"{BUSY_TIMEOUT_S}s", writers=WRITERS)

# The rights of the role: to write, and to see the rows of all tenants or of one (vgpuctl.store.database_roles).
_RIGHTS: TextClause = text(
    "SELECT current_user, has_table_privilege('vms', 'INSERT'), row_security_active('vms') AND EXISTS ("
    "SELECT FROM pg_policy p, unnest(p.polroles) AS member WHERE p.polrelid = 'vms'::regclass "
    "AND NOT p.polpermissive AND member <> 0 AND pg_has_role(member, 'USAGE'))"
)
_OWNER: TextClause = text(
    "SELECT current_user AS role, pg_get_userbyid(relowner) AS owner, pg_has_role(relowner, 'USAGE') AS is_owner "
    "FROM pg_class WHERE oid = to_regclass(:table)"
).bindparams(table=VERSION_TABLE)

BEGIN_READING = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


RECENT_COMMITS = "recent-commits"
_KEPT_COMMITS = 64
_TOKEN_CHARACTERS = 33  # 32 hexadecimal digits and a blank

# In the transaction that it names: a client that loses its connection at the commit finds out by it what became of it.
_NOTE_COMMIT = text(
    "INSERT INTO settings (name, value) VALUES (:name, :token) "
    "ON CONFLICT (name) DO UPDATE SET value = left(excluded.value || settings.value, :most) RETURNING value"
).bindparams(name=RECENT_COMMITS, most=_KEPT_COMMITS * _TOKEN_CHARACTERS)
_READ_COMMITS = text("SELECT pg_is_in_recovery(), (SELECT value FROM settings WHERE name = :name)").bindparams(
    name=RECENT_COMMITS
)


@dataclass(frozen=True)
class Commit:
    """A transaction about to be committed. token: its name in the store; before: that of the last commit before it."""

    token: str
    before: str | None


def note_commit(connection: Connection) -> Commit:
    """Name the transaction in the store, just before its commit."""
    token = uuid.uuid4().hex
    value: str = connection.execute(_NOTE_COMMIT.bindparams(token=f"{token} ")).scalar_one()
    return Commit(token, next(iter(value.split()[1:]), None))


def was_committed(engine: Engine, commit: Commit) -> bool | None:
    """True if a transaction was committed, as the server that takes writes now knows it; False if it was not.

    The writers' lock is taken first, so that the transaction is over. None while a standby answers, and when so many
    commits followed that the list no longer says. Raises SQLAlchemyError.
    """
    with engine.connect() as connection:
        connection.execute(BEGIN_WRITING)
        is_standby, value = connection.execute(_READ_COMMITS).one()
    if is_standby:
        return None
    tokens = (value or "").split()
    if commit.token in tokens:
        return True
    return False if commit.before in (*tokens, None) else None


def open_engine(address: PostgresqlAddress) -> Engine:
    """Build the engine. Nothing is connected yet."""
    url = address.url
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(CONNECT_TIMEOUT_S)})
    if "application_name" not in url.query:
        url = url.update_query_dict({"application_name": "vgpuctl"})
    return create_engine(url, pool_pre_ping=True, max_overflow=-1)


def why_read_only(connection: Connection) -> str | None:
    """Why the role of a connection can only read the store, None when it can write."""
    role, may_write, sees_a_part = connection.execute(_RIGHTS).one()
    if sees_a_part:
        return f"the role {role} sees the rows of one tenant only"
    return (
        None if may_write else f"the role {role} may only read (the owner can change that with `vgpuctl grant-store`)"
    )


def refuse_to_migrate(connection: Connection, *, store_name: str) -> None:
    """Raise StoreUnusable when there is an older store that the role of the connection does not own.

    The transaction may be aborted already, by the look for a version.
    """
    connection.rollback()
    row = connection.execute(_OWNER).first()
    if row is not None and not row.is_owner:
        raise StoreUnusable(
            f"the store {store_name} is of an older vgpuctl, and the role {row.role} does not own it",
            hint=f"run any command once as its owner {row.owner}, which brings it up to date",
        )


def has_several_hosts(engine: Engine) -> bool:
    """True if the URL names several servers, of which one is the primary."""
    return engine.dialect.name == "postgresql" and isinstance(engine.url.query.get("host"), tuple)


def connect_failed(error: SQLAlchemyError, address: PostgresqlAddress) -> StoreUnusable:
    """Say why no connection came about. The driver gives no code here, only the server's words."""
    said = answer(error)
    if "password" in said or "authentication" in said:
        hint = "check user and password in the URL, PGPASSWORD or ~/.pgpass"
    elif 'database "' in said and "does not exist" in said:
        hint = f"create it: createdb {address.url.database}"
    elif 'role "' in said and "does not exist" in said:
        hint = "check the user in the URL"
    else:
        hint = "check that PostgreSQL runs there and that this machine may reach it: pg_isready -h HOST -p PORT"
    return StoreUnusable(f"no connection to the store {address.shown}: {said}", hint=hint)
