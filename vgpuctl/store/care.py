# SPDX-License-Identifier: Apache-2.0
"""The store about itself: its identity, and the mark of a restore that was not reconciled with the hosts yet."""

import uuid

import msgspec

from vgpuctl import typed_json
from vgpuctl.errors import StoreNotReconciled
from vgpuctl.model.backup import RestoreMark
from vgpuctl.model.times import format_time
from vgpuctl.store.rows import Rows

RESTORE_MARK = "reconcile-first"
CARE_COMMANDS = frozenset({"reconcile-store", "adopt-host", "create-tenant", "backup-store", "restore-store"})
"""The commands that may change a store with the mark. None of them changes a host."""
_STORE_ID = "store-id"


class CareRows(Rows):
    """Read and set what the store says of itself."""

    def store_id(self) -> str | None:
        """The identity that the store got at its first backup and keeps when it is restored; None before that."""
        return self._setting(_STORE_ID)

    def ensure_store_id(self) -> str:
        """The store's identity, given now where it has none."""
        self._insert_if_absent("settings", name=_STORE_ID, value=str(uuid.uuid4()))
        return self._setting(_STORE_ID) or ""

    def restore_mark(self) -> RestoreMark | None:
        """The mark of a restored store; None when it is reconciled, or was never restored."""
        text = self._setting(RESTORE_MARK)
        mark: RestoreMark | None = None if text is None else typed_json.decode(text, RestoreMark)
        return mark

    def require_reconciled(self) -> None:
        """Raise StoreNotReconciled for a restored store, unless the command may change a store with the mark."""
        if self._actor.command in CARE_COMMANDS or (mark := self.restore_mark()) is None:
            return
        raise StoreNotReconciled(
            f"the store {self._store_name} is as of {format_time(mark.taken_at)} UTC (from {mark.file}), and may not "
            "know what is on the hosts since then: it takes no change",
            hint="run `vgpuctl reconcile-store`, which shows the differences and what to do",
        )

    def refuse_unreconciled(self) -> None:
        """Have every change of this transaction refused as `require_reconciled` does; reading goes on."""
        try:
            self.require_reconciled()
        except StoreNotReconciled as refusal:
            self._refusal = refusal

    def lift_restore_mark(self) -> None:
        """Say that the store is reconciled with the hosts."""
        self._delete("settings", name=RESTORE_MARK)

    def set_restore_mark(self, mark: RestoreMark) -> None:
        """Mark the store, in place of an earlier mark."""
        self.lift_restore_mark()
        self._insert("settings", name=RESTORE_MARK, value=encode_mark(mark))

    def _setting(self, name: str) -> str | None:
        for row in self._find("settings", name=name):
            return str(row.value)
        return None


def encode_mark(mark: RestoreMark) -> str:
    """The mark as its row keeps it."""
    return msgspec.json.encode(mark).decode()
