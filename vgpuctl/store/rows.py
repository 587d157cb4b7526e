# SPDX-License-Identifier: Apache-2.0
"""Common parts of the sessions of all subjects: running a statement, refusing writes, translating errors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable, Row, Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import SQLAlchemyError

from vgpuctl.errors import StateError
from vgpuctl.model.event import NOBODY, Actor
from vgpuctl.store.codec import FactsReader
from vgpuctl.store.failures import not_utf_8, translate
from vgpuctl.store.sealed import NO_KEY, KeyFile


class Rows:
    """One transaction on the store. Not for use by several threads at once."""

    def __init__(
        self,
        connection: Connection,
        *,
        store_name: str,
        clock: Callable[[], float],
        refusal: StateError | None,
        facts_reader: FactsReader,
        key_file: KeyFile = NO_KEY,
        actor: Actor = NOBODY,
    ) -> None:
        self._connection = connection
        self._store_name = store_name
        self._clock = clock
        self._refusal = refusal
        self._key_file = key_file
        self._actor = actor
        self._facts_reader = facts_reader
        self.failure: StateError | None = None
        self.has_written = False

    def now(self) -> float:
        """The store's time in seconds since the epoch, UTC."""
        return self._clock()

    def _read(self, statement: Executable) -> Sequence[Row[Any]]:
        return self._run(statement, conflict=None).all()

    def _write(self, statement: Executable, *, conflict: str | None = None) -> CursorResult[Any]:
        """Run a changing statement. conflict: what to say when a constraint refuses it."""
        if self._refusal is not None:
            raise self._refusal
        self.has_written = True
        return self._run(statement, conflict=conflict)

    def _insert_if_absent(self, table: Table, **values: object) -> bool:
        """Insert a row unless its primary key exists. Returns whether it was inserted."""
        statement = self._insert(table).values(**values).on_conflict_do_nothing()
        return self._write(statement.returning(*table.primary_key)).first() is not None

    def _put(self, table: Table, new: Mapping[str, object], **values: object) -> None:
        """Set values of a row, or insert it. new: its primary key, and values that only a new row gets."""
        statement = self._insert(table).values(**new, **values)
        self._write(statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=values))

    def _insert(self, table: Table) -> Any:
        """The database's own INSERT, which knows ON CONFLICT."""
        if self._connection.dialect.name == "postgresql":
            from sqlalchemy.dialects import postgresql  # slow to import, so only where it is used

            return postgresql.insert(table)
        return sqlite.insert(table)

    def _run(self, statement: Executable, *, conflict: str | None) -> CursorResult[Any]:
        if self.failure is not None:
            raise self.failure
        try:
            return self._connection.execute(statement)
        except SQLAlchemyError as exc:
            self.failure = translate(exc, store_name=self._store_name, conflict=conflict)
            raise self.failure from exc
        except UnicodeEncodeError as exc:
            raise not_utf_8(exc) from exc
