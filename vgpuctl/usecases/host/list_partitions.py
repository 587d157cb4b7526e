# SPDX-License-Identifier: Apache-2.0
"""list-partitions: the partitions of every NVSwitch fabric with the VMs that have them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import HostError
from vgpuctl.model.lease import Lease
from vgpuctl.model.natural_order import natural
from vgpuctl.model.vm import printed_name
from vgpuctl.scheduler.calendar import Booking, leases_of
from vgpuctl.scheduler.partition_states import PartitionView, view_fleet
from vgpuctl.sharing.fabric import NO_CONFIGURATION
from vgpuctl.sharing.host_fabric import fabric_of
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.capacities import with_silence
from vgpuctl.usecases.observed.observations import NEVER_OBSERVED, Observation, describe_age, observed_hosts
from vgpuctl.usecases.observed.survey import Survey, survey
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class ListedPartition:
    """One partition. seen: when its host last answered, in words, with the observation."""

    partition: PartitionView
    seen: str
    observation: Observation


@dataclass(frozen=True)
class Partitions:
    """The partitions by host and number. without: why a host that answered has none, by its name."""

    listed: Sequence[ListedPartition]
    without: dict[str, str]


def list_partitions(services: Services, *, refresh: bool) -> tuple[Partitions, Survey]:
    """The partitions of every host, from cached facts unless refresh.

    The survey is incomplete for a host whose Fabric Manager did not tell them, also when that is cached.
    """
    seen = survey(services, services.hosts(), refresh=refresh)
    with services.store.reading() as session:
        leases = [*session.leases(), *_reserved_now(session)]
        observed = observed_hosts(session)
        now = session.now()
    capacities = with_silence(seen.capacities, observed, seen.read)
    facts = {one.name: one.facts for one in capacities}
    views = view_fleet(capacities, [one for one in leases if one.host in facts])
    last = {name: observed[name].agent if name in observed else NEVER_OBSERVED for name in facts}
    listed = [
        ListedPartition(one, describe_age(last[one.host], now), last[one.host])
        for one in sorted(views, key=lambda one: (natural(one.host), one.number))
    ]
    unread = {name: error for name in facts if (error := _unread(name, facts[name])) is not None}
    without = {name: _why_none(facts[name]) for name in facts.keys() - {one.host for one in views} - unread.keys()}
    return Partitions(listed, without), replace(seen, incomplete=tuple(sorted(unread.items())))


def _reserved_now(session: Session) -> list[Lease]:
    """What reservations keep from others at this moment; what their VMs have is leased to these."""
    now = session.now()
    return [
        lease
        for one in session.reservations()
        if one.vm_uuid is None and one.overlaps(now, now + 1)
        for lease in leases_of(Booking(printed_name(one.tenant, one.name), one.host, one.shares, one.begin, one.end))
    ]


def _unread(name: str, facts: HostFacts) -> HostError | None:
    """The error of a host whose Fabric Manager has partitions and did not tell them."""
    why, fabric = facts.why_unread("fabric_manager", "fabric_modules"), fabric_of(facts)
    if why is None and fabric is not None and fabric.problem is not None:
        why = f"Fabric Manager is {fabric.manager}: {fabric.problem}"
    if why is None:
        return None
    hint = (
        f"have it run, then `vgpuctl list-partitions --refresh -l {name}`; `vgpuctl repair` tells one that came back"
        " what is active"
    )
    return HostError(f"{name}: {why}", hint=hint)


def _why_none(facts: HostFacts) -> str:
    fabric = fabric_of(facts)
    if fabric is None:
        return "no NVSwitch"
    if facts.fabric_manager is None:
        return f"Fabric Manager {NO_CONFIGURATION}"
    mode = facts.fabric_manager.mode
    return "no FABRIC_MODE" if mode is None else f"FABRIC_MODE {mode} ({fabric.mode or 'not known'}) has no partitions"
