# SPDX-License-Identifier: Apache-2.0
"""The place of a value in a file, and the error that names it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import InventoryError
from vgpuctl.specs.bounded_reader import Malformed, read_bounded, shown_name
from vgpuctl.trusted_files import Trust


@dataclass(frozen=True)
class Origin:
    """A file and, where they are known, the line in it and the column of that line (both from 1)."""

    path: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(one) for one in (self.path, self.line, self.column) if one is not None)

    def within(self, *keys: object) -> "Origin":
        """Name the place of a key path (names, and indexes of lists) inside the value that was written here."""
        return self


class UntrustedText(str):
    """Text written under `!unsafe`: never a template, whatever it contains."""

    __slots__ = ()


class EncryptedText(UntrustedText):
    """The text of an ansible-vault, as it stands in a variable that nobody has decrypted yet."""

    __slots__ = ()


def malformed(origin: Origin, what: str, *, hint: str | None = None) -> InventoryError:
    """Build the error for something wrong at one place: `FILE:LINE: WHAT`."""
    return InventoryError(f"{origin}: {what}", hint=hint)


@contextlib.contextmanager
def located(path: str) -> Iterator[None]:
    """Say in which file something is that the bounded reader refuses: Malformed becomes InventoryError."""
    try:
        yield
    except Malformed as exc:
        raise malformed(Origin(shown_name(path), exc.line, exc.column), exc.what, hint=exc.hint) from exc


def read_bytes(path: str, trust: Trust) -> bytes:
    """Read a file that a user wrote. trust: whose it may be.

    Raises FileNotTrusted, and InventoryError with what the system answered, and for vault files.
    """
    with located(path):
        content = read_bounded(Path(path), trust)
    if content.startswith(b"$ANSIBLE_VAULT;"):
        raise malformed(
            Origin(path, 1),
            "the file is encrypted by ansible-vault, which vgpuctl does not read",
            hint=f"keep secrets in the SSH agent or in files of mode 0600; `ansible-vault decrypt {path}` opens it",
        )
    return content
