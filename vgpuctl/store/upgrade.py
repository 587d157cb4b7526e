# SPDX-License-Identifier: Apache-2.0
"""The schema's version: read at each open, brought up to date when older, refused when newer.

alembic is imported only when there is something to migrate.
"""

import sqlite3
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DBAPIError

from vgpuctl.errors import StoreTooNew, StoreUnusable
from vgpuctl.store.sealed import NO_KEY, KeyFile
from vgpuctl.store.tables import SCHEMA_VERSION, VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

_READ_VERSION = f"SELECT version_num FROM {VERSION_TABLE}"


def is_current(connection: Connection, *, store_name: str) -> bool:
    """True if the schema is the one of this vgpuctl; False when there is none yet or it is older. One query.

    The transaction may be aborted afterwards. Raises StoreTooNew, and StoreUnusable for a schema that is not vgpuctl's.
    """
    try:
        version = connection.exec_driver_sql(_READ_VERSION).scalar()
    except DBAPIError as exc:
        if _is_missing_table(exc):
            return False
        raise
    return version is not None and not _is_older(str(version), store_name=store_name)


def migrate(connection: Connection, *, store_name: str, key_file: KeyFile = NO_KEY) -> None:
    """Bring the schema up to date, within the caller's transaction, which holds the writers' lock.

    Does nothing when another run did it meanwhile.
    """
    if inspect(connection).has_table(VERSION_TABLE) and is_current(connection, store_name=store_name):
        return
    from alembic import command

    command.upgrade(config(connection, key_file), "head")


def refuse_stranger(connection: Connection, *, store_name: str) -> None:
    """Raise StoreUnusable when an SQLite file holds tables, but not vgpuctl's. Nothing was written into it yet."""
    names = inspect(connection).get_table_names()
    if names and VERSION_TABLE not in names:
        raise StoreUnusable(
            f"{store_name} is an SQLite database, but not one of vgpuctl",
            hint="give the path of a vgpuctl store, or of a file that does not exist yet",
        )


def config(connection: Connection | None = None, key_file: KeyFile = NO_KEY) -> "Config":
    """alembic's configuration: the packaged migrations, on the caller's connection."""
    from alembic.config import Config

    made = Config()
    made.set_main_option("script_location", "vgpuctl.store:migrations")
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    made.attributes["key_file"] = key_file
    return made


def _is_older(version: str, *, store_name: str) -> bool:
    if not version.isdecimal():
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


def _is_missing_table(error: DBAPIError) -> bool:
    cause = error.orig
    if isinstance(cause, sqlite3.OperationalError):
        return "no such table" in str(cause)
    return getattr(cause, "sqlstate", None) == "42P01"
