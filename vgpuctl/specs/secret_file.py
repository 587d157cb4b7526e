# SPDX-License-Identifier: Apache-2.0
"""Secrets that a tenant's file names by path: read beside or below that file, or in folders the operator allowed."""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from vgpuctl.errors import UsageError

_MOST_BYTES = 1 << 20
_HIDDEN_HINT = "hidden files are read only in folders that the operator allows: --secrets-from DIR"


class SecretFiles:
    """The secrets that one tenant's file may name.

    file: the tenant's file; relative paths start at its folder. allowed: further folders of the operator.
    """

    def __init__(self, file: Path, allowed: Sequence[Path] = ()) -> None:
        self._beside = file.resolve().parent
        self._allowed = [folder.resolve() for folder in allowed]

    def read(self, name: str) -> bytes:
        """Read one secret.

        Every symbolic link is followed first, and the file that it leads to must lie in an allowed folder; it is then
        opened from the root on without following any link, so that nobody can exchange a part of the path in between.
        Raises UsageError for a file elsewhere, one that others can read, one of another user, no regular file, or
        one larger than 1 MiB. The content is never shown.
        """
        if "\0" in name or ".." in Path(name).parts:
            raise UsageError(f"the secret {name!a} cannot be named so", hint="give a path without `..`")
        real = (self._beside / name).resolve()
        self._check_place(real, name)
        try:
            descriptor = open_without_links(real)
        except OSError as error:
            raise UsageError(f"the secret {name} cannot be read: {error.strerror}") from error
        try:
            _check_status(name, os.fstat(descriptor))
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(_MOST_BYTES + 1)
        finally:
            os.close(descriptor)
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


def open_without_links(path: Path) -> int:
    """Open a file by its absolute path, no part of which may be a symbolic link. Raises OSError."""
    current = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.parent.parts[1:]:
            inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = inner
        if not path.name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # O_NONBLOCK: the open of a pipe must not wait for a writer.
        return os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=current)
    finally:
        os.close(current)


def _check_status(name: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"the secret {name} is no regular file")
    if status.st_nlink > 1:
        # A tenant who may write the folder can link a file of the operator into it.
        raise UsageError(
            f"the secret {name} has {status.st_nlink} names (hard links)", hint="copy it to a file of its own"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise UsageError(
            f"the secret {name} can be read by others: its mode is {mode:04o}", hint=f"run `chmod 600 {name}`"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"the secret {name} belongs to another user (uid {status.st_uid})")
