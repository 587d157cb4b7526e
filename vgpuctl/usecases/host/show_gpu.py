# SPDX-License-Identifier: Apache-2.0
"""show-gpu: one GPU with its facts, health, restrictions, shares, readings, events and the last hour."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.measures import GPU
from vgpuctl.agent.wire.readings import GpuReadings, HostReadings, InstanceReadings
from vgpuctl.errors import NotFound, VgpuctlError
from vgpuctl.model.event import Event, EventFilter
from vgpuctl.model.gpu_map import GpuMap
from vgpuctl.model.health import HealthFinding
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.restriction import Restriction, restrictions_on
from vgpuctl.scheduler.gpu_map import map_gpus
from vgpuctl.sharing.health import conditions_of
from vgpuctl.sharing.measured import MeasuredShare, join_leases
from vgpuctl.sharing.topology import HostTopology, topology_of
from vgpuctl.store.store import Session
from vgpuctl.usecases.host.list_gpus import board_name
from vgpuctl.usecases.measured.last_hour import LastHour, read_last_hour
from vgpuctl.usecases.observed.capacities import with_silence
from vgpuctl.usecases.observed.full_survey import survey_fully
from vgpuctl.usecases.observed.gpu_health import last_health
from vgpuctl.usecases.observed.guest_driver import read_host
from vgpuctl.usecases.observed.observations import (
    NEVER_OBSERVED,
    Observation,
    describe_age,
    missing_gpus,
    observed_hosts,
)
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.running.services import Services

PAST_MEASURES = ("utilization_ratio", "framebuffer_used_bytes", "power_watts", "temperature_celsius")
_EVENTS = 10
_GONE = "its host no longer shows it"


@dataclass(frozen=True)
class ShownGpu:
    """One GPU. host_problem: why the host was not read now; facts are then the cached ones, and readings are missing.

    health: findings of the last reading of its health. shares: its leases with their readings. instances: of MIG.
    readings_problem: why readings are missing. events: the last ones of the GPU and its VFs, the oldest first.
    """

    host: str
    gpu: Gpu
    board: str
    seen: str
    observation: Observation
    map: GpuMap
    topology: HostTopology
    host_problem: str | None = None
    health: tuple[HealthFinding, ...] | None = None
    restrictions: tuple[Restriction, ...] = ()
    shares: tuple[MeasuredShare, ...] = ()
    readings: GpuReadings | None = None
    instances: tuple[InstanceReadings, ...] = ()
    readings_problem: str | None = None
    events: tuple[Event, ...] = ()
    last_hour: LastHour | None = None


def show_gpu(services: Services, host: str, named: str) -> ShownGpu:
    """Read one host and show its GPU of an address or UUID. A host that does not answer is shown as the store knows it.

    Raises NotFound for the GPU, InventoryError for the host, and the host's own error where the store knows nothing of
    it.
    """
    services.inventory.require(host)
    capacity, problem = _read_host(services, host)
    readings, readings_problem = _read(services, host) if problem is None else (None, problem)
    with services.store.reading() as session:
        (capacity,) = with_silence([capacity], observed_hosts(session), [host] if problem is None else ())
        gpu, observed = _find(session, capacity, named)
        capacity = replace(capacity, restrictions=tuple(session.restrictions()))
        every = session.leases(host=host)
        leases = [one for one in every if one.share.gpu == gpu.address]
        health = last_health(session, host)
        shown = ShownGpu(
            host,
            gpu,
            board_name(gpu),
            describe_age(observed, session.now()),
            observed,
            _map(capacity, gpu, every, readings),
            topology_of(capacity.facts.gpus, capacity.constraints),
            problem,
            None if health is None else tuple(conditions_of(health, host, gpu, capacity.restrictions)),
            tuple(_restrictions(capacity.restrictions, host, gpu)),
            tuple(join_leases(leases, {} if readings is None else {host: readings})),
            events=tuple(session.events(_EVENTS, _events_of(host, gpu))),
        )
        now = session.now()
    if readings is not None:
        found = next((one for one in readings.gpus if one.address == gpu.address), None)
        inside = tuple(one for one in readings.instances if one.gpu == gpu.address)
        shown = replace(shown, readings=found, instances=inside)
        readings_problem = "its host's driver does not show it" if found is None else None
    hour = read_last_hour(
        services.past(),
        GPU,
        PAST_MEASURES,
        now=now,
        is_wanted=lambda one: gpu.address == one.gpu or one.object in (gpu.address, gpu.uuid),
        host=host,
    )
    return replace(shown, readings_problem=readings_problem, last_hour=hour)


def _read_host(services: Services, host: str) -> tuple[HostCapacity, str | None]:
    """The host now, else as it is cached, with the reason."""
    seen, _silent = survey_fully(services, [host], refresh=True)
    if seen.capacities:
        return seen.capacities[0], None
    ((_, error),) = seen.failures
    with services.store.reading() as session:
        if session.facts(host) is None:
            raise error
    cached = survey(services, [host], refresh=False)
    for _, worse in cached.failures:
        raise worse
    return cached.capacities[0], error.message


def _read(services: Services, host: str) -> tuple[HostReadings | None, str | None]:
    try:
        return read_host(services, host), None
    except VgpuctlError as error:
        return None, error.message


def _find(session: Session, capacity: HostCapacity, named: str) -> tuple[Gpu, Observation]:
    """The GPU of an address (also a VF's, also without its domain) or a UUID, with its last observation."""
    wanted = normalise_bus_id(named.strip())
    observed = observed_hosts(session).get(capacity.name)
    for gpu in capacity.facts.gpus:
        if _is(gpu, wanted):
            seen = NEVER_OBSERVED if observed is None else observed.gpus.get(gpu.address, NEVER_OBSERVED)
            return gpu, seen
    for host, gpu, seen in missing_gpus(session):
        if host == capacity.name and _is(gpu, wanted):
            return gpu, seen
    raise NotFound(
        f"host {capacity.name} has no GPU {named!a}",
        context=[f"{gpu.address} {gpu.name or ''}".rstrip() for gpu in capacity.facts.gpus],
        hint=f"see `vgpuctl list-gpus --limit {capacity.name}`",
    )


def _is(gpu: Gpu, wanted: str) -> bool:
    names = {gpu.address, (gpu.uuid or "").lower(), *(function.address for function in gpu.vfs)}
    return wanted in names and bool(wanted)


def _map(capacity: HostCapacity, gpu: Gpu, leases: Sequence[Lease], readings: HostReadings | None) -> GpuMap:
    is_gone = all(one.address != gpu.address for one in capacity.facts.gpus)
    drawn = replace(gpu, problems=(_GONE, *gpu.problems)) if is_gone else gpu
    others = [one for one in capacity.facts.gpus if one.address != gpu.address]
    whole = replace(capacity, facts=replace(capacity.facts, gpus=(*others, drawn)))
    vgpus = () if readings is None else readings.vgpus
    instances = {
        (capacity.name, one.device): one.instance
        for one in vgpus
        if one.device is not None and one.instance is not None and one.gpu == gpu.address
    }
    (found,) = [one for one in map_gpus([whole], leases, instances=instances) if one.gpu == gpu.address]
    return replace(found, board=board_name(gpu))


def _restrictions(every: Sequence[Restriction], host: str, gpu: Gpu) -> list[Restriction]:
    found = restrictions_on(every, host, gpu.address, gpu.uuid)
    for function in gpu.vfs:
        found += restrictions_on(every, host, function.address, None)
    return [*(one for one in every if (one.host, one.device) == (host, "")), *found]


def _events_of(host: str, gpu: Gpu) -> EventFilter:
    return EventFilter(subjects=tuple(f"{host} {one}" for one in (gpu.address, *(vf.address for vf in gpu.vfs))))
