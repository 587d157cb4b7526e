# SPDX-License-Identifier: Apache-2.0
"""Records of a host that are not facts: one JSON text per host and kind, replaced as a whole."""

from dataclasses import dataclass

from vgpuctl.store import codec
from vgpuctl.store.rows import Rows


@dataclass(frozen=True)
class HostRecord:
    """One record. at: when it was written, seconds since the epoch, UTC."""

    host: str
    kind: str
    content: str
    at: float


class HostRecordRows(Rows):
    """Keep, find and drop records."""

    def save_host_record(self, host: str, kind: str, content: str) -> None:
        """Write a record, in place of the one there was."""
        text = codec.plain_text(content)
        self._put("host_records", {"host": host, "kind": kind}, content=text, at=self._clock())

    def host_record(self, host: str, kind: str) -> HostRecord | None:
        """One record, None when there is none."""
        for row in self._find("host_records", host=host, kind=kind):
            return HostRecord(row.host, row.kind, row.content, row.at)
        return None

    def host_records(self, kind: str) -> list[HostRecord]:
        """Every host's record of a kind, by host."""
        rows = self._find("host_records", order="host", kind=kind)
        return [HostRecord(row.host, row.kind, row.content, row.at) for row in rows]

    def recorded_hosts(self) -> dict[str, float]:
        """When something was last recorded of each host."""
        rows = self._read("SELECT host, MAX(at) AS at FROM host_records GROUP BY host")
        return {row.host: row.at for row in rows}

    def drop_host_records(self, host: str) -> None:
        """Forget every record of a host."""
        self._delete("host_records", host=host)

    def drop_host_record(self, host: str, kind: str) -> None:
        """Forget a record, if there is one."""
        self._delete("host_records", host=host, kind=kind)
