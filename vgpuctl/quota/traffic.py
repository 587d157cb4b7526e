# SPDX-License-Identifier: Apache-2.0
"""Bytes and packets of tenants: increases of counters that begin anew, and the ledger's days."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

DAY_S = 86_400
MOST = 1 << 50
"""Bytes or packets of one VM between two readings. A counter that rises by more lies, and is not counted: the sum of a
day must fit into 64 bits, whatever hosts say."""


class TrafficKind(StrEnum):
    """Whose bytes and packets are counted. VM: of all its network interfaces, whoever the other end is."""

    VM = "vm"


@dataclass(frozen=True)
class TrafficCount:
    """Bytes and packets in both directions, as the VM sees them."""

    received_bytes: int = 0
    sent_bytes: int = 0
    received_packets: int = 0
    sent_packets: int = 0

    def __add__(self, other: "TrafficCount") -> "TrafficCount":
        """The sum."""
        return self._each(other, lambda own, its: own + its)

    def __bool__(self) -> bool:
        """True if anything was carried."""
        return any(self._numbers())

    def is_possible(self) -> bool:
        """True if no number is above MOST."""
        return max(self._numbers()) <= MOST

    def since(self, before: "TrafficCount") -> "TrafficCount":
        """The increase of counters. One that is lower than before was made again, and counts from 0."""
        if any(now < was for now, was in zip(self._numbers(), before._numbers(), strict=True)):
            return self
        return self._each(before, lambda now, was: now - was)

    def _numbers(self) -> tuple[int, int, int, int]:
        return self.received_bytes, self.sent_bytes, self.received_packets, self.sent_packets

    def _each(self, other: "TrafficCount", combine: Callable[[int, int], int]) -> "TrafficCount":
        return TrafficCount(*map(combine, self._numbers(), other._numbers()))


@dataclass(frozen=True)
class Counters:
    """The counters of one VM's interfaces at one reading, by device.

    started_s: seconds from the host's boot to the start of the VM's QEMU, None where nobody tells it.
    """

    started_s: float | None
    by_device: dict[str, TrafficCount]


@dataclass(frozen=True)
class HostCounters:
    """The counters of a host's VMs at its last reading, by UUID. boot_id: of the host's boot then."""

    boot_id: str
    vms: dict[str, Counters]


def increases(before: HostCounters | None, now: HostCounters, adopted: Collection[str] = ()) -> dict[str, TrafficCount]:
    """What each VM of a reading received and sent since the last one, by UUID; nothing without a last one.

    A VM that was not there at the last reading, or whose QEMU started since, has carried all that its counters say.
    adopted: VMs that may have run before they were ours; what their first reading says was carried before.
    """
    if before is None:
        return {}
    found = {}
    for uuid, counters in now.vms.items():
        last = before.vms.get(uuid)
        if last is None and uuid in adopted:
            continue
        is_same = last is not None and (before.boot_id, last.started_s) == (now.boot_id, counters.started_s)
        known: Mapping[str, TrafficCount] = last.by_device if last is not None and is_same else {}
        carried = sum(
            (each.since(known.get(device, TrafficCount())) for device, each in counters.by_device.items()),
            TrafficCount(),
        )
        if carried and carried.is_possible():
            found[uuid] = carried
    return found


@dataclass(frozen=True)
class TrafficLine:
    """What one object of a tenant carried. object: a VM's UUID. name: its last one. first_at, last_at: of the readings
    that are counted, seconds since the epoch, UTC."""

    tenant: str
    kind: TrafficKind
    object: str
    name: str
    received_bytes: int
    sent_bytes: int
    received_packets: int
    sent_packets: int
    first_at: float
    last_at: float

    @property
    def carried(self) -> TrafficCount:
        """Its bytes and packets."""
        return TrafficCount(self.received_bytes, self.sent_bytes, self.received_packets, self.sent_packets)


def add_up_traffic(rows: Iterable[TrafficLine]) -> list[TrafficLine]:
    """One line for each object, by tenant, kind and name. rows: of days."""
    lines: dict[tuple[str, TrafficKind, str], TrafficLine] = {}
    for one in sorted(rows, key=lambda row: row.last_at):
        key = (one.tenant, one.kind, one.object)
        line = lines.get(key)
        lines[key] = (
            one
            if line is None
            else TrafficLine(
                *key,
                one.name,
                line.received_bytes + one.received_bytes,
                line.sent_bytes + one.sent_bytes,
                line.received_packets + one.received_packets,
                line.sent_packets + one.sent_packets,
                min(line.first_at, one.first_at),
                one.last_at,
            )
        )
    return sorted(lines.values(), key=lambda one: (one.tenant, one.kind, one.name, one.object))


def whole_days(since: float, until: float) -> tuple[float, float]:
    """The days (UTC) that a range touches: begin of the first one, end of the last one."""
    return since // DAY_S * DAY_S, -(-until // DAY_S) * DAY_S
