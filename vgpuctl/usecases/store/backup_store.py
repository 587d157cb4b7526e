# SPDX-License-Identifier: Apache-2.0
"""backup-store: one state of the store in one file, while the store is in use."""

from dataclasses import dataclass
from pathlib import Path

from vgpuctl.model.backup import BackupManifest
from vgpuctl.store.backup import write_backup
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class BackedUp:
    """A backup that was written and checked."""

    file: str
    manifest: BackupManifest


def backup_store(services: Services, path: Path, *, with_key: bool) -> BackedUp:
    """Write and check a backup. Raises UsageError when the file is there, StoreUnusable, FileNotWritten."""
    path = path.absolute()
    return BackedUp(str(path), write_backup(services.store, path, with_key=with_key))
