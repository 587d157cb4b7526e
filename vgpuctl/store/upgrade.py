# SPDX-License-Identifier: Apache-2.0
"""The schema's version: read at each open, brought up to date when older, refused when newer.

A new store is made from the tables as they are. SQLAlchemy and alembic are imported only for that and for upgrades.
"""

import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpuctl.errors import StoreTooNew, StoreUnusable
from vgpuctl.model.backup import StoreKind
from vgpuctl.store import guards, postgresql, row_policies, sqlite, table_locks
from vgpuctl.store.database import Database, StoreConnection
from vgpuctl.store.failures import DatabaseError, translate
from vgpuctl.store.identity import INSTANCE
from vgpuctl.store.schema import SCHEMA_VERSION, VERSION_TABLE

if TYPE_CHECKING:
    import sqlalchemy
    from alembic.config import Config

_URLS = {
    StoreKind.SQLITE: ("sqlite://", sqlite.BEGIN_WRITING),
    StoreKind.POSTGRESQL: ("postgresql+psycopg://", postgresql.BEGIN_UPGRADING),
}
"""What SQLAlchemy takes the driver from, and how a transaction begins."""
_VERSION = re.compile("(?!0000)[0-9]{4}")
_READ_VERSION = f"SELECT version_num FROM {VERSION_TABLE}"


def is_current(connection: StoreConnection, *, store_name: str) -> bool:
    """True if the schema is the one of this vgpuctl; False when there is none yet or it is older. One query.

    The transaction may be aborted afterwards. Raises StoreTooNew, and StoreUnusable for a schema that is not vgpuctl's,
    for none or several versions.
    """
    try:
        versions = [row.version_num for row in connection.run(_READ_VERSION).rows]
    except DatabaseError as exc:
        if exc.code == "42P01" or "no such table" in str(exc):
            return False
        raise
    return not _is_older(versions, store_name=store_name)


def migrate(database: Database, *, store_name: str) -> None:
    """Make the store, or bring its schema up to date, in one transaction, which holds the writers' lock.

    Does nothing when another run did it meanwhile. Raises StoreUnusable.
    """
    from alembic import command
    from sqlalchemy import NullPool, create_engine, inspect
    from sqlalchemy.exc import DBAPIError

    url, begin = _URLS[database.kind]
    engine = create_engine(url, creator=database.open_driver, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(begin)
            is_there = inspect(connection).has_table(VERSION_TABLE)
            versions = connection.exec_driver_sql(_READ_VERSION).scalars().all() if is_there else ()
            if versions and not _is_older(versions, store_name=store_name):
                return
            driver = StoreConnection(connection.connection.driver_connection, database.kind, database.errors)
            if database.kind is StoreKind.POSTGRESQL:
                table_locks.take(driver, store_name=store_name)
            if not versions:  # as `is_current` has found; on PostgreSQL the lock has made the table
                _make(connection)
            else:
                command.upgrade(config(connection), "head")
            for statement in guards.statements(database.kind):
                driver.run(statement)
            if database.kind is StoreKind.POSTGRESQL:
                _make_policies(driver)
            connection.commit()
    except DatabaseError as exc:
        raise translate(exc, store_name=store_name) from exc
    except DBAPIError as exc:
        error = DatabaseError(exc.orig or exc, is_lost=exc.connection_invalidated)
        raise translate(error, store_name=store_name) from exc


def _make(connection: "sqlalchemy.Connection") -> None:
    """Make every table of a new store, and give it its name, by which processes that live on know it."""
    from alembic import command

    from vgpuctl.store.tables import complete_metadata

    tables = complete_metadata()
    tables.create_all(connection, checkfirst=False)  # a table of another program is no table of ours
    connection.execute(tables.tables["settings"].insert().values(name=INSTANCE, value=str(uuid.uuid4())))
    command.stamp(config(connection), "head")


def _make_policies(connection: StoreConnection) -> None:
    """Make PostgreSQL's policies of rows for this schema, and grant tenants' roles the tables that are new."""
    for statement in row_policies.policy_statements():
        connection.run(statement)
    for row in connection.run("SELECT role FROM role_tenants JOIN pg_roles ON rolname = role ORDER BY role").rows:
        for statement in row_policies.tenant_grants(row_policies.quoted(row.role)):
            connection.run(statement)


def refuse_stranger(connection: StoreConnection, *, store_name: str) -> None:
    """Raise StoreUnusable when an SQLite file is of another program. Nothing was written into it yet."""
    if connection.is_of_others(VERSION_TABLE):
        raise StoreUnusable(
            f"{store_name} is an SQLite database, but not one of vgpuctl",
            hint="give the path of a vgpuctl store, or of a file that does not exist yet",
        )


def config(connection: "sqlalchemy.Connection | None" = None) -> "Config":
    """alembic's configuration: the packaged migrations, on the caller's connection."""
    from alembic.config import Config

    made = Config()
    made.set_main_option("script_location", "vgpuctl.store:migrations")
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made


def _is_older(versions: Sequence[object], *, store_name: str) -> bool:
    if len(versions) != 1:
        found = f"{len(versions)} rows: {', '.join(map(repr, versions))}" if versions else "no row"
        raise StoreUnusable(
            f"the schema version of the store {store_name} cannot be told: its table {VERSION_TABLE} has {found}",
            hint="it must have one row, as vgpuctl wrote it: move the store away and restore a backup of it",
        )
    version = str(versions[0])
    if not _VERSION.fullmatch(version):
        raise StoreUnusable(
            f"the store {store_name} has schema version {version!r}, which is not one of vgpuctl's",
            hint="give another store",
        )
    if int(version) > int(SCHEMA_VERSION):
        raise StoreTooNew(
            f"the store {store_name} has schema version {version}, this vgpuctl knows up to {SCHEMA_VERSION}",
            hint="a newer vgpuctl has upgraded it: use that one here too",
        )
    return int(version) < int(SCHEMA_VERSION)
