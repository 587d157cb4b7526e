# SPDX-License-Identifier: Apache-2.0
"""export monitoring: rules, dashboards and example configurations as files, kept up to date by the same command."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from vgpuctl import typed_json
from vgpuctl.errors import StateError, UsageError
from vgpuctl.local_files import make_folder, write_file, writing
from vgpuctl.specs.bounded_reader import Malformed, read_bounded
from vgpuctl.telemetry.shipped_files import Addresses, shipped_files
from vgpuctl.trusted_files import NAMED

RECORD = ".vgpuctl-monitoring.json"
"""SHA-256 of each file as it was written, by its path: what differs was changed by somebody else."""
_WHAT = "the monitoring files"
_LARGEST = 4 << 20


class FileOutcome(StrEnum):
    """The outcome of export monitoring for one file."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    OVERWRITTEN = "overwritten"
    REMOVED = "removed"


@dataclass(frozen=True)
class ExportedFile:
    """One file, by its path below the folder."""

    path: str
    outcome: FileOutcome


def export_monitoring(
    folder: Path, addresses: Addresses, *, overwrite: bool = False, dry_run: bool = False
) -> Sequence[ExportedFile]:
    """Bring the folder to the files of this version. Files that it does not know are left alone.

    overwrite: also replace files that were changed since they were written. Raises StateError for such a file
    otherwise, before anything is written; UsageError and FileNotWritten for a folder that cannot be read or written.
    """
    wanted = shipped_files(addresses)
    known = _known(folder)
    found = {path: _sum_of(folder / path) for path in {*wanted, *known}}
    changed = [path for path, now in found.items() if now is not None and now != known.get(path)]
    by_hand = sorted(path for path in changed if path not in wanted or found[path] != _sum(wanted[path]))
    if by_hand and not overwrite:
        raise StateError(
            f"{len(by_hand)} files in {folder} are not as vgpuctl wrote them",
            context=by_hand,
            hint="keep your changes under other names, or replace the files with --overwrite",
        )
    done = [_outcome(path, wanted.get(path), found[path], is_by_hand=path in by_hand) for path in sorted(found)]
    if not dry_run:
        _write(folder, wanted, known, done)
    return [one for one in done if one is not None]


def _outcome(path: str, text: str | None, found: str | None, *, is_by_hand: bool) -> ExportedFile | None:
    if text is None:
        return None if found is None else ExportedFile(path, FileOutcome.REMOVED)
    if found == _sum(text):
        return ExportedFile(path, FileOutcome.UNCHANGED)
    if found is None:
        return ExportedFile(path, FileOutcome.ADDED)
    return ExportedFile(path, FileOutcome.OVERWRITTEN if is_by_hand else FileOutcome.UPDATED)


def _write(
    folder: Path, wanted: Mapping[str, str], known: Mapping[str, str], done: Sequence[ExportedFile | None]
) -> None:
    """Write what differs. The record is written first, so that an interrupted run's files are not taken for others'."""
    sums = {path: _sum(text) for path, text in wanted.items()}
    make_folder(folder, _WHAT)
    if sums != known:
        write_file(folder / RECORD, json.dumps(sums, indent=2, sort_keys=True) + "\n", _WHAT)
    for one in done:
        if one is None or one.outcome is FileOutcome.UNCHANGED:
            continue
        path = folder / one.path
        if one.outcome is FileOutcome.REMOVED:
            with writing(_WHAT, path):
                path.unlink(missing_ok=True)
        else:
            make_folder(path.parent, _WHAT)
            write_file(path, wanted[one.path], _WHAT)


def _known(folder: Path) -> dict[str, str]:
    text = _read(folder / RECORD)
    if text is None:
        return {}
    try:
        known: dict[str, str] = typed_json.decode(text.decode(), dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise UsageError(
            f"{folder / RECORD} is not the record of export monitoring: {exc}",
            hint="remove it; files that differ then need --overwrite",
        ) from exc
    # A path that leads out of the folder is not one that vgpuctl wrote.
    return {path: one for path, one in known.items() if not {"..", ""} & set(path.split("/"))}


def _sum_of(path: Path) -> str | None:
    data = _read(path)
    return None if data is None else hashlib.sha256(data).hexdigest()


def _read(path: Path) -> bytes | None:
    """A file's content, None without the file. Raises UsageError for another kind of file, or an unreadable one."""
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} is no file of export monitoring", hint="choose another folder")
        return read_bounded(path, NAMED)
    except Malformed as exc:
        raise UsageError(f"{path} cannot be read: {exc}") from exc
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}") from exc


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
