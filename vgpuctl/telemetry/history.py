# SPDX-License-Identifier: Apache-2.0
"""The kept history of readings: one SQLite file beside the store, in steps that get longer with age.

A sample is the number, mean, lowest and highest of the values of one step. Steps of a minute are kept for two days,
steps of an hour for ninety days. Only measures with `is_kept` come here. Times are seconds since the epoch, UTC.
"""

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vgpuctl.errors import StoreUnusable

MINUTE_S, HOUR_S = 60, 3600
KEPT_S = {MINUTE_S: 2 * 86_400, HOUR_S: 90 * 86_400}
_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, host TEXT NOT NULL, object TEXT NOT NULL, gpu TEXT NOT NULL,
    tenant TEXT NOT NULL, vm TEXT NOT NULL, profile TEXT NOT NULL,
    UNIQUE (kind, host, object, gpu, tenant, vm, profile)
);
CREATE TABLE IF NOT EXISTS samples (
    object INTEGER NOT NULL REFERENCES objects (id), measure TEXT NOT NULL, step INTEGER NOT NULL, at INTEGER NOT NULL,
    count INTEGER NOT NULL, mean REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL,
    PRIMARY KEY (object, measure, step, at)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS samples_by_age ON samples (step, at);
"""
_MERGE = """
INSERT INTO samples VALUES (?, ?, ?, ?, 1, ?, ?, ?)
ON CONFLICT (object, measure, step, at) DO UPDATE SET
    mean = (mean * count + excluded.mean) / (count + 1), count = count + 1,
    low = min(low, excluded.low), high = max(high, excluded.high)
"""


@dataclass(frozen=True)
class Subject:
    """What was measured. kind: as in agent/wire/measures.py. object: a GPU's UUID or address, a vGPU's device, a VM's
    UUID. tenant, vm, profile: empty where it has none."""

    kind: str
    host: str
    object: str
    gpu: str = ""
    tenant: str = ""
    vm: str = ""
    profile: str = ""


@dataclass(frozen=True)
class MeasuredValue:
    """One value of one measure of one subject."""

    subject: Subject
    measure: str
    value: float


@dataclass(frozen=True)
class Sample:
    """The values of one step that begins at `at`."""

    at: float
    count: int
    mean: float
    low: float
    high: float


class History:
    """One history file. Threads take turns."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open the file, made when it is missing. Raises StoreUnusable; also for a missing file when read_only."""
        self.path = path
        self._lock = threading.Lock()
        self._ids: dict[Subject, int] = {}
        try:
            if read_only:
                self._db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, check_same_thread=False)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(path, check_same_thread=False)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from error

    def add(self, at: float, values: Iterable[MeasuredValue]) -> None:
        """Add values that were measured at a time, to the samples of their minute and hour. Raises StoreUnusable."""
        with self._lock:
            try:
                with self._db:
                    rows = [(self._id(one.subject), one.measure, one.value) for one in values]
                    for step in KEPT_S:
                        begin = int(at // step * step)
                        self._db.executemany(
                            _MERGE, [(number, name, step, begin, value, value, value) for number, name, value in rows]
                        )
            except sqlite3.Error as error:
                self._ids.clear()
                raise self._unusable(error) from error

    def series(
        self, kind: str, measure: str, *, since: float, until: float, step_s: int = MINUTE_S, **where: str
    ) -> dict[Subject, list[Sample]]:
        """The samples of one measure by subject, oldest first; steps without any value are not there.

        where: values of Subject's fields that a subject must have, such as host= or vm=. Raises StoreUnusable.
        """
        conditions = "".join(f" AND o.{name} = ?" for name in where)
        query = (
            "SELECT o.kind, o.host, o.object, o.gpu, o.tenant, o.vm, o.profile, s.at, s.count, s.mean, s.low, s.high"
            " FROM samples s JOIN objects o ON o.id = s.object"
            f" WHERE o.kind = ? AND s.measure = ? AND s.step = ? AND s.at >= ? AND s.at < ?{conditions} ORDER BY s.at"
        )
        if not set(where) <= set(Subject.__dataclass_fields__):
            raise TypeError(f"a subject has no {sorted(set(where) - set(Subject.__dataclass_fields__))}")
        found: dict[Subject, list[Sample]] = {}
        with self._lock:
            try:
                rows = self._db.execute(
                    query, (kind, measure, step_s, since // step_s * step_s, until, *where.values())
                ).fetchall()
            except sqlite3.Error as error:
                raise self._unusable(error) from error
        for row in rows:
            found.setdefault(Subject(*row[:7]), []).append(Sample(*row[7:]))
        return found

    def prune(self, now: float) -> None:
        """Delete samples beyond their age, and subjects without samples. Raises StoreUnusable."""
        with self._lock:
            try:
                with self._db:
                    for step, kept_s in KEPT_S.items():
                        self._db.execute("DELETE FROM samples WHERE step = ? AND at < ?", (step, now - kept_s))
                    self._db.execute("DELETE FROM objects WHERE id NOT IN (SELECT DISTINCT object FROM samples)")
                    self._ids.clear()
            except sqlite3.Error as error:
                raise self._unusable(error) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _id(self, subject: Subject) -> int:
        if subject not in self._ids:
            fields: Sequence[str] = (
                subject.kind,
                subject.host,
                subject.object,
                subject.gpu,
                subject.tenant,
                subject.vm,
                subject.profile,
            )
            self._db.execute("INSERT OR IGNORE INTO objects VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", fields)
            (self._ids[subject],) = self._db.execute(
                "SELECT id FROM objects WHERE (kind, host, object, gpu, tenant, vm, profile) = (?, ?, ?, ?, ?, ?, ?)",
                fields,
            ).fetchone()
        return self._ids[subject]

    def _unusable(self, error: Exception) -> StoreUnusable:
        return StoreUnusable(
            f"the history of readings {self.path} cannot be used: {error}",
            hint="`vgpuctl exporter` writes it; name another file with --history",
        )
