# SPDX-License-Identifier: Apache-2.0
"""A running domain goes from one libvirt to another, driven from here over both connections.

libvirt calls this managed direct migration (virDomainMigrate3 without VIR_MIGRATE_PEER2PEER): the two daemons need no
trust in each other, only the port of the data must be reachable from host to host. When this process dies, libvirt ends
the migration by itself (moves 3.1, rows 10 and 11).

The domain arrives halted (VIR_MIGRATE_PAUSED) and is let go from here once its source is no more. Without that the
target lets it go before the source has heard of it; when the target's libvirtd dies in between, libvirt's client lets
the source go on too, and the VM runs twice (seen with libvirt 11.3; libvirt leaves that case to its lock managers).
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vgpuctl.errors import DomainRejected, LibvirtMissing, VgpuctlError
from vgpuctl.guests.libvirt_errors import libvirt_module, translate, translated
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.model.times import format_duration
from vgpuctl.model.units import MIB, format_mib

_POLL_S = 0.5
_HALT_POLL_S = 0.1
"""How often is asked whether the guest is halted, where that has a limit."""
_END_S, _END_CALLS = 0.2, 4
"""What comes after all state was sent: QEMU's end on the source, and so many calls."""
_ABORT_S = 60.0
"""How long libvirt may take to end a migration that is given up."""
_FIRST_LIMIT_S, _STEP, _LONGEST_S = 0.3, 1.6, 600.0
"""QEMU halts the guest as soon as the rest takes no longer than its limit. The limit begins low and is raised while the
rest does not get smaller, up to the VM's own: a state of many GiB never fits into a low one (moves 3.3, 3.6)."""
_STALLED_S = 4.0
"""After so long without a smaller rest the limit is raised; at the highest one the move is given up after _GIVEN_UP."""
_GIVEN_UP = 8
_VFIO_SENT = "vfio_data_transferred"
"""Bytes of the state of devices (VIR_DOMAIN_JOB_VFIO_DATA_TRANSFERRED, libvirt 10.6)."""
_DEAD_S, _DEAD_READINGS = 20.0, 8
"""A transfer is given up when so many readings over so long show nothing that moves. QEMU sends and counts many times a
second, also over the slowest link; TCP reports a dead one after a quarter of an hour only (tcp_retries2, tcp(7)). Bonds
and routes take seconds to change over. The readings count beside the time since one alone can take long."""
_MOVING = ("data_remaining", "data_processed", "memory_iteration", _VFIO_SENT)
"""What jobStats counts of a transfer. An iteration ends also where only the state of devices is left."""
_SWITCHOVER, _WITH_SWITCHOVER = "bandwidth.avail.switchover", 11_001_000
"""A parameter of virDomainMigrate3, and the version of libvirt that brought it; libvirt-python 9.0 lacks the name."""


@dataclass(frozen=True)
class MigrationOrder:
    """name, uuid: of the domain. running: its XML as it goes on there. definition: as it starts there next.

    address: by which the source's QEMU reaches the target. disks: their names in the guest (`vda`), which are copied
    while it runs. has_shared_disks: some lie on storage that was proven to be one on both hosts, which libvirt sees
    of few file systems alone. max_downtime_s: the longest that the guest may be halted, None for no limit.
    """

    name: str
    uuid: str
    running: str
    definition: str
    address: str
    disks: tuple[str, ...] = ()
    has_shared_disks: bool = False
    bandwidth_mbps: int | None = None
    is_encrypted: bool = False
    max_downtime_s: float | None = None


@dataclass(frozen=True)
class MigrationProgress:
    """Bytes of memory and disks, as QEMU counts them; it does not count the state of devices here.

    total_bytes: grows with what the guest writes again. limit_s: how long the guest may be halted, as it is set now.
    """

    elapsed_s: float
    total_bytes: int
    remaining_bytes: int
    limit_s: float

    def __str__(self) -> str:
        """Write it for people: `12s, 3.1GiB of 8GiB left`."""
        if not self.remaining_bytes:
            return f"{format_duration(self.elapsed_s)}, its memory is copied, the state of its devices is left"
        left, total = format_mib(self.remaining_bytes // MIB), format_mib(self.total_bytes // MIB)
        return f"{format_duration(self.elapsed_s)}, {left} of {total} left"


@dataclass(frozen=True)
class Migrated:
    """What libvirt says of an ended migration.

    downtime_s: how long the guest was halted, at most; None where nobody says.
    """

    elapsed_s: float
    downtime_s: float | None
    bytes_sent: int


def running_xml(hypervisor: Hypervisor, name: str, uuid: str) -> str:
    """Read the XML of a running domain as another host can take it, with its secrets."""
    library = libvirt_module()
    with translated(f"read the XML of domain {name} on {hypervisor.host}"):
        flags = library.VIR_DOMAIN_XML_MIGRATABLE | library.VIR_DOMAIN_XML_SECURE
        return str(hypervisor.connection.lookupByUUIDString(uuid).XMLDesc(flags))


class IncomingDomain(StrEnum):
    """What a domain on the target of a move does there. sent: its state is still sent. waits: all of it is there."""

    SENT = "sent"
    WAITS = "waits"
    LEFT = "left"


def incoming_domain(hypervisor: Hypervisor, uuid: str) -> IncomingDomain:
    """Tell what an active domain on the target does; `left`: it was let go there, and may have halted since.

    Raises GuestError.
    """
    library = libvirt_module()
    with translated(f"read the state of domain {uuid} on {hypervisor.host}"):
        state, reason = hypervisor.connection.lookupByUUIDString(uuid).state()
    if state != library.VIR_DOMAIN_PAUSED:
        return IncomingDomain.LEFT
    if reason in (library.VIR_DOMAIN_PAUSED_MIGRATION, library.VIR_DOMAIN_PAUSED_STARTING_UP):
        return IncomingDomain.SENT
    return IncomingDomain.WAITS if reason == library.VIR_DOMAIN_PAUSED_USER else IncomingDomain.LEFT


@dataclass(frozen=True)
class Migration:
    """One move of a running domain. It is then defined and runs on the target, after the source has none of it.

    beside: another connection to the source, over which the move is overseen: libvirt's client can lose an answer when
    two threads wait on one connection (seen with 9.0: one of thirty calls beside virDomainMigrate3 never ended).
    cut: ends the connection to the source, for a source that is silent while it sends.
    """

    source: Hypervisor
    target: Hypervisor
    beside: Hypervisor
    order: MigrationOrder
    cut: Callable[[], None]

    def run(self, show: Callable[[MigrationProgress], None]) -> Migrated:
        """Move the domain, and show how far it is.

        Raises DomainRejected when it did not happen, as libvirt says; LibvirtMissing when a connection was lost. What
        is true on the two hosts then is for the caller to find out, after an error above all.
        """
        library, order = libvirt_module(), self.order
        what = f"move domain {order.name} from {self.source.host} to {self.target.host}"
        with translated(what, DomainRejected):
            domain = self.source.connection.lookupByUUIDString(order.uuid)
            overseen = self.beside.connection.lookupByUUIDString(order.uuid)
            versions = [one.connection.getLibVersion() for one in (self.source, self.target)]
        given = _parameters(library, order, knows_switchover=min(versions) >= _WITH_SWITCHOVER)
        refused: list[Any] = []
        ended: list[float] = []

        def move() -> None:
            try:
                arrived = domain.migrate3(self.target.connection, given, _flags(library, order))
                arrived.resume()
                ended.append(time.monotonic())
            except library.libvirtError as error:
                refused.append(error)

        thread = threading.Thread(target=move, name=f"move {order.name}", daemon=True)
        overseer = _Overseer(overseen, order, show)
        overseer.set_limit()
        began = time.monotonic()
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_POLL_S if order.max_downtime_s is None else _HALT_POLL_S)
                if thread.is_alive():
                    overseer.look()
        except BaseException as error:
            # Ctrl-C, or a move that takes too long: libvirt lets the guest go on where it was. QEMU hears nothing while
            # it sends the state of devices, so that it may be there before that.
            thread.join(_ABORT_S if _is_aborted(library, overseen) else 0)
            if thread.is_alive():
                self.cut()
                thread.join()
            if refused or not isinstance(error, DomainRejected):
                raise
        if refused:
            raise translate(refused[0], what, DomainRejected) from refused[0]
        return _ended(library, self.target, order, ended[0] - began)


class _Overseer:
    """Sees to it that a migration comes to an end, or is given up."""

    def __init__(
        self,
        domain: Any,
        order: MigrationOrder,
        show: Callable[[MigrationProgress], None],
        now: Callable[[], float] = time.monotonic,
    ):
        self._domain = domain
        self._order = order
        self._now = now
        self._began = began = now()
        self._show = show
        self._most_s = order.max_downtime_s or _LONGEST_S
        self._limit_s = min(_FIRST_LIMIT_S, self._most_s)
        self._smallest: int | None = None
        self._smaller_at = began
        self._stalls = 0
        self._looked_at = began
        self._halted_at: float | None = None
        self._call_s = 0.0
        self._counts: tuple[object, ...] = ()
        self._moved_at = began
        self._still = 0

    def set_limit(self) -> None:
        """Tell QEMU how long it may halt the guest now. Raises DomainRejected."""
        with translated(f"limit the downtime of domain {self._order.name}", DomainRejected):
            self._domain.migrateSetMaxDowntime(max(1, round(self._limit_s * 1000)))

    def look(self) -> None:
        """Show the progress; raise the limit where the rest stays as large as it was.

        Raises DomainRejected for a move that does not come to its end.
        """
        self._end_long_halt()
        if self._now() - self._looked_at < _POLL_S:
            return
        self._looked_at = self._now()
        library = libvirt_module()
        try:
            stats = self._domain.jobStats()
        except library.libvirtError as error:
            self._require_answer(error)
            return  # it ends right now, which the call that runs it tells better
        remaining, now = int(stats.get("data_remaining", 0)), self._now()
        if not stats.get("data_total"):
            return
        self._show(MigrationProgress(now - self._began, int(stats["data_total"]), remaining, self._limit_s))
        self._end_dead(stats, now)
        if self._smallest is None or remaining < self._smallest:
            self._smallest, self._smaller_at, self._stalls = remaining, now, 0
        elif now - self._smaller_at > _STALLED_S:
            self._smaller_at = now
            self._raise_limit(remaining, int(stats.get("memory_bps", 0)))

    def _require_answer(self, error: Any) -> None:
        """Raise LibvirtMissing for a source that does not answer: the call that it works on has no limit."""
        told = translate(error, f"oversee the move of domain {self._order.name}", DomainRejected)
        if isinstance(told, LibvirtMissing):
            raise told from error

    def _end_long_halt(self) -> None:
        """End a move whose guest is halted for almost as long as it may be: QEMU took its link for a faster one."""
        library, began = libvirt_module(), self._now()
        try:
            is_halted = self._domain.state()[0] == library.VIR_DOMAIN_PAUSED
        except library.libvirtError as error:
            self._require_answer(error)
            return  # the source has nothing of it any more
        now = self._now()
        self._call_s = max(self._call_s, now - began)
        self._halted_at = (self._halted_at or began) if is_halted else None
        if self._halted_at is None or now - self._halted_at + _END_S + _END_CALLS * self._call_s < self._most_s:
            return
        raise DomainRejected(
            f"the move of domain {self._order.name} was ended: its guest was halted for"
            f" {format_duration(now - self._halted_at)}, may be halted for {format_duration(self._most_s)},"
            " and the state of its GPUs was not there yet",
            hint="the link or a card is slower than declared: correct `bandwidth_mbps` of vgpu_moves, allow a longer"
            " --max-downtime, or move the VM cold",
        )

    def _end_dead(self, stats: Mapping[str, Any], now: float) -> None:
        """End a move of which nothing is transferred any more, as over a link that is dead.

        Not while the guest is halted: the new host may be loading what it has. Nor where only the state of devices is
        left and libvirt does not count it.
        """
        counts = tuple(stats.get(name) for name in _MOVING)
        is_counted = bool(stats.get("data_remaining")) or _VFIO_SENT in stats
        if counts != self._counts or self._halted_at is not None or not is_counted:
            self._counts, self._moved_at, self._still = counts, now, 0
            return
        self._still += 1
        if self._still < _DEAD_READINGS or now - self._moved_at < _DEAD_S:
            return
        left = format_mib(int(stats.get("data_remaining", 0)) // MIB)
        raise DomainRejected(
            f"the move of domain {self._order.name} was ended after {format_duration(now - self._began)}: nothing was"
            f" transferred for {format_duration(now - self._moved_at)}, and {left} are left",
            hint="the link between the hosts may be dead: its old host must reach"
            f" {self._order.address} at the ports of moves (docs/moves.md)",
        )

    def _raise_limit(self, remaining: int, bytes_per_s: int) -> None:
        if self._limit_s < self._most_s:
            self._limit_s = min(self._limit_s * _STEP, self._most_s)
            with contextlib.suppress(VgpuctlError):
                self.set_limit()
            return
        self._stalls += 1
        if self._stalls >= _GIVEN_UP:
            needed = f" {format_duration(remaining / bytes_per_s)}" if remaining and bytes_per_s else ""
            took, most = format_duration(self._now() - self._began), format_duration(self._most_s)
            left = "the state of its GPUs does not"
            if remaining:
                left = f"{format_mib(remaining // MIB)} are left and do not"
            raise DomainRejected(
                f"the move of domain {self._order.name} was ended after {took}: {left} get less,"
                f" and the guest may be halted for {most} only",
                hint=f"the rest takes{needed or ' longer'}: allow a longer --max-downtime, give the move more bandwidth"
                " (`bandwidth_mbps` of vgpu_moves), or move the VM cold",
            )


def _is_aborted(library: Any, domain: Any) -> bool:
    """Ask the source to end a migration: False if it does not answer."""
    try:
        domain.abortJob()
    except library.libvirtError as error:
        return not isinstance(translate(error, "end a move", DomainRejected), LibvirtMissing)
    return True


def _flags(library: Any, order: MigrationOrder) -> int:
    flags = library.VIR_MIGRATE_LIVE | library.VIR_MIGRATE_PERSIST_DEST | library.VIR_MIGRATE_UNDEFINE_SOURCE
    flags |= library.VIR_MIGRATE_ABORT_ON_ERROR | library.VIR_MIGRATE_PAUSED
    if order.disks:
        flags |= library.VIR_MIGRATE_NON_SHARED_INC
    if order.has_shared_disks:
        # QEMU drops its caches of files itself when a guest leaves (since 4.0), so nothing else speaks against it.
        flags |= library.VIR_MIGRATE_UNSAFE
    if order.is_encrypted:
        flags |= library.VIR_MIGRATE_TLS
    return int(flags)


def _parameters(library: Any, order: MigrationOrder, *, knows_switchover: bool) -> dict[str, Any]:
    address = f"[{order.address}]" if ":" in order.address else order.address
    given: dict[str, Any] = {
        library.VIR_MIGRATE_PARAM_URI: f"tcp://{address}",
        library.VIR_MIGRATE_PARAM_DEST_XML: order.running,
        library.VIR_MIGRATE_PARAM_PERSIST_XML: order.definition,
    }
    if order.disks:
        given[library.VIR_MIGRATE_PARAM_MIGRATE_DISKS] = list(order.disks)
    if order.bandwidth_mbps is not None:
        # libvirt counts MiB/s, in whole numbers.
        mib_s = max(1, order.bandwidth_mbps * 125_000 // MIB)
        given[library.VIR_MIGRATE_PARAM_BANDWIDTH] = mib_s
        if knows_switchover and order.max_downtime_s is None:
            # QEMU's own estimate is of what it sent before, which says little of a device's state. A ceiling is kept
            # by that alone: over a link that is slower than declared, QEMU would halt the guest for too long.
            given[_SWITCHOVER] = mib_s
    return given


def _ended(library: Any, target: Hypervisor, order: MigrationOrder, elapsed_s: float) -> Migrated:
    """What the target's libvirt counted; the source has forgotten the domain."""
    try:
        stats = target.connection.lookupByUUIDString(order.uuid).jobStats(library.VIR_DOMAIN_JOB_STATS_COMPLETED)
    except library.libvirtError:
        stats = {}
    downtime_s = None
    if "downtime" in stats:
        # libvirt has counted until the domain was there; it was let go after that.
        counted_s = stats.get("time_elapsed", elapsed_s * 1000) / 1000
        downtime_s = stats["downtime"] / 1000 + max(0.0, elapsed_s - counted_s)
    return Migrated(elapsed_s, downtime_s, int(stats.get("data_processed", 0)))
