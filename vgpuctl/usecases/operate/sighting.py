# SPDX-License-Identifier: Apache-2.0
"""What one look at a watched host told, and its record in the store."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.errors import VgpuctlError
from vgpuctl.guests.facts.domain_facts import NamedState
from vgpuctl.model.health import HealthPolicy
from vgpuctl.model.promise import Moment
from vgpuctl.model.vm import Vm
from vgpuctl.model.way import Way
from vgpuctl.store.store import Session
from vgpuctl.usecases.domain.promises import Findings
from vgpuctl.usecases.observed.gpu_health import note_health
from vgpuctl.usecases.observed.guest_driver import note_seen_drivers
from vgpuctl.usecases.observed.observations import note_answers
from vgpuctl.usecases.observed.promise_record import note_findings
from vgpuctl.usecases.operate.network_watch import NOTHING_COUNTED, NetworkCounts, note_counts
from vgpuctl.usecases.seats.licence_watch import LicenceWatch


@dataclass(frozen=True)
class Sighting:
    """The answers of one host at one look; what was not asked, or gave no answer, is None.

    asked_at: by the monotonic clock of this process. way: how it was asked. readings: on a site with licence pools.
    promises: what was found of each promise to the owners of the VMs that run there.
    """

    host: str
    asked_at: float
    way: Way | None
    facts: HostFacts | None = None
    domains: Mapping[str, NamedState] | None = None
    errors: Sequence[VgpuctlError] = ()
    layout: tuple[str, ...] | None = None
    health: HostHealth | None = None
    policy: HealthPolicy | None = None
    readings: HostReadings | None = None
    promises: Sequence[tuple[Vm, Findings]] = ()
    networks: NetworkCounts = NOTHING_COUNTED
    recorded: threading.Event = field(default_factory=threading.Event)


def note_sighting(session: Session, one: Sighting, licences: LicenceWatch) -> None:
    """Record a sighting. licences: the watch of this host's, which is to keep it after the transaction.

    Commands observe the host as well: what they have seen since it was asked stays."""
    note_answers(
        session,
        one.host,
        facts=one.facts,
        layout=one.layout,
        domains=one.domains,
        errors=one.errors,
        way=one.way,
        age_s=time.monotonic() - one.asked_at,
    )
    if one.health is not None and one.policy is not None:
        note_health(session, one.host, one.health, one.policy)
    note_findings(session, one.promises, Moment.LOOK)
    note_counts(session, one.host, one.networks)
    if one.readings is not None:
        licences.note(session, {one.host: one.readings}, session.leases(one.host))
        note_seen_drivers(session, {one.host: one.readings})
