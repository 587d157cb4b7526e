# SPDX-License-Identifier: Apache-2.0
"""The queue in the store: VMs that wait for their turn, and how they are put in order."""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.errors import ConcurrentChange, NotFound
from vgpuctl.model.backup import StoreKind
from vgpuctl.model.queue import QueueEntry, QueueKind, QueuePolicy, QueueSettings
from vgpuctl.model.vm import VmRequest
from vgpuctl.store import codec
from vgpuctl.store.database import Row
from vgpuctl.store.liveness import is_running
from vgpuctl.store.operations import OperationRows
from vgpuctl.store.sealed import documents_of, with_documents
from vgpuctl.store.tenants import TenantRows


class QueueRows(TenantRows, OperationRows):
    """Join, leave and list the queue, and set its policy."""

    def queue(self) -> list[QueueEntry]:
        """Every entry, in the order in which they came."""
        return [_entry(row) for row in self._find("queue", order="queued_at, id")]

    def queued(self, tenant: str, name: str) -> QueueEntry | None:
        """The entry that a VM is in, None when it does not wait.

        The database looks for the name in the JSON of gangs, so that those of other VMs are not decoded.
        """
        several = [kind.value for kind in QueueKind if kind.has_several()]
        rows = self._read(
            "SELECT * FROM queue WHERE tenant = :tenant "
            "AND (name = :name OR kind IN :several AND request LIKE :has_name ESCAPE '!') ORDER BY id",
            tenant=tenant,
            name=name,
            several=several,
            has_name='%"' + name.replace("!", "!!").replace("%", "!%").replace("_", "!_") + '"%',
        )
        for row in rows:
            entry = _entry(row)
            if name in (one.name for one in entry.requests):
                return entry
        return None

    def join_queue(
        self,
        kind: QueueKind,
        request: VmRequest,
        reason: str | None = None,
        *,
        others: Sequence[VmRequest] = (),
        may_preempt: bool = False,
    ) -> None:
        """Add an entry. others: the VMs that come with the first one of a gang. may_preempt: queued with --preempt.

        Their secret documents are encrypted. Raises NotFound for the tenant, and for a VM that should start again and
        is not there; ConcurrentChange when one of the VMs waits already; StoreUnusable when there are documents and no
        key.
        """
        self.tenant(request.tenant)
        if kind.starts_again():
            self._check_they_exist((request, *others))
        for one in (request, *others):
            if self.queued(one.tenant, one.name) is not None:
                raise ConcurrentChange(f"VM {one.name} of tenant {one.tenant} waits in the queue already")
        texts = {} if kind.starts_again() else documents_of((request, *others))
        self._insert(
            "queue",
            kind=kind.value,
            tenant=request.tenant,
            name=request.name,
            request=codec.encode((request, *others) if kind.has_several() else request),
            request_version=codec.REQUEST_VERSION,
            queued_at=self._clock(),
            reason=None if reason is None else codec.plain_text(reason),
            may_preempt=may_preempt,
            secrets=self._key_file.seal(texts) if texts else None,
            conflict=f"VM {request.name} of tenant {request.tenant} waits in the queue already",
        )

    def with_secrets(self, entry: QueueEntry) -> QueueEntry:
        """The entry with the secret documents that its VMs are made with. Raises StoreUnusable without the key."""
        for row in self._find("queue", id=entry.id):
            if row.secrets is not None:
                texts = self._key_file.open(row.secrets)
                others = tuple(with_documents(one, texts) for one in entry.others)
                return replace(entry, request=with_documents(entry.request, texts), others=others)
        return entry

    def set_queued_requests(self, entry: QueueEntry, requests: Sequence[VmRequest]) -> None:
        """Replace the requests of an entry, as many as it has. Raises ConcurrentChange while it is being served."""
        self.refuse_while_served(entry.id)
        encoded = codec.encode(list(requests) if entry.kind.has_several() else requests[0])
        self._set_requests(entry.id, requests[0].name, encoded)

    def leave_queue(self, entry_id: int) -> bool:
        """Take an entry out. Returns False when it was gone; raises ConcurrentChange while it is being served."""
        self.refuse_while_served(entry_id)
        return self.end_entry(entry_id)

    def end_entry(self, entry_id: int) -> bool:
        """Delete an entry, for who serves it. Returns False when it was gone."""
        return self._delete("queue", id=entry_id) == 1

    def refuse_while_served(self, entry_id: int) -> None:
        """Raise ConcurrentChange while a controller that may be alive serves the entry."""
        for row in self._find("queue", id=entry_id):
            if not self._is_free(entry_id):
                raise ConcurrentChange(
                    f"a controller is just starting {_entry(row).name}", hint="wait for it, then try again"
                )

    def drop_start(self, tenant: str, name: str) -> None:
        """Remove a VM from the entry that waits for its start: it runs again, or is deleted.

        The other VMs of a preempted gang still wait. An entry that a controller serves now is left to that controller.
        """
        starts = [kind.value for kind in QueueKind if kind.starts_again()]
        waiting = self._find("queue", tenant=tenant, kind=starts)
        entry = next((one for one in map(_entry, waiting) if name in {vm.name for vm in one.requests}), None)
        if entry is None or not self._is_free(entry.id):
            return
        left = [one for one in entry.requests if one.name != name]
        if not left:
            self._delete("queue", id=entry.id)
            return
        self._set_requests(entry.id, left[0].name, codec.encode(left))

    def _set_requests(self, entry_id: int, name: str, encoded: str) -> None:
        self._update("queue", {"id": entry_id}, name=name, request=encoded, request_version=codec.REQUEST_VERSION)

    def _is_free(self, entry_id: int) -> bool:
        """True if the entry is there and no controller serves it: neither of the claims of claims.py is held."""
        subject = subject_of(entry_id)
        if any(one.subject == subject and is_running(one) is not False for one in self.open_operations()):
            return False
        locked = "" if self._connection.kind is StoreKind.SQLITE else " FOR UPDATE SKIP LOCKED"
        return bool(self._read(f"SELECT id FROM queue WHERE id = :id{locked}", id=entry_id))

    def _check_they_exist(self, requests: Sequence[VmRequest]) -> None:
        there = {row.name for row in self._find("vms", tenant=requests[0].tenant)}
        for one in requests:
            if one.name not in there:
                raise NotFound(
                    f"VM {one.name} of tenant {one.tenant} is not in the store {self._store_name}, it cannot wait "
                    "for its start",
                    hint="another run may have deleted it; see `vgpuctl list-vms`",
                )

    def note_in_queue(self, entry_id: int, reason: str, refusal: str) -> None:
        """Note why an entry still waits. refusal: the reference of the error."""
        self._update("queue", {"id": entry_id}, reason=codec.plain_text(reason), refusal=refusal)

    def queue_settings(self) -> QueueSettings:
        """How the queue is put in order."""
        values = {row.name: row.value for row in self._find("settings")}
        usual = QueueSettings()
        return QueueSettings(
            QueuePolicy(values.get("queue-policy", usual.policy)), float(values.get("queue-ageing-s", usual.ageing_s))
        )

    def set_queue_settings(self, settings: QueueSettings) -> None:
        """Replace how the queue is put in order."""
        for name, value in (("queue-policy", settings.policy.value), ("queue-ageing-s", repr(settings.ageing_s))):
            self._put("settings", {"name": name}, value=value)


def _entry(row: Row) -> QueueEntry:
    what = f"queued VM {row.name} of tenant {row.tenant}"
    kind = QueueKind(row.kind)
    if kind.has_several():
        request, *others = codec.decode_requests(row.request, row.request_version, what=what)
    else:
        request, others = codec.decode_request(row.request, row.request_version, what=what), []
    return QueueEntry(
        row.id, kind, request, row.queued_at, row.reason, tuple(others), bool(row.may_preempt), row.refusal
    )


def subject_of(entry_id: int) -> str:
    """Return the journal's name for the work on an entry."""
    return f"queue:{entry_id}"
