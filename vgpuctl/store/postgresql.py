# SPDX-License-Identifier: Apache-2.0
"""A store in a PostgreSQL database, with the same manners as the SQLite file: one writer at a time, steady reads."""

from sqlalchemy import Engine, TextClause, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from vgpuctl.errors import StoreUnusable
from vgpuctl.store.address import PostgresqlAddress
from vgpuctl.store.failures import BUSY_TIMEOUT_S, answer

CONNECT_TIMEOUT_S = 10

WRITERS = 0x76677075  # "vgpu": the advisory lock of this database's writers
_IDLE_LIMIT_S = 60

# One round trip. A writer that vanished without a word (power, network) is ended by the server after _IDLE_LIMIT_S.
BEGIN_WRITING: TextClause = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :idle, true), "
    "set_config('lock_timeout', :lock, true), pg_advisory_xact_lock(:writers)"
).bindparams(idle=f"{_IDLE_LIMIT_S}s", lock=f"{BUSY_TIMEOUT_S}s", writers=WRITERS)

BEGIN_READING = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


def open_engine(address: PostgresqlAddress) -> Engine:
    """Build the engine. Nothing is connected yet."""
    url = address.url
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(CONNECT_TIMEOUT_S)})
    if "application_name" not in url.query:
        url = url.update_query_dict({"application_name": "vgpuctl"})
    return create_engine(url, pool_pre_ping=True, max_overflow=-1)


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
