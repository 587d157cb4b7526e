# SPDX-License-Identifier: Apache-2.0
"""What a watched host counts and logs of tenants' networks: asked at its own pace, recorded with the host's look."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.errors import VgpuctlError
from vgpuctl.guests.facts.domain_facts import NamedState
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.packet_log_record import NewLines, note_logged, read_logged
from vgpuctl.usecases.observed.traffic_record import note_traffic
from vgpuctl.usecases.running.services import HostSession, Services

COUNT_S = 55.0
"""The least time between two readings of the counters of VMs, and of the log: a look is due every 20 s."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class NetworkCounts:
    """traffic: readings with the counters of VMs. logged: new lines of logged packets. None: not due, or no answer."""

    traffic: HostReadings | None = None
    logged: NewLines | None = None


NOTHING_COUNTED = NetworkCounts()


def note_counts(session: Session, host: str, counts: NetworkCounts) -> None:
    """Record them in the caller's transaction."""
    if counts.traffic is not None:
        note_traffic(session, host, counts.traffic)
    if counts.logged is not None:
        note_logged(session, host, counts.logged)


class NetworkWatch:
    """One host. tell: reports a mistake, what is not done and why."""

    def __init__(self, services: Services, tell: Callable[[str, VgpuctlError], None]) -> None:
        self._services = services
        self._tell = tell
        self._counted_at: float | None = None

    def look(
        self,
        host: HostSession,
        facts: HostFacts,
        domains: Mapping[str, NamedState],
        measure: Callable[[], HostReadings],
    ) -> NetworkCounts:
        """Ask for what is due. measure: reads the host, or returns what this look has read already."""
        now = time.monotonic()
        traffic, logged = None, None
        if self._counted_at is None or now - self._counted_at >= COUNT_S:
            if any(one.state.is_active() for one in domains.values()):
                traffic = self._attempt("the traffic of its VMs is not counted", measure)
                logged = self._attempt("logged packets are not read", lambda: read_logged(self._services, host))
            else:
                # No VM runs, so there is nothing to ask.
                traffic = HostReadings(facts.boot_id, facts.read_at, 0.0)
            self._counted_at = now
        return NetworkCounts(traffic, logged)

    def _attempt(self, what: str, ask: Callable[[], _Answer]) -> _Answer | None:
        try:
            return ask()
        except VgpuctlError as error:
            self._tell(what, error)
            return None
