# SPDX-License-Identifier: Apache-2.0
"""The connections of a store by the driver alone, and statements on them: SQL text with values as `:name`.

SQLAlchemy, which makes and migrates the tables, takes longer to import than a command that reads the store may take.
"""

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from vgpuctl.model.backup import StoreKind
from vgpuctl.store.failures import DatabaseError, NoConnection

Row = SimpleNamespace
"""A row of an answer: its columns are attributes."""
_MOST_KEPT = 5
"""Connections that wait for their next use. A server has a limit for all of its clients."""
_PLACE = re.compile(r"'[^']*'|(?<![:\w]):(?P<name>[a-z]\w*)")
"""A literal, or the place of a value."""


class Answer(NamedTuple):
    """The answer to a statement: its rows, and how many rows it changed."""

    rows: list[Row]
    changed: int


@dataclass(frozen=True)
class Commit:
    """A transaction as the store knows it. id: counted from 1, without gaps. token: made at random.

    before: the token of the commit before it, where that is asked.
    """

    id: int
    token: str | None
    before: str | None = None


class StoreConnection:
    """A connection that is in a transaction. driver: the connection of sqlite3 or psycopg."""

    def __init__(self, driver: Any, kind: StoreKind, errors: type[Exception]) -> None:
        self.driver = driver
        self.kind = kind
        self._errors = errors
        self.commit_note: Commit | None = None

    def run(self, sql: str, /, **values: object) -> Answer:
        """Run one statement. A list as a value stands for a list in parentheses. Raises DatabaseError.

        A statement without values is handed over as it is, with any `:` and `%` in it.
        """
        placed = _placed(sql, values, self.kind) if values else (sql,)
        try:
            cursor = self.driver.execute(*placed)
            if cursor.description is None:
                return Answer([], cursor.rowcount)
            names = [column[0] for column in cursor.description]
            rows = [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in cursor]
            return Answer(rows, cursor.rowcount)
        except (self._errors, OverflowError) as exc:  # sqlite3's for a number of more than 64 bits
            raise self._failure(exc) from exc

    def value(self, sql: str, /, **values: object) -> Any:
        """The only value of a statement's only row, None without a row. Raises DatabaseError."""
        rows = self.run(sql, **values).rows
        return next(iter(vars(rows[0]).values())) if rows else None

    def table_names(self) -> list[str]:
        """The tables that one sees without naming a schema, of an SQLite file also views. Raises DatabaseError."""
        if self.kind is StoreKind.SQLITE:
            found = self.run("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'")
        else:
            found = self.run("SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()")
        return [row.name for row in found.rows]

    def is_of_others(self, own_table: str) -> bool:
        """True if another program keeps something here: there are tables without `own_table`, or the header of the
        SQLite file has numbers of its own (sqlite.org/fileformat.html, 1.3.13 and 1.3.14), which vgpuctl leaves at 0.
        Raises DatabaseError."""
        names = self.table_names()
        numbers = ("application_id", "user_version") if self.kind is StoreKind.SQLITE else ()
        return own_table not in names and (bool(names) or any(self.value(f"PRAGMA {one}") for one in numbers))

    def commit(self) -> None:
        """End the transaction. Raises DatabaseError."""
        try:
            self.driver.commit()
        except self._errors as exc:
            raise self._failure(exc) from exc

    def rollback(self) -> bool:
        """Undo what was not committed. Returns False when the connection is of no more use."""
        try:
            self.driver.rollback()
        except self._errors:
            return False
        return not self._is_lost()

    def _failure(self, error: Exception) -> DatabaseError:
        return DatabaseError(error, is_lost=self._is_lost())

    def _is_lost(self) -> bool:
        return self.kind is StoreKind.POSTGRESQL and self.driver.closed


class Database:
    """Opens connections and keeps those that were given back, for any thread.

    opens: opens a connection of the driver. errors: the driver's errors. keeps: False when each transaction needs a
    connection of its own.
    """

    def __init__(
        self, kind: StoreKind, opens: Callable[[], Any], errors: type[Exception] = sqlite3.Error, *, keeps: bool = True
    ) -> None:
        self.kind = kind
        self.open_driver = opens
        self.errors = errors
        self._keeps = keeps
        self._idle: list[StoreConnection] = []

    def begin(self, sql: str, /, **values: object) -> StoreConnection:
        """A connection after its first statement. One that was kept, and lost meanwhile, is replaced.

        Give it back to end its transaction. Raises NoConnection, DatabaseError.
        """
        while True:
            try:
                connection, is_new = self._idle.pop(), False
            except IndexError:
                connection, is_new = self._open(), True
            try:
                connection.run(sql, **values)
            except BaseException as exc:
                self.give_back(connection)
                if isinstance(exc, DatabaseError) and exc.is_lost and not is_new:
                    continue
                raise
            return connection

    @contextlib.contextmanager
    def transaction(self, sql: str) -> Iterator[StoreConnection]:
        """A connection after its first statement; what is not committed at the end of the block is undone."""
        connection = self.begin(sql)
        try:
            yield connection
        finally:
            self.give_back(connection)

    def give_back(self, connection: StoreConnection) -> None:
        """Undo what a connection has not committed, and keep it for the next transaction."""
        connection.commit_note = None
        if connection.rollback() and self._keeps and len(self._idle) < _MOST_KEPT:
            self._idle.append(connection)
        else:
            connection.driver.close()

    def close(self) -> None:
        """Close the connections that were given back."""
        while self._idle:
            self._idle.pop().driver.close()

    def _open(self) -> StoreConnection:
        try:
            return StoreConnection(self.open_driver(), self.kind, self.errors)
        except self.errors as exc:
            raise NoConnection(exc) from exc


def matching(equal: Mapping[str, object], prefix: str = "") -> str:
    """The condition that columns have such values: None for no value, a list for one of several.

    prefix: of the names of the values in the text.
    """
    return " AND ".join(_has(name, value, prefix) for name, value in equal.items()) or "true"


def given(**equal: object) -> dict[str, Any]:
    """The values that are not None: the filters that somebody asked for."""
    return {name: value for name, value in equal.items() if value is not None}


def insertion(table: str, names: Mapping[str, object]) -> str:
    """INSERT of one row with a value for each name."""
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"


def _has(name: str, value: object, prefix: str) -> str:
    if value is None:
        return f"{name} IS NULL"
    return f"{name} {'IN' if isinstance(value, list) else '='} :{prefix}{name}"


def _placed(sql: str, values: Mapping[str, object], kind: StoreKind) -> tuple[str, dict[str, object]]:
    """The statement as the driver takes it: a place for each value, and for each member of a list among them."""
    taken: dict[str, object] = {}

    def place(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in values:
            return found[0]
        value = values[name]
        several = {f"{name}_{number}": one for number, one in enumerate(value)} if isinstance(value, list) else None
        members = {name: value} if several is None else several
        taken.update(members)
        places = ", ".join(f":{one}" if kind is StoreKind.SQLITE else f"%({one})s" for one in members)
        return places if several is None else f"({places or 'NULL'})"

    return _PLACE.sub(place, sql if kind is StoreKind.SQLITE else sql.replace("%", "%%")), taken
