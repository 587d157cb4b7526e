# SPDX-License-Identifier: Apache-2.0
"""A user's table of measured throughput, as CSV or YAML (docs/placement.md)."""

import csv
import functools
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.catalog import profile_name
from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.vm import parse_workload
from vgpuctl.scheduler.performance.measurement import UNLABELLED, Measurement
from vgpuctl.specs.bounded_reader import shown_name
from vgpuctl.specs.document import YamlDocument, decode, read_document
from vgpuctl.specs.keys import suggest_key
from vgpuctl.specs.origin import read_bytes
from vgpuctl.trusted_files import NAMED

COLUMNS = ("vm", "isolation", "workload", "profile", "neighbours", "throughput")
ISOLATIONS = ("best-effort", "equal-share", "fixed-share", "mig")
_REQUIRED = ("workload", "profile", "throughput")
_MOST_ROWS, _MOST_NEIGHBOURS = 100_000, 63
_COUNTED = re.compile(r"(?:(?P<times>[1-9][0-9]?)\*)?(?P<name>\S+)")
_PROFILE = re.compile(r"[!-~]{1,64}")
_HINT = f"columns: {', '.join(COLUMNS)}; neighbours as in '2*training vdi'"


def read_performance_table(path: Path) -> list[Measurement]:
    """Read a table: CSV with a header line, else YAML with a list of mappings. Raises UsageError with the line."""
    rows = list(_yaml_rows(path) if path.suffix in (".yml", ".yaml", ".json") else _csv_rows(path))
    if not rows:
        raise UsageError(f"{shown_name(path)} has no measurements", hint=_HINT)
    if len(rows) > _MOST_ROWS:
        raise UsageError(f"{path} has more than {_MOST_ROWS} measurements", hint="give a part of them")
    return [_measurement(row, number) for number, row in enumerate(rows)]


@dataclass(frozen=True)
class _WrittenRow:
    """One measurement as it is written. where: the place of a column, or of the whole with None."""

    values: Mapping[str, str]
    where: Callable[[str | None], str]


def _csv_rows(path: Path) -> Iterator[_WrittenRow]:
    try:
        text = decode(str(path), read_bytes(str(path), NAMED))
    except InventoryError as error:
        raise UsageError(error.message, hint=error.hint or "use a CSV or YAML file in UTF-8") from error
    lines = csv.reader(io.StringIO("\n".join("" if line.startswith("#") else line for line in text.splitlines())))
    header: list[str] | None = None
    try:
        for values in lines:
            if not values:
                continue
            where = f"{path}:{lines.line_num}"
            if header is None:
                header = [one.strip() for one in values]
                _check_keys(header, functools.partial(_line, where))
            elif len(values) != len(header):
                raise UsageError(f"{where}: {len(values)} values for {len(header)} columns", hint=_HINT)
            else:
                row = dict(zip(header, (one.strip() for one in values), strict=True))
                yield _WrittenRow(row, functools.partial(_line, where))
    except csv.Error as error:
        raise UsageError(f"{path}:{lines.line_num}: {error}", hint=_HINT) from error


def _line(where: str, _column: str | None) -> str:
    return where


def _yaml_rows(path: Path) -> Iterator[_WrittenRow]:
    try:
        document = read_document(str(path), NAMED)
    except InventoryError as error:
        raise UsageError(error.message, hint=error.hint) from error
    if not isinstance(document.data, list):
        raise UsageError(f"{document.origin()}: the file is no list of measurements", hint=_HINT)
    for number, row in enumerate(document.data):
        where = functools.partial(_place, document, number)
        if not isinstance(row, dict) or not all(isinstance(key, str) for key in row):
            raise UsageError(f"{where(None)}: a measurement is a mapping", hint=_HINT)
        _check_keys(list(row), where)
        yield _WrittenRow({key: _text(value) for key, value in row.items()}, where)


def _place(document: YamlDocument, number: int, column: str | None) -> str:
    return str(document.origin(number) if column is None else document.origin(number, column))


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _check_keys(keys: list[str], where: Callable[[str | None], str]) -> None:
    unknown = [one for one in keys if one not in COLUMNS]
    missing = [one for one in _REQUIRED if one not in keys]
    if unknown:
        meant = suggest_key(unknown[0], COLUMNS)
        hint = f"did you mean {meant}?" if meant else _HINT
        raise UsageError(f"{where(unknown[0])}: {unknown[0]!a} is no column", hint=hint)
    if len(set(keys)) < len(keys):
        raise UsageError(f"{where(None)}: a column is there twice", hint=_HINT)
    if missing:
        raise UsageError(f"{where(None)}: {', '.join(missing)} is missing", hint=_HINT)


def _measurement(row: _WrittenRow, number: int) -> Measurement:
    values, where = row.values, row.where
    isolation = values.get("isolation") or ISOLATIONS[0]
    if isolation not in ISOLATIONS:
        raise UsageError(
            f"{where('isolation')}: {isolation[:40]!a} is no isolation", hint=f"use {', '.join(ISOLATIONS)}"
        )
    profile = profile_name(values["profile"].partition(":")[0]).name
    if _PROFILE.fullmatch(profile) is None:
        raise UsageError(f"{where('profile')}: {profile[:40]!a} is no profile", hint="write a vGPU type such as A40-8Q")
    vm = (values.get("vm") or f"row {number + 1}")[:200]
    neighbours = tuple(sorted(_neighbours(values.get("neighbours", ""), where("neighbours"))))
    workload = _workload(values["workload"], where("workload"))
    return Measurement(
        vm, isolation, workload, profile, neighbours, _throughput(values["throughput"], where("throughput"))
    )


def _workload(text: str, where: str) -> str:
    return parse_workload(text, what=f"{where}: workload") if text else UNLABELLED


def _neighbours(text: str, where: str) -> Iterator[str]:
    left = _MOST_NEIGHBOURS
    for word in text.replace(";", " ").split():
        found = _COUNTED.fullmatch(word)
        assert found is not None
        times = int(found["times"] or 1)
        left -= times
        if left < 0:
            raise UsageError(f"{where}: more than {_MOST_NEIGHBOURS} neighbours", hint=_HINT)
        yield from [_workload(found["name"], where)] * times


def _throughput(text: str, where: str) -> float:
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not 0.001 <= value <= 10:
        raise UsageError(
            f"{where}: {text[:40]!a} is no throughput",
            hint="write the work per second against the same VM alone, such as 0.6",
        )
    return value
