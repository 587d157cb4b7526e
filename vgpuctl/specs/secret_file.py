# SPDX-License-Identifier: Apache-2.0
"""Secrets that a tenant's file names by path: read beside or below that file, or in folders the operator allowed."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from vgpuctl.errors import UsageError
from vgpuctl.specs.bounded_reader import STDIN
from vgpuctl.trusted_files import NAMED, Trust, judge, opened

_MOST_BYTES = 1 << 20
_HIDDEN_HINT = "hidden files are read only in folders that the operator allows: --secrets-from DIR"


class SecretFiles:
    """The secrets that one tenant's file may name.

    file: the tenant's file, of which `-` is standard input; relative paths start at its folder, and its owner may own
    secrets too. allowed: further folders of the operator. Raises FileNotTrusted.
    """

    def __init__(self, file: Path, allowed: Sequence[Path] = ()) -> None:
        self._beside = file.resolve().parent
        self._trust = Trust(takes_owner=False, is_secret=True, users=_owners(file))
        self._allowed = [folder.resolve() for folder in allowed]

    def read(self, name: str) -> bytes:
        """Read one secret.

        Symbolic links are followed, and the file that was opened must lie in an allowed folder. Raises FileNotTrusted
        for a file that others can read, UsageError for a file elsewhere, no regular file, or one larger than 1 MiB.
        The content is never shown.
        """
        if "\0" in name or ".." in Path(name).parts:
            raise UsageError(f"the secret {name!a} cannot be named so", hint="give a path without `..`")
        # A file elsewhere is not opened. The second check finds one that was exchanged in between.
        self._check_place((self._beside / name).resolve(), name)
        try:
            with opened(self._beside / name, self._trust) as judged:
                self._check_place(Path(judged.path), name)
                _check_status(name, os.fstat(judged.descriptor))
                content = judged.read(_MOST_BYTES + 1)
        except OSError as error:
            raise UsageError(f"the secret {name} cannot be read: {error.strerror}") from error
        if len(content) > _MOST_BYTES:
            raise UsageError(f"the secret {name} is larger than 1 MiB")
        return content

    def _check_place(self, real: Path, name: str) -> None:
        if any(real.is_relative_to(folder) for folder in self._allowed):
            return
        if not real.is_relative_to(self._beside):
            raise UsageError(
                f"the secret {name} lies neither beside the tenant's file nor below its folder {self._beside}",
                hint="move it there, or allow its folder with --secrets-from DIR",
            )
        if any(part.startswith(".") for part in real.relative_to(self._beside).parts):
            raise UsageError(f"the secret {name} is hidden", hint=_HIDDEN_HINT)


def read_secret(path: str) -> str:
    """The text of a secret that the operator names on the command line. Raises UsageError, FileNotTrusted."""
    try:
        return SecretFiles(Path(path)).read(Path(path).name).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the secret {path} is no text in UTF-8") from error


def _owners(file: Path) -> frozenset[int]:
    """The users whose secrets a file may name; none for standard input and for what is not there."""
    try:
        return frozenset() if str(file) == STDIN else judge(file, NAMED)
    except OSError:
        return frozenset()


def _check_status(name: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"the secret {name} is no regular file")
    if status.st_nlink > 1:
        # A tenant who may write the folder can link a file of the operator into it.
        raise UsageError(
            f"the secret {name} has {status.st_nlink} names (hard links)", hint="copy it to a file of its own"
        )
