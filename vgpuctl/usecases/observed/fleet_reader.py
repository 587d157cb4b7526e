# SPDX-License-Identifier: Apache-2.0
"""Readings of the whole fleet: once by a fan-out, or again and again with a thread per host."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.errors import AgentProblem, Unexpected, VgpuctlError
from vgpuctl.usecases.observed.full_survey import read_host
from vgpuctl.usecases.observed.guest_driver import keep_seen_drivers
from vgpuctl.usecases.observed.observation_record import NOT_REACHED, UP
from vgpuctl.usecases.observed.observations import is_watched_by_other, note_failure, read_record
from vgpuctl.usecases.running.services import HostSession, Services

_LOGGER = logging.getLogger("vgpuctl.telemetry")
_SPREAD_S = 0.02
_JOIN_S = 5.0


@dataclass(frozen=True)
class HostSnapshot:
    """The last readings of one host.

    at: when they were asked for, by the store's clock, seconds since the epoch; None if there are none. took_s: for the
    answer. skew_s: how far the host's clock is ahead of ours. error: of the last attempt, None if it was answered.
    """

    host: str
    readings: HostReadings | None = None
    at: float | None = None
    took_s: float = 0.0
    skew_s: float = 0.0
    error: VgpuctlError | None = None

    @property
    def is_unanswered(self) -> bool:
        """True if the last attempt did not reach the host; an agent that tells its problem has answered."""
        return self.error is not None and not isinstance(self.error, AgentProblem)


def state_now(state: str | None, silent_since: float | None, snapshot: HostSnapshot | None) -> str | None:
    """The state of a host in the store, corrected by this process's own last reading.

    silent_since: since when the store knows of no answer, in seconds since the epoch. A host that others reach and
    this process does not is `not-reached`.
    """
    if snapshot is not None and snapshot.is_unanswered and state == UP:
        return NOT_REACHED
    answered_at = None if snapshot is None or snapshot.error is not None else snapshot.at
    return UP if answered_at is not None and silent_since is not None and answered_at > silent_since else state


def read_fleet(services: Services, names: Sequence[str]) -> list[HostSnapshot]:
    """Read hosts once, by their names, and keep the drivers of their guests."""
    results = services.on_hosts(names, lambda name: _read(services, name, services.host(name)))
    snapshots = [
        result.value if result.value is not None else HostSnapshot(result.name, error=result.error)
        for result in results
    ]
    keep_seen_drivers(services, {one.host: one.readings for one in snapshots if one.readings is not None})
    return snapshots


def _read(services: Services, name: str, session: HostSession) -> HostSnapshot:
    began, at = time.monotonic(), services.store.now()
    readings = session.agent.readings()
    took_s = time.monotonic() - began
    return HostSnapshot(name, readings, at, took_s, readings.read_at - (at + took_s / 2))


class FleetReader:
    """Reads every host of the inventory each `interval_s`; a host that hangs keeps only its own thread waiting.

    tell: called with each new snapshot, in the host's thread. hosts: gives the names to read, in place of every host.
    """

    def __init__(
        self,
        services: Services,
        *,
        interval_s: float,
        tell: Callable[[HostSnapshot], None],
        hosts: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._services = services
        self._interval_s = interval_s
        self._tell = tell
        self._hosts = hosts or services.hosts
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._snapshots: dict[str, HostSnapshot] = {}

    def snapshots(self) -> Mapping[str, HostSnapshot]:
        """The last snapshot of every host of the inventory, by name."""
        with self._lock:
            return dict(sorted(self._snapshots.items()))

    @contextlib.contextmanager
    def reading(self) -> Iterator["FleetReader"]:
        """Read during the block."""
        self._services.open_store()
        self._follow()
        thread = threading.Thread(target=self._follow_inventory, name="readings", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(_JOIN_S)

    def _follow_inventory(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._services.follow_inventory()
            with contextlib.suppress(VgpuctlError):
                self._follow()

    def _follow(self) -> None:
        """Read exactly the hosts of the inventory."""
        names = self._hosts()
        with self._lock:
            for name in set(self._snapshots) - set(names):
                del self._snapshots[name]
            fresh = [name for name in names if name not in self._snapshots]
            for number, name in enumerate(fresh):
                self._snapshots[name] = HostSnapshot(name)
                thread = threading.Thread(
                    target=self._run, args=(name, number * _SPREAD_S), name=f"readings-{name}", daemon=True
                )
                thread.start()

    def _run(self, name: str, delay_s: float) -> None:
        self._stop.wait(delay_s)
        while not self._stop.is_set():
            began = time.monotonic()
            snapshot = self._attempt(name)
            with self._lock:
                if name not in self._snapshots:
                    return
                self._snapshots[name] = snapshot
            try:
                self._tell(snapshot)
            except Exception:
                # An answer of a host must not end its thread: the host would seem silent.
                _LOGGER.error("unexpected error", extra={"fields": {"host": name}}, exc_info=True)
            self._stop.wait(max(self._interval_s - (time.monotonic() - began), self._interval_s / 2))

    def _attempt(self, name: str) -> HostSnapshot:
        """Read one host; what fails keeps the readings before, with their age.

        The store is told where it knows the host otherwise.
        """
        asked_at = time.monotonic()
        try:
            found = _read(self._services, name, self._services.host(name))
            self._note_answer(name)
            return found
        except VgpuctlError as error:
            failure = error
            self._note_failure(name, error, asked_at)
        except Exception as error:
            _LOGGER.error("unexpected error", extra={"fields": {"host": name}}, exc_info=True)
            failure = Unexpected.of(error, where=f"{name}: ")
        self._services.forget_host(name)
        with self._lock:
            before = self._snapshots.get(name, HostSnapshot(name))
        return HostSnapshot(name, before.readings, before.at, before.took_s, before.skew_s, failure)

    def _note_answer(self, name: str) -> None:
        """Read the facts of a host that the store knows not to answer. A controller of the host does so itself."""
        with contextlib.suppress(VgpuctlError):
            with self._services.store.reading() as session:
                is_news = read_record(session, name).silence is not None and not is_watched_by_other(session, name)
            if is_news:
                read_host(self._services, name)

    def _note_failure(self, name: str, error: VgpuctlError, asked_at: float) -> None:
        """Record that a host gives no answer, unless the store knows that or the agent has told its problem."""
        if isinstance(error, AgentProblem):
            return
        with contextlib.suppress(VgpuctlError):
            with self._services.store.reading() as session:
                is_known = read_record(session, name).silence is not None
            if not is_known:
                note_failure(self._services, name, error, asked_at=asked_at)
