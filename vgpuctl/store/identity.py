# SPDX-License-Identifier: Apache-2.0
"""Recognition of the store that a process has opened, at the beginning of each of its transactions.

A process that lives on may find another store in the place of its own: the file was moved and a backup restored, the
database was dropped and made again, or the server was set back to an earlier state. What it knows of VMs is then not
true any more, and what it would write belongs to another store. So it ends.

A store has the setting INSTANCE, which is made anew by each restore. An SQLite file is known by device and inode too,
and every store by its newest event: events are only added, and the newest is never deleted.
"""

import os
from pathlib import Path
from types import SimpleNamespace

from vgpuctl.errors import StoreReplaced, StoreUnusable
from vgpuctl.store.database import StoreConnection
from vgpuctl.store.schema import VERSION_TABLE

INSTANCE = "instance"

_READ = (
    f"SELECT (SELECT value FROM settings WHERE name = '{INSTANCE}') AS instance, "
    f"(SELECT version_num FROM {VERSION_TABLE}) AS schema, (SELECT max(id) FROM events) AS newest"
)
_HINT = "start this again: it then opens the store that is there now, and looks at it anew"


class StoreIdentity:
    """What this process knows the store by. Nothing is known, and nothing refused, before `learn`.

    file: of SQLite. store_name: for errors.
    """

    def __init__(self, file: Path | None, store_name: str) -> None:
        self._file = file
        self._store_name = store_name
        self._place: tuple[int, int] | None = None
        self._known: SimpleNamespace | None = None
        self._counts_events = False
        self._newest = 0

    def learn(self, connection: StoreConnection, *, sees_every_row: bool) -> None:
        """Take the store of this transaction for the one of this process. sees_every_row: False for a tenant's role."""
        (self._known,) = connection.run(_READ).rows
        if self._known.instance is None and sees_every_row:
            raise StoreUnusable(
                f"the store {self._store_name} has lost the name by which it is known", hint="restore it from a backup"
            )
        self._place = self._find_place()
        self._counts_events = sees_every_row
        self._newest = self._known.newest or 0

    @property
    def newest(self) -> int:
        """The newest event that a transaction has seen; read it before the next one begins."""
        return self._newest

    def check(self, connection: StoreConnection, newest: int) -> None:
        """Compare the store of this transaction. newest: of before it began. Raises StoreReplaced, DatabaseError."""
        if self._known is None:
            return
        self.check_place()
        (found,) = connection.run(_READ).rows
        if found.schema != self._known.schema:
            raise self._replaced(f"has the schema version {found.schema}, and had {self._known.schema}")
        if found.instance != self._known.instance:
            raise self._replaced("is another one, or was restored from a backup")
        if self._counts_events:
            if (found.newest or 0) < newest:
                raise self._replaced(f"was set back: its newest event is {found.newest}, and was {newest}")
            self._newest = max(self._newest, found.newest or 0)

    def check_place(self) -> None:
        """Compare the file that has the store's name now with the one that was opened.

        Raises StoreReplaced, and StoreUnusable where the file cannot be looked at.
        """
        if self._known is None or self._file is None:
            return
        if self._find_place() != self._place:
            raise self._replaced("is another file")

    def _find_place(self) -> tuple[int, int] | None:
        """Device and inode of the file, None on PostgreSQL. Raises StoreReplaced, StoreUnusable."""
        if self._file is None:
            return None
        try:
            status = os.stat(self._file)  # noqa: PTH116 - at each transaction
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise self._replaced("is gone: its file was moved or deleted") from exc
        except OSError as exc:
            raise StoreUnusable(
                f"the store {self._store_name} cannot be looked at: {exc.strerror}",
                hint="look at the rights and the disk of its folder",
            ) from exc
        return status.st_dev, status.st_ino

    def _replaced(self, what: str) -> StoreReplaced:
        return StoreReplaced(f"the store {self._store_name} {what} since this process opened it", hint=_HINT)
