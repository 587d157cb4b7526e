# SPDX-License-Identifier: Apache-2.0
"""The migrations of one simulated host as libvirt's jobs: what they tell, their end by a client, their downtime."""

import struct
from asyncio import StreamWriter
from collections.abc import Mapping
from dataclasses import dataclass, field

from vgpuctl_lab.simulated.libvirt_wire import (
    INT,
    ULLONG,
    DomainName,
    ErrorCode,
    Packet,
    Reader,
    parameters,
    read_domain,
)
from vgpuctl_lab.simulated.machine.state import MachineFolder
from vgpuctl_lab.simulated.machine.transfer import Transfer

Statistics = list[tuple[str, int, int]]
"""Typed parameters: name, type, value."""
MIGRATION_IN, MIGRATION_OUT = 4, 5
NOT_RUNNING = "Requested operation is not valid: domain is not running"
_JOB_NONE, _JOB_UNBOUNDED, _JOB_COMPLETED = 0, 2, 3
_STATS_COMPLETED, _STATS_KEEP = 1, 2
_DEFAULT_DOWNTIME_MS = 300


@dataclass
class Outgoing:
    """A domain that leaves. owner: the client that carries the calls. is_performing: its memory is being copied."""

    domain: DomainName
    owner: StreamWriter
    transfer: Transfer
    was_running: bool
    is_performing: bool = False
    is_aborted: bool = False
    is_suspended: bool = False


@dataclass
class Incoming:
    """A domain that arrives, paused. owner: the client that carries the calls. persistent_xml: its definition.

    is_broken: what its QEMU got cannot be loaded. is_lost: the driver of a vGPU has refused its state at the end.
    """

    domain: DomainName
    owner: StreamWriter
    persistent_xml: str
    is_broken: bool = False
    is_lost: bool = False
    stats: Statistics = field(default_factory=list)


class MigrationJobs:
    """The jobs of one host's domains, by UUID. completed: what the last one of a domain has told."""

    def __init__(self, machine: MachineFolder) -> None:
        self._machine = machine
        self.outgoing: dict[str, Outgoing] = {}
        self.incoming: dict[str, Incoming] = {}
        self.completed: dict[str, Statistics] = {}
        self._downtimes_ms: dict[str, int] = {}

    def forget(self) -> None:
        """Forget every migration, as the end of the host does."""
        for known in (self.outgoing, self.incoming, self.completed, self._downtimes_ms):
            known.clear()

    def has_job(self, vm_uuid: str) -> bool:
        """True while a domain leaves or arrives: libvirt then takes no change of it but its end."""
        return vm_uuid in self.outgoing or vm_uuid in self.incoming

    async def refuse(self, packet: Packet) -> Packet:
        """Answer a change of a domain that has a job; libvirt says this after half a minute."""
        return packet.error(
            "Timed out during operation: cannot acquire state change lock (held by remoteDispatchDomainMigrate)",
            ErrorCode.OPERATION_TIMEOUT,
        )

    def forget_downtime(self, vm_uuid: str) -> None:
        """Forget what was set for a QEMU that has ended."""
        self._downtimes_ms.pop(vm_uuid, None)

    def max_downtime_ms(self, vm_uuid: str) -> int:
        """How long a domain may stand still at the switchover."""
        return self._downtimes_ms.get(vm_uuid, _DEFAULT_DOWNTIME_MS)

    async def say_job(self, packet: Packet) -> Packet:
        """Answer GET_JOB_INFO."""
        reader = Reader(packet.body)
        found = self._job(packet, reader.domain(), 0)
        if isinstance(found, Packet):
            return found
        kind, stats = found
        values = {name: value for name, _, value in stats}
        names = ["time_elapsed", "time_remaining"]
        names += [
            f"{what}_{part}" for what in ("data", "memory", "disk") for part in ("total", "processed", "remaining")
        ]
        return packet.reply(struct.pack(">i11Q", kind, *(values.get(name, 0) for name in names)))

    async def say_statistics(self, packet: Packet) -> Packet:
        """Answer GET_JOB_STATS."""
        reader = Reader(packet.body)
        found = self._job(packet, reader.domain(), reader.number())
        if isinstance(found, Packet):
            return found
        kind, stats = found
        return packet.reply(struct.pack(">i", kind) + parameters(stats))

    def _job(self, packet: Packet, domain: DomainName, flags: int) -> "Packet | tuple[int, Statistics]":
        """The type of a domain's job and what it tells, or the refusal to tell."""
        if flags & _STATS_COMPLETED:
            stats = self.completed.get(domain.uuid)
            if stats is not None and not flags & _STATS_KEEP:
                del self.completed[domain.uuid]
            return (_JOB_COMPLETED, stats) if stats else (_JOB_NONE, [])
        if domain.uuid in self.incoming:
            said = "Operation not supported: migration statistics are available only on the source host"
            return packet.error(said, ErrorCode.OPERATION_UNSUPPORTED)
        if domain.uuid not in self._machine.state().domains:
            return packet.error(NOT_RUNNING, ErrorCode.OPERATION_INVALID)
        job = self.outgoing.get(domain.uuid)
        if job is None:
            return _JOB_NONE, []
        return _JOB_UNBOUNDED, statistics(job.transfer, MIGRATION_OUT, self.max_downtime_ms(domain.uuid))

    async def abort(self, packet: Packet) -> Packet:
        """Answer the end of a domain's job."""
        job = self.outgoing.get(read_domain(packet.body).uuid)
        if job is None:
            said = "Requested operation is not valid: no job is active on the domain"
            return packet.error(said, ErrorCode.OPERATION_INVALID)
        job.is_aborted = True
        return packet.reply()

    async def set_max_downtime(self, packet: Packet) -> Packet:
        """Answer how long a domain may stand still at the switchover, in ms."""
        reader = Reader(packet.body)
        domain, downtime_ms = reader.domain(), reader.number(">Q")
        if domain.uuid not in self._machine.state().domains:
            return packet.error(NOT_RUNNING, ErrorCode.OPERATION_INVALID)
        self._downtimes_ms[domain.uuid] = downtime_ms
        return packet.reply()

    async def say_max_downtime(self, packet: Packet) -> Packet:
        """Answer with what `set_max_downtime` has set, or QEMU's own limit."""
        domain = read_domain(packet.body)
        if domain.uuid not in self._machine.state().domains:
            return packet.error(NOT_RUNNING, ErrorCode.OPERATION_INVALID)
        return packet.reply(struct.pack(">Q", self.max_downtime_ms(domain.uuid)))


def statistics(transfer: Transfer, operation: int, downtime_ms: int, clock_s: float = 0.0) -> Statistics:
    """What libvirt tells of a migration: totals and rests are of the guest's memory alone, as QEMU counts them.

    downtime_ms: the limit while it goes on, then the real one. clock_s: by the clock, which a fault may slow down.
    """
    elapsed_ms = round(max(transfer.elapsed_s, clock_s) * 1000)
    memory: Mapping[str, float] = {
        "total": transfer.memory_bytes,
        "processed": transfer.processed,
        "remaining": transfer.remaining,
    }
    rate = transfer.processed / transfer.elapsed_s if transfer.elapsed_s else 0
    values: dict[str, float] = {
        "time_elapsed": elapsed_ms,
        "downtime": downtime_ms,
        "setup_time": 1,
        **{f"data_{name}": value for name, value in memory.items()},
        **{f"memory_{name}": value for name, value in memory.items()},
        "memory_constant": 0,
        "memory_normal": transfer.processed // 4096,
        "memory_normal_bytes": transfer.processed,
        "memory_bps": rate,
        "memory_iteration": transfer.iteration,
        "memory_page_size": 4096,
        "memory_dirty_rate": 0,
        "memory_postcopy_requests": 0,
        "vfio_data_transferred": transfer.state_processed,
        **dict.fromkeys(("disk_total", "disk_processed", "disk_remaining", "disk_bps"), 0),
    }
    return [("operation", INT, operation), *((name, ULLONG, int(value)) for name, value in values.items())]
