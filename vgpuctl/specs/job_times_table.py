# SPDX-License-Identifier: Apache-2.0
"""A user's table of job sizes and seconds on each card, as CSV (docs/placement.md).

It has a column for each card, or a row for each job with the columns `card` and `seconds`.
"""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from vgpuctl import catalog
from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.vm import parse_workload
from vgpuctl.scheduler.performance.job_times import FEWEST_OF_BOARD, TimedJob
from vgpuctl.scheduler.performance.measurement import UNLABELLED
from vgpuctl.specs.bounded_reader import shown_name
from vgpuctl.specs.document import decode
from vgpuctl.specs.origin import read_bytes
from vgpuctl.trusted_files import NAMED

_WORKLOAD, _SIZE, _CARD, _SECONDS = "workload", "size", "card", "seconds"
_MOST_ROWS, _MOST_BOARDS, _MOST_CELLS = 20_000, 24, 20_000
_LEAST, _MOST = 1e-9, 1e12
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?|\.[0-9]+([eE][-+]?[0-9]{1,3})?")
_HINT = "columns: size and one for each card, such as size,T4,A40; or size,card,seconds; workload may be added"


def read_job_times_table(path: Path, *, workload: str | None = None) -> list[TimedJob]:
    """Read a table in CSV with a header line. workload: the class of rows that name none.

    Raises UsageError with the line: for text that is not a number, for numbers that cannot be a time or size, for cards
    that the catalogue does not have, and for a table from which nothing can be predicted.
    """
    usual = UNLABELLED if workload is None else parse_workload(workload, what="--workload")
    try:
        text = decode(str(path), read_bytes(str(path), NAMED))
    except InventoryError as error:
        raise UsageError(error.message, hint=error.hint or "use a CSV file in UTF-8") from error
    found = list(_jobs(path, text, usual))
    if len(found) > _MOST_CELLS:
        raise UsageError(f"{shown_name(path)} has more than {_MOST_CELLS} times", hint="give a part of them")
    _require_enough(path, found)
    return found


def _jobs(path: Path, text: str, usual: str) -> Iterator[TimedJob]:
    lines = csv.reader(io.StringIO("\n".join("" if line.startswith("#") else line for line in text.splitlines())))
    header: list[str] | None = None
    boards: dict[str, str] = {}
    rows = 0
    try:
        for values in lines:
            if not values or not any(one.strip() for one in values):
                continue
            where = f"{path}:{lines.line_num}"
            if header is None:
                header = [one.strip() for one in values]
                boards = _boards_of(header, where)
                continue
            rows += 1
            if rows > _MOST_ROWS:
                raise UsageError(f"{shown_name(path)} has more than {_MOST_ROWS} rows", hint="give a part of them")
            if len(values) != len(header):
                raise UsageError(f"{where}: {len(values)} values for {len(header)} columns", hint=_HINT)
            yield from _of_row(dict(zip(header, (one.strip() for one in values), strict=True)), boards, where, usual)
    except csv.Error as error:
        raise UsageError(f"{path}:{lines.line_num}: {error}", hint=_HINT) from error


def _boards_of(header: list[str], where: str) -> dict[str, str]:
    """The boards by column, of a table with a column for each card; none of one with a row for each job."""
    if len(set(header)) < len(header):
        raise UsageError(f"{where}: a column is there twice", hint=_HINT)
    if _SECONDS in header:
        unknown = [one for one in header if one not in (_WORKLOAD, _SIZE, _CARD, _SECONDS)]
        if unknown:
            raise UsageError(f"{where}: {unknown[0][:40]!a} is no column", hint=_HINT)
        if _CARD not in header:
            raise UsageError(f"{where}: {_CARD} is missing", hint=_HINT)
        return {}
    found = {one: _board(one, where) for one in header if one not in (_WORKLOAD, _SIZE)}
    if not found:
        raise UsageError(f"{where}: no column has the seconds of a card", hint=_HINT)
    if len(set(found.values())) < len(found):
        raise UsageError(f"{where}: two columns are of one card", hint=_HINT)
    if len(found) > _MOST_BOARDS:
        raise UsageError(f"{where}: more than {_MOST_BOARDS} cards", hint="give a part of them")
    return found


def _of_row(row: dict[str, str], boards: dict[str, str], where: str, usual: str) -> Iterator[TimedJob]:
    named = row.get(_WORKLOAD)
    workload = parse_workload(named, what=f"{where}: workload") if named else usual
    size = _number(row[_SIZE], where, "size", "one side of the matrix, such as 4096") if _SIZE in row else None
    if not boards:
        yield TimedJob(workload, _board(row[_CARD], where), size, _seconds(row[_SECONDS], where))
    for column, board in boards.items():
        if row[column]:  # a job that a card was not given, such as one that does not fit into its memory
            yield TimedJob(workload, board, size, _seconds(row[column], f"{where}: {column}"))


def _seconds(text: str, where: str) -> float:
    return _number(text, where, "time", "seconds without a unit, such as 0.35")


def _number(text: str, where: str, what: str, right: str) -> float:
    """A plain number above 0: `nan`, `inf`, `1_000`, `-1`, `0`, `350ms` and digits of other scripts are none."""
    value = float(text) if len(text) <= 40 and text.isascii() and _NUMBER.fullmatch(text) else math.nan
    if not _LEAST <= value <= _MOST:
        raise UsageError(f"{where}: {text[:40]!a} is no {what}", hint=f"write {right}")
    return value


def _board(text: str, where: str) -> str:
    found = catalog.boards_named(text) if text else ()
    if len(found) == 1:
        return found[0].key
    if not found:
        raise UsageError(f"{where}: no card is named {text[:40]!a}", hint="write its name without a unit, such as A40")
    names = ", ".join(one.key for one in found[:4])
    raise UsageError(f"{where}: {text[:40]!a} is more than one model", hint=f"write one of {names}")


def _require_enough(path: Path, found: list[TimedJob]) -> None:
    """Refuse a table from which nothing can be predicted."""
    if not found:
        raise UsageError(f"{shown_name(path)} has no times", hint=_HINT)
    counts = Counter((one.workload, one.board) for one in found)
    if max(counts.values()) < FEWEST_OF_BOARD:
        raise UsageError(
            f"{shown_name(path)} has at most {max(counts.values())} times of a card, {FEWEST_OF_BOARD} are needed",
            hint="time other sizes, or the same one again: without that nobody knows how much a time varies",
        )
