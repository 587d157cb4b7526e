# SPDX-License-Identifier: Apache-2.0
"""The queue in the store: VMs that wait for their turn, and how they are put in order."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from vgpuctl.errors import ConcurrentChange
from vgpuctl.model.queue import QueueEntry, QueueKind, QueuePolicy, QueueSettings
from vgpuctl.model.vm import VmRequest
from vgpuctl.store import codec, tables
from vgpuctl.store.tenants import TenantRows

_QUEUE, _SETTINGS = tables.queue, tables.settings


class QueueRows(TenantRows):
    """Join, leave and list the queue, and set its policy."""

    def queue(self) -> list[QueueEntry]:
        """Every entry, in the order in which they came."""
        return [_entry(row) for row in self._read(select(_QUEUE).order_by(_QUEUE.c.queued_at, _QUEUE.c.id))]

    def queued(self, tenant: str, name: str) -> QueueEntry | None:
        """The entry that a VM is in, None when it does not wait."""
        for row in self._read(select(_QUEUE).where(_QUEUE.c.tenant == tenant).order_by(_QUEUE.c.id)):
            entry = _entry(row)
            if name in (one.name for one in entry.requests):
                return entry
        return None

    def join_queue(
        self, kind: QueueKind, request: VmRequest, reason: str | None = None, *, others: Sequence[VmRequest] = ()
    ) -> None:
        """Add an entry. others: the VMs that come with the first one of a gang.

        Raises NotFound for the tenant, ConcurrentChange when one of the VMs waits already.
        """
        self.tenant(request.tenant)
        for other in others:
            if self.queued(other.tenant, other.name) is not None:
                raise ConcurrentChange(f"VM {other.name} of tenant {other.tenant} waits in the queue already")
        self._write(
            insert(_QUEUE).values(
                kind=kind.value,
                tenant=request.tenant,
                name=request.name,
                request=codec.encode((request, *others) if kind is QueueKind.GANG else request),
                request_version=codec.REQUEST_VERSION,
                queued_at=self._clock(),
                reason=None if reason is None else codec.plain_text(reason),
            ),
            conflict=f"VM {request.name} of tenant {request.tenant} waits in the queue already",
        )

    def leave_queue(self, entry_id: int) -> bool:
        """Take an entry out. Returns False when it was gone; raises ConcurrentChange while it is being served."""
        there = self._read(select(_QUEUE.c.id).where(_QUEUE.c.id == entry_id))
        free = self._read(select(_QUEUE.c.id).where(_QUEUE.c.id == entry_id).with_for_update(skip_locked=True))
        if there and not free:
            raise ConcurrentChange("a controller is just starting this VM", hint="wait for it, then delete the VM")
        return self._write(delete(_QUEUE).where(_QUEUE.c.id == entry_id)).rowcount == 1

    def note_in_queue(self, entry_id: int, reason: str) -> None:
        """Note why an entry still waits."""
        self._write(update(_QUEUE).where(_QUEUE.c.id == entry_id).values(reason=codec.plain_text(reason)))

    def queue_settings(self) -> QueueSettings:
        """How the queue is put in order."""
        values = {row.name: row.value for row in self._read(select(_SETTINGS))}
        usual = QueueSettings()
        return QueueSettings(
            QueuePolicy(values.get("queue-policy", usual.policy)), float(values.get("queue-ageing-s", usual.ageing_s))
        )

    def set_queue_settings(self, settings: QueueSettings) -> None:
        """Replace how the queue is put in order."""
        for name, value in (("queue-policy", settings.policy.value), ("queue-ageing-s", repr(settings.ageing_s))):
            self._write(delete(_SETTINGS).where(_SETTINGS.c.name == name))
            self._write(insert(_SETTINGS).values(name=name, value=value))


def _entry(row: Row[Any]) -> QueueEntry:
    what = f"queued VM {row.name} of tenant {row.tenant}"
    kind = QueueKind(row.kind)
    if kind is QueueKind.GANG:
        request, *others = codec.decode_requests(row.request, row.request_version, what=what)
    else:
        request, others = codec.decode_request(row.request, row.request_version, what=what), []
    return QueueEntry(row.id, kind, request, row.queued_at, row.reason, tuple(others))
