# SPDX-License-Identifier: Apache-2.0
"""Common parts of the sessions of all subjects: running a statement, refusing writes, translating errors."""

from collections.abc import Callable, Mapping

from vgpuctl.errors import StateError
from vgpuctl.model.event import NOBODY, Actor
from vgpuctl.store.codec import FactsReader
from vgpuctl.store.database import Answer, Row, StoreConnection, insertion, matching
from vgpuctl.store.failures import DatabaseError, not_utf_8, translate
from vgpuctl.store.sealed import NO_KEY, KeyFile


class Rows:
    """One transaction on the store. Not for use by several threads at once."""

    def __init__(
        self,
        connection: StoreConnection,
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

    def _read(self, sql: str, /, **values: object) -> list[Row]:
        """The rows of a query, with values for each `:name` in it."""
        return self._run(sql, values, conflict=None).rows

    def _find(self, table: str, /, *, order: str = "", **equal: object) -> list[Row]:
        """The rows of a table whose columns have such values: None for no value, a list for one of several."""
        return self._read(f"SELECT * FROM {table} WHERE {matching(equal)}{order and f' ORDER BY {order}'}", **equal)

    def _write(self, sql: str, /, *, conflict: str | None = None, **values: object) -> Answer:
        """Run a changing statement. conflict: what to say when a constraint refuses it."""
        return self._run_changing(sql, values, conflict=conflict)

    def _insert(self, table: str, /, *, conflict: str | None = None, **values: object) -> None:
        self._run_changing(insertion(table, values), values, conflict=conflict)

    def _insert_if_absent(self, table: str, /, **values: object) -> bool:
        """Insert a row unless its primary key exists. Returns whether it was inserted."""
        return self._run_changing(f"{insertion(table, values)} ON CONFLICT DO NOTHING", values).changed == 1

    def _put(
        self, table: str, key: Mapping[str, object], /, *, new: Mapping[str, object] | None = None, **values: object
    ) -> None:
        """Set values of a row, or insert it. key: its primary key. new: values that only a new row gets."""
        row = {**key, **(new or {}), **values}
        changes = ", ".join(f"{name} = excluded.{name}" for name in values)
        self._run_changing(f"{insertion(table, row)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}", row)

    def _update(
        self, table: str, equal: Mapping[str, object], /, *, conflict: str | None = None, **values: object
    ) -> int:
        """Set values of the rows whose columns have those of `equal`, as in `_find`. Returns how many there were."""
        _refuse_all_rows(table, equal)
        changes = ", ".join(f"{name} = :{name}" for name in values)
        sql = f"UPDATE {table} SET {changes} WHERE {matching(equal, 'old_')}"
        old = {f"old_{name}": value for name, value in equal.items()}
        return self._run_changing(sql, {**values, **old}, conflict=conflict).changed

    def _delete(self, table: str, /, **equal: object) -> int:
        """Delete the rows whose columns have such values, as in `_find`. Returns how many there were."""
        _refuse_all_rows(table, equal)
        return self._run_changing(f"DELETE FROM {table} WHERE {matching(equal)}", equal).changed

    def _run_changing(self, sql: str, values: Mapping[str, object], *, conflict: str | None = None) -> Answer:
        if self._refusal is not None:
            raise self._refusal
        answer = self._run(sql, values, conflict=conflict)
        self.has_written |= bool(answer.changed or answer.rows)
        return answer

    def _run(self, sql: str, values: Mapping[str, object], *, conflict: str | None) -> Answer:
        if self.failure is not None:
            raise self.failure
        try:
            return self._connection.run(sql, **values)
        except DatabaseError as exc:
            self.failure = translate(exc, store_name=self._store_name, conflict=conflict)
            raise self.failure from exc
        except UnicodeEncodeError as exc:
            raise not_utf_8(exc) from exc


def _refuse_all_rows(table: str, equal: Mapping[str, object]) -> None:
    """Raise ValueError where no column is named: filters that nobody gave must not mean every row."""
    if not equal:
        raise ValueError(f"a change of all rows of {table}")
