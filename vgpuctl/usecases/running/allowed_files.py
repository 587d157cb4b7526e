# SPDX-License-Identifier: Apache-2.0
"""Configuration files in folders that the user has allowed, as with direnv and mise.

A folder may come from somebody else: a checkout, an unpacked archive, a share. Its file can run programs and
send passwords, so the user must agree to it; entering the folder is not enough. An allowed file is remembered by its
path, by the target of that path and by its content, in the user's data folder. There is one record for each path, so
that a changed file is told from a new one.
"""

import hashlib
from pathlib import Path

from vgpuctl.errors import FileNotTrusted
from vgpuctl.local_files import make_folder, replace_file, writing
from vgpuctl.model.configuration import ProjectFile
from vgpuctl.trusted_files import FOUND, opened
from vgpuctl.user_folders import UserFolder

_WHAT = "the list of allowed files"
_LONGEST = 2**16


def refusal(project: ProjectFile) -> str | None:
    """Why a file is not used; None for one that the user has allowed with this content, and where it leads to."""
    folder = _folder()
    known = None if folder is None else _read(_record(folder, project.entry))
    if known == _text(project):
        return None
    return "it is not allowed yet" if known is None else "it has changed since it was allowed"


def allow(project: ProjectFile) -> None:
    """Allow a file with this content. Raises UsageError for a user without a home, FileNotWritten."""
    folder = UserFolder.DATA.require(_WHAT) / "allowed"
    make_folder(folder, _WHAT, mode=0o700)
    replace_file(_record(folder, project.entry), _text(project), _WHAT)


def forget(entry: str, *, dry_run: bool) -> bool:
    """Allow a file no longer, whatever its content. Returns False if it was not allowed. Raises FileNotWritten."""
    folder = _folder()
    if folder is None or not _record(folder, entry).exists():
        return False
    if not dry_run:
        with writing(_WHAT, _record(folder, entry)):
            _record(folder, entry).unlink(missing_ok=True)
    return True


def _folder() -> Path | None:
    data = UserFolder.DATA.find()
    return None if data is None else data / "allowed"


def _record(folder: Path, entry: str) -> Path:
    return folder / hashlib.sha256(entry.encode(errors="surrogateescape")).hexdigest()


def _text(project: ProjectFile) -> bytes:
    return f"{hashlib.sha256(project.content).hexdigest()} {project.path}\n".encode(errors="surrogateescape")


def _read(record: Path) -> bytes | None:
    try:
        with opened(record, FOUND) as file:
            return file.read(_LONGEST)
    except (OSError, FileNotTrusted):
        return None
