# SPDX-License-Identifier: Apache-2.0
"""Which configuration files of folders the user has allowed, as direnv and mise ask for theirs.

A folder may come from somebody else: a checkout, an unpacked archive, a share. What its file says can run programs and
send passwords, so entering the folder is no consent. An allowed file is remembered by its path and content, in the
user's data folder: one file for each path, so that a changed content is told from one that nobody has seen.
"""

import hashlib
from pathlib import Path

from vgpuctl.errors import FileNotTrusted
from vgpuctl.local_files import make_folder, replace_file, writing
from vgpuctl.trusted_files import FOUND, opened
from vgpuctl.user_folders import UserFolder

_WHAT = "the list of allowed files"
_LONGEST = 2**16


def refusal(path: str, content: bytes) -> str | None:
    """Why a file is not used; None for one that the user has allowed with this content. path: without links."""
    folder = _folder()
    known = None if folder is None else _read(_record(folder, path))
    if known == _text(path, content):
        return None
    return "it is not allowed yet" if known is None else "it has changed since it was allowed"


def allow(path: str, content: bytes) -> None:
    """Allow a file with this content. Raises UsageError for a user without a home, FileNotWritten."""
    folder = UserFolder.DATA.require(_WHAT) / "allowed"
    make_folder(folder, _WHAT, mode=0o700)
    replace_file(_record(folder, path), _text(path, content), _WHAT)


def forget(path: str, *, dry_run: bool) -> bool:
    """Allow a file no longer, whatever its content. Returns False if it was not allowed. Raises FileNotWritten."""
    folder = _folder()
    if folder is None or not _record(folder, path).exists():
        return False
    if not dry_run:
        with writing(_WHAT, _record(folder, path)):
            _record(folder, path).unlink(missing_ok=True)
    return True


def _folder() -> Path | None:
    data = UserFolder.DATA.find()
    return None if data is None else data / "allowed"


def _record(folder: Path, path: str) -> Path:
    return folder / hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()


def _text(path: str, content: bytes) -> bytes:
    return f"{hashlib.sha256(content).hexdigest()} {path}\n".encode(errors="surrogateescape")


def _read(record: Path) -> bytes | None:
    try:
        with opened(record, FOUND) as file:
            return file.read(_LONGEST)
    except (OSError, FileNotTrusted):
        return None
