# SPDX-License-Identifier: Apache-2.0
"""Backups of the store: what a backup says of itself, and what a restored store says until it is reconciled."""

from dataclasses import dataclass
from enum import StrEnum


class StoreKind(StrEnum):
    """The database that a backup was taken of, and can be restored to."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class KeyCopy(StrEnum):
    """The key file that encrypts secret documents of queued VMs. `separate`: it must be backed up by itself."""

    NONE = "none"
    SEPARATE = "separate"
    INCLUDED = "included"


@dataclass(frozen=True)
class BackupManifest:
    """The description at the beginning of a backup.

    schema: the store's schema version. taken_at: seconds since the epoch, UTC. store_id: given to the store at its
    first backup. store: its path or URL, without password. sha256, size_bytes: of the content. key_sha256: of the key
    file, None where the store had none.
    """

    format: int
    kind: StoreKind
    schema: str
    taken_at: float
    store_id: str
    store: str
    vgpuctl: str
    sha256: str
    size_bytes: int
    key: KeyCopy
    key_sha256: str | None = None


@dataclass(frozen=True)
class RestoreMark:
    """The mark of a restored store, until it is reconciled with the hosts. Times: seconds since the epoch."""

    taken_at: float
    restored_at: float
    file: str
