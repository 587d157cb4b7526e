# SPDX-License-Identifier: Apache-2.0
"""restore-store: put a backup in the place of the store; `reconcile-store` comes next."""

import time
from pathlib import Path

from vgpuctl.store.address import SqliteAddress, parse_url
from vgpuctl.store.restore import Restored, restore
from vgpuctl.usecases.running.services import Services


def restore_store(services: Services, path: Path, *, replace: bool, keep: Path | None, dry_run: bool) -> Restored:
    """Restore a backup. keep: the file for a backup of the store that was there; None for one beside an SQLite store.

    Raises UsageError, ConcurrentChange while the store is in use, StoreUnusable, FileNotWritten.
    """
    place = services.store_place
    address = parse_url(place.url)
    if keep is None and isinstance(address, SqliteAddress):
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(place.clock()))
        keep = Path(f"{address.path}.before-restore-{stamp}")
    return restore(place, path, replace=replace, keep=keep, dry_run=dry_run)
