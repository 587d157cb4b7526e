# SPDX-License-Identifier: Apache-2.0
"""The journal: a row for each running changing command, so that `repair` knows what a killed run was doing."""

from collections.abc import Collection
from typing import Any

from vgpuctl.errors import ConcurrentChange
from vgpuctl.store import codec
from vgpuctl.store.database import insertion
from vgpuctl.store.liveness import GONE, is_running, this_process
from vgpuctl.store.records import Operation
from vgpuctl.store.rows import Rows

COLLECTING = "gc"


class OperationRows(Rows):
    """Begin, end and list operations."""

    def begin_operation(
        self,
        kind: str,
        subject: str,
        detail: str = "",
        *,
        pid: int | None = None,
        hostname: str | None = None,
        exclusive: bool = False,
    ) -> int:
        """Note what this process is about to do. Returns the id for `end_operation`.

        pid, hostname: another process than this one; its start is then not known. exclusive: raise ConcurrentChange
        when a run that may be alive has an open operation on the subject.
        """
        if exclusive:
            self.refuse_while_busy(subject)
        process = this_process()
        is_this = pid in (None, process.pid) and hostname in (None, process.hostname)
        row: dict[str, Any] = {
            "kind": kind,
            "subject": codec.plain_text(subject),
            "detail": codec.plain_text(detail),
            "pid": process.pid if pid is None else pid,
            "hostname": process.hostname if hostname is None else hostname,
            "machine": process.machine if hostname in (None, process.hostname) else "",
            "process_start": process.start if is_this else "",
            "begun_at": self._clock(),
        }
        (inserted,) = self._write(f"{insertion('operations', row)} RETURNING id", **row).rows
        return int(inserted.id)

    def end_operation(self, operation_id: int) -> None:
        """Remove the note: the command is done or rolled back. A second call changes nothing."""
        self._delete("operations", id=operation_id)

    def end_own_operations(self, subject: str) -> None:
        """Take away the notes of this process on a subject, in the transaction that makes its rows final."""
        process = this_process()
        self._delete(
            "operations",
            subject=codec.plain_text(subject),
            pid=process.pid,
            hostname=process.hostname,
            process_start=process.start,
        )

    def take_over_operations(self, operation_ids: Collection[int]) -> None:
        """Make notes of another machine's processes those of a process of this one that has ended."""
        if not operation_ids:
            return
        process = this_process()
        self._update(
            "operations",
            {"id": sorted(operation_ids)},
            hostname=process.hostname,
            machine=process.machine,
            pid=process.pid,
            process_start=GONE,
        )

    def end_dead_operations(self, subject: str) -> None:
        """Take away the notes of runs on a subject that are known to be dead."""
        for one in self.open_operations():
            if one.subject == codec.plain_text(subject) and is_running(one) is False:
                self.end_operation(one.id)

    def open_operations(self) -> list[Operation]:
        """Every operation that has not ended, the oldest first; liveness.is_running knows which still run."""
        return [Operation(**vars(row)) for row in self._find("operations", order="id")]

    def refuse_while_busy(self, subject: str, *, kind: str | None = None) -> None:
        """Raise ConcurrentChange when a run (of one kind) that may be alive has an open operation on the subject."""
        for other in self.open_operations():
            is_other = other.subject != codec.plain_text(subject) or kind not in (None, other.kind)
            if not is_other and is_running(other) is not False:
                raise ConcurrentChange(
                    f"{other.kind} is at work on {other.detail or other.subject} "
                    f"(process {other.pid} on {other.hostname})",
                    hint=f"wait for it to end; if it was killed, run `vgpuctl repair` on {other.hostname}"
                    + (
                        ""
                        if is_running(other)
                        else f", or here `vgpuctl repair --gone {other.hostname}` if that machine never comes back"
                    ),
                )
