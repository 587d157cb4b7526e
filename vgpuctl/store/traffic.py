# SPDX-License-Identifier: Apache-2.0
"""The ledger of bytes and packets: one row for each object of a tenant and day. Rows stay, and only grow."""

from typing import TYPE_CHECKING

from vgpuctl.store import codec
from vgpuctl.store.database import given, matching
from vgpuctl.store.rows import Rows

if TYPE_CHECKING:
    from vgpuctl.quota.traffic import TrafficCount, TrafficKind, TrafficLine

_COUNTED = ("received_bytes", "sent_bytes", "received_packets", "sent_packets")
_ADD = (
    "INSERT INTO traffic (tenant, kind, object, day, name, received_bytes, sent_bytes, received_packets, sent_packets, "
    "first_at, last_at) VALUES (:tenant, :kind, :object, :day, :name, :received_bytes, :sent_bytes, :received_packets, "
    ":sent_packets, :at, :at) ON CONFLICT (tenant, kind, object, day) DO UPDATE SET name = excluded.name, "
    "last_at = excluded.last_at, " + ", ".join(f"{one} = traffic.{one} + excluded.{one}" for one in _COUNTED)
)


class TrafficRows(Rows):
    """Add what was counted, and list it."""

    def add_traffic(
        self, tenant: str, kind: "TrafficKind", of: str, name: str, counted: "TrafficCount", *, at: float
    ) -> None:
        """Add what an object carried to its day, that of the reading. of: a VM's UUID."""
        from vgpuctl.quota.traffic import DAY_S

        self._write(
            _ADD,
            tenant=tenant,
            kind=kind.value,
            object=of,
            day=at // DAY_S * DAY_S,
            name=codec.plain_text(name),
            received_bytes=counted.received_bytes,
            sent_bytes=counted.sent_bytes,
            received_packets=counted.received_packets,
            sent_packets=counted.sent_packets,
            at=at,
        )

    def traffic(self, since: float, until: float, tenant: str | None = None) -> "list[TrafficLine]":
        """The rows of the days that a range touches (seconds since the epoch, UTC), the oldest first."""
        from vgpuctl.quota.traffic import TrafficKind, TrafficLine, whole_days

        begin, end = whole_days(since, until)
        of_tenant = given(tenant=tenant)
        rows = self._read(
            f"SELECT * FROM traffic WHERE day >= :begin AND day < :end AND {matching(of_tenant)} "
            "ORDER BY day, tenant, kind, object",
            begin=begin,
            end=end,
            **of_tenant,
        )
        return [
            TrafficLine(
                row.tenant,
                TrafficKind(row.kind),
                row.object,
                row.name,
                row.received_bytes,
                row.sent_bytes,
                row.received_packets,
                row.sent_packets,
                row.first_at,
                row.last_at,
            )
            for row in rows
        ]
