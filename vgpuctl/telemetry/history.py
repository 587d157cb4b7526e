# SPDX-License-Identifier: Apache-2.0
"""The kept history of readings: one SQLite file beside the store, in steps that get longer with age.

A sample is the number, mean, lowest and highest of the values of one step. Steps of a minute are kept for two days,
steps of an hour for ninety days. Only measures with `is_kept` come here. Times are seconds since the epoch, UTC.

One process or several write, others read meanwhile (SQLite's write-ahead log): a reader never waits for a writer.
"""

import math
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from vgpuctl.agent.wire import measures
from vgpuctl.agent.wire.labelled import OBJECT_LABELS
from vgpuctl.agent.wire.measures import Measure
from vgpuctl.errors import FileNotWritten, StoreUnusable
from vgpuctl.local_files import make_folder, make_private

MINUTE_S, HOUR_S = 60, 3600
KEPT_S = {MINUTE_S: 2 * 86_400, HOUR_S: 90 * 86_400}
_APPLICATION_ID = 0x76676873
"""In the file's header, so that another program's SQLite file is not written to."""
_LAYOUT = 1
_BUSY_S = 10.0
# AUTOINCREMENT: an id that another process has cached is never given to another object.
_TABLES = f"""
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_LAYOUT};
CREATE TABLE IF NOT EXISTS objects (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL, host TEXT NOT NULL, object TEXT NOT NULL, gpu TEXT NOT NULL,
    tenant TEXT NOT NULL, vm TEXT NOT NULL, profile TEXT NOT NULL,
    UNIQUE (kind, host, object, gpu, tenant, vm, profile)
);
CREATE TABLE IF NOT EXISTS samples (
    object INTEGER NOT NULL REFERENCES objects (id), measure TEXT NOT NULL, step INTEGER NOT NULL, at INTEGER NOT NULL,
    count INTEGER NOT NULL, mean REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL,
    minutes INTEGER NOT NULL,
    PRIMARY KEY (object, measure, step, at)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS samples_by_age ON samples (step, at);
"""
# The hour counts a minute before the minute itself is there.
_MERGE = f"""
INSERT INTO samples VALUES (
    :object, :measure, :step, :at, 1, :value, :value, :value,
    NOT EXISTS (SELECT 1 FROM samples
        WHERE object = :object AND measure = :measure AND step = {MINUTE_S} AND at = :minute)
)
ON CONFLICT (object, measure, step, at) DO UPDATE SET
    mean = (mean * count + excluded.mean) / (count + 1), count = count + 1,
    low = min(low, excluded.low), high = max(high, excluded.high), minutes = minutes + excluded.minutes
"""

_WHAT = "the history of readings"


@dataclass(frozen=True)
class Subject:
    """The measured object. kind: as in agent/wire/measures.py. tenant, vm, profile: empty where it has none.

    object: a GPU's UUID or address, a vGPU's device, a VM's UUID, nothing of a host; then the values of the measure's
    labels, in lines of their own (`part`).
    """

    kind: str
    host: str
    object: str
    gpu: str = ""
    tenant: str = ""
    vm: str = ""
    profile: str = ""

    def part(self, labels: Sequence[str]) -> "Subject":
        """The part of the object that the labels of a measure name, such as one pool of a host."""
        return replace(self, object="\n".join((self.object, *labels))) if labels else self

    @property
    def labels(self) -> tuple[str, ...]:
        """The values of the measure's labels."""
        return tuple(self.object.split("\n")[1:])


@dataclass(frozen=True)
class MeasuredValue:
    """One value of one measure of one subject."""

    subject: Subject
    measure: str
    value: float


@dataclass(frozen=True)
class Sample:
    """The values of one step that begins at `at`. minutes: how many minutes of the step have a value."""

    at: float
    count: int
    mean: float
    low: float
    high: float
    minutes: int = 1


LICENCE = "licence"
LICENCE_SEATS = Measure(
    LICENCE, "seats", "Seats of a licence pool.", ("pool", "edition", "state"), is_kept=True, source="store"
)
"""What the store tells and the history keeps: the state of the same metric."""


def require_filters(kind: str, where: Iterable[str]) -> None:
    """Raise TypeError for fields by which not every source of past readings can select subjects of a kind.

    A field of Subject is a filter if the metrics of the kind have it as a label. `object` is none: the history names
    GPUs and VMs by their UUIDs, and metrics name them by address, tenant and name.
    """
    known = set(Subject.__dataclass_fields__) & set(OBJECT_LABELS.get(kind, ()))
    if not set(where) <= known:
        raise TypeError(f"subjects of kind {kind} are selected by {sorted(known)}, not by {sorted(set(where) - known)}")


def kept_measure(kind: str, name: str) -> Measure:
    """A measure of a host or of the store. Raises KeyError."""
    return LICENCE_SEATS if (kind, name) == (LICENCE, LICENCE_SEATS.name) else measures.measure(kind, name)


class History:
    """One history file. Threads take turns."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open the file, made when it is missing. Raises StoreUnusable; also for a missing file when read_only."""
        self.path = path
        self._lock = threading.Lock()
        self._ids: dict[Subject, int] = {}
        try:
            self._db = self._open(read_only=read_only)
        except (sqlite3.Error, OSError, FileNotWritten) as error:
            raise self._unusable(error) from error

    def _open(self, *, read_only: bool) -> sqlite3.Connection:
        if not read_only:
            make_folder(self.path.absolute().parent, _WHAT)
            make_private(self.path, _WHAT)  # it has the names of all tenants; SQLite's own files get the same mode
            return self._connect("mode=rwc")
        try:
            return self._connect("mode=ro")
        except sqlite3.OperationalError:
            # Where nobody writes, a reader without rights on the folder cannot make the files that both would share.
            if not self.path.exists() or self.path.with_name(f"{self.path.name}-wal").exists():
                raise
            return self._connect("mode=ro&immutable=1")

    def _connect(self, query: str) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?{query}"
        database = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, check_same_thread=False)
        is_written = query == "mode=rwc"
        try:
            self._check(database, is_written=is_written)
            if is_written:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = NORMAL")
                database.execute("PRAGMA foreign_keys = ON")
                database.executescript(_TABLES)
        except BaseException:
            database.close()
            raise
        return database

    def _check(self, database: sqlite3.Connection, *, is_written: bool) -> None:
        """Refuse a file that is not a history, or of a layout that this program does not know."""
        (application_id,) = database.execute("PRAGMA application_id").fetchone()
        (layout,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (tables or not is_written) and application_id != _APPLICATION_ID:
            raise self._unusable("it is not a history of readings")
        if application_id == _APPLICATION_ID and layout != _LAYOUT:
            raise self._unusable(f"it has layout {layout}, and this vgpuctl knows layout {_LAYOUT}")

    def add(self, at: float, values: Iterable[MeasuredValue]) -> None:
        """Add values that were measured at a time, to the samples of their minute and hour. Raises StoreUnusable.

        A value that is not a finite number is left out.
        """
        finite = [one for one in values if math.isfinite(one.value)]
        with self._lock:
            try:
                try:
                    self._add(at, finite)
                except sqlite3.IntegrityError:
                    # Another process has pruned an object whose id was cached here.
                    self._ids.clear()
                    self._add(at, finite)
            except sqlite3.Error as error:
                self._ids.clear()
                raise self._unusable(error) from error

    def _add(self, at: float, values: Sequence[MeasuredValue]) -> None:
        minute = int(at // MINUTE_S * MINUTE_S)
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            rows = [
                {"object": self._id(one.subject), "measure": one.measure, "value": one.value, "minute": minute}
                for one in values
            ]
            for step in sorted(KEPT_S, reverse=True):
                begin = int(at // step * step)
                self._db.executemany(_MERGE, [{**row, "step": step, "at": begin} for row in rows])

    def series(
        self, kind: str, measure: str, *, since: float, until: float, step_s: int = MINUTE_S, **where: str
    ) -> dict[Subject, list[Sample]]:
        """The samples of one measure by subject, oldest first; steps without any value are not there.

        where: values that a subject must have, such as host= or vm= (require_filters). Raises StoreUnusable.
        """
        require_filters(kind, where)
        conditions = "".join(f" AND o.{name} = ?" for name in where)
        # CROSS JOIN: SQLite looks for the objects first, then for their samples by the primary key.
        query = (
            "SELECT o.kind, o.host, o.object, o.gpu, o.tenant, o.vm, o.profile,"
            " s.at, s.count, s.mean, s.low, s.high, s.minutes"
            " FROM objects o CROSS JOIN samples s ON s.object = o.id"
            f" WHERE o.kind = ? AND s.measure = ? AND s.step = ? AND s.at >= ? AND s.at < ?{conditions} ORDER BY s.at"
        )
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
        with self._lock:
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

    def _unusable(self, error: Exception | str) -> StoreUnusable:
        return StoreUnusable(
            f"the history of readings {self.path} cannot be used: {error}",
            hint="`vgpuctl serve exporter` writes it; name another file with --history",
        )
