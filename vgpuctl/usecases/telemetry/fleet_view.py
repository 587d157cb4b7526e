# SPDX-License-Identifier: Apache-2.0
"""The fleet as the store knows it: each host with its GPUs drawn as maps, and what keeps it from taking VMs.

The number of statements on the store does not depend on the number of hosts or VMs. No host is contacted.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.agent.wire.readings import GpuReadings, InstanceReadings, Measured
from vgpuctl.errors import InventoryError
from vgpuctl.model.gpu_map import Creatable, GpuMap, SegmentKind
from vgpuctl.model.health import HealthFinding
from vgpuctl.model.lease import Lease
from vgpuctl.model.natural_order import natural
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.plural import counted
from vgpuctl.model.promise import FRESH_S, LastFinding
from vgpuctl.model.vm import Vm
from vgpuctl.scheduler.gpu_map import map_gpus
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gate import refuse_closed_host
from vgpuctl.sharing.health import conditions_of
from vgpuctl.sharing.measured import join_leases
from vgpuctl.sharing.offer import Refusal
from vgpuctl.sharing.topology import HostTopology, topology_of
from vgpuctl.usecases.observed.capacities import capacity_of, read_promises, with_silence
from vgpuctl.usecases.observed.fleet_reader import state_now
from vgpuctl.usecases.observed.gpu_health import last_health
from vgpuctl.usecases.observed.known_promises import known_now
from vgpuctl.usecases.observed.observation_record import NOT_REACHED, UP
from vgpuctl.usecases.observed.observations import (
    NEVER_OBSERVED,
    Observation,
    ObservedHost,
    missing_gpus,
    observed_hosts,
    readings_in_words,
)
from vgpuctl.usecases.telemetry.map import map_missing
from vgpuctl.usecases.telemetry.serve_web import PageSources


@dataclass(frozen=True)
class GpuView:
    """One GPU. observation: the last one of it; of a GPU that its host no longer shows, the map is of its last reading.

    readings: the last ones. shares: what was measured of its shares, by device. health: findings of the last reading of
    its health, where a single host is read.
    """

    map: GpuMap
    gpu: Gpu
    observation: Observation = NEVER_OBSERVED
    readings: GpuReadings | None = None
    shares: Mapping[str, Measured] = field(default_factory=dict)
    leases: tuple[Lease, ...] = ()
    health: tuple[HealthFinding, ...] = ()

    @property
    def is_missing(self) -> bool:
        """True if its host no longer shows it."""
        return self.observation.state == "missing"

    @property
    def states(self) -> tuple[str, ...]:
        """`missing` or `unreadable`, and why it takes no VM: `quarantine`, `cordoned`, `problem`, `host-drained` and
        other codes of sharing/codes.py; of any other GPU `open`, or `nothing-fits` where no profile has room."""
        seen = self.observation.state
        found = [seen] if seen in ("missing", "unreadable") else []
        if self.map.closed is not None and (self.map.closed.code != Code.GPU_PROBLEM or not found):
            found.append(self.map.closed.code.removeprefix("gpu-"))
        return tuple(found) or ("open" if self.map.creatable else "nothing-fits",)

    @property
    def state(self) -> str:
        """The first of its states."""
        return self.states[0]

    @property
    def tenants(self) -> tuple[str, ...]:
        """Those that have shares of it."""
        return tuple(sorted({one.tenant for one in self.leases}, key=natural))

    @property
    def subjects(self) -> tuple[str, ...]:
        """The names of the GPU and its VFs in events."""
        functions = (self.gpu.address, *(one.address for one in self.gpu.vfs))
        return tuple(f"{self.map.host} {one}" for one in functions)

    @property
    def utilization(self) -> float | None:
        """The part of the time in which it computes, None where that is not measured."""
        return None if self.readings is None else self.readings.measured.get("utilization_ratio")


@dataclass(frozen=True)
class HostView:
    """One host of the inventory. problem: why it is not known, or a mistake in the inventory.

    seen: when it last answered, in words. closed: why it takes no new VM. readings_problem: why the last reading
    failed. is_stale: it was up, and nobody has asked it for FRESH_S. known: its state by the store and this process's
    own readings, None if it was never asked. groups: those of the inventory that it is in.
    promises: what is known now of those to its VMs, by UUID, where a single host is read.
    """

    name: str
    capacity: HostCapacity | None
    gpus: tuple[GpuView, ...] = ()
    vms: tuple[Vm, ...] = ()
    observed: ObservedHost | None = None
    seen: str = ""
    closed: Refusal | None = None
    problem: str | None = None
    measured: Measured = field(default_factory=Measured)
    instances: tuple[InstanceReadings, ...] = ()
    readings_problem: str | None = None
    readings_age_s: float | None = None
    is_stale: bool = False
    groups: tuple[str, ...] = ()
    promises: Mapping[str, tuple[LastFinding, ...]] = field(default_factory=dict)
    known: str | None = None

    @property
    def boards(self) -> list[tuple[int, str, int]]:
        """The kinds of its GPUs, the most frequent first: how many, name of the board, memory in MiB."""
        kinds = Counter((one.map.board, one.map.memory_mib) for one in self.gpus)
        return [(count, board, size) for (board, size), count in kinds.most_common()]

    @property
    def facts(self) -> HostFacts | None:
        """The cached facts, None for a host that was never read."""
        return None if self.capacity is None else self.capacity.facts

    @property
    def topology(self) -> HostTopology | None:
        """How its GPUs are joined; None for fewer than two."""
        if self.capacity is None or len(self.capacity.facts.gpus) < 2:
            return None
        return topology_of(self.capacity.facts.gpus, self.capacity.constraints)

    @property
    def state(self) -> str:
        """The last observed state of its agent, `unknown` if it was never asked, `stale` if that was long ago."""
        return "stale" if self.is_stale and self.known == UP else self.known or "unknown"

    @property
    def is_unread(self) -> bool:
        """True if others reach the host, and the last reading by this process did not."""
        return self.observed is not None and self.observed.state == UP and self.known == NOT_REACHED

    @property
    def attention(self) -> list[str]:
        """Findings for the operator, a sentence each."""
        found = []
        if self.problem is not None:
            found.append(self.problem)
        if self.state not in ("up", "unknown"):
            told = f"{self.readings_problem}; others: {self.seen}" if self.is_unread else self.seen
            found.append(f"{self.state}: {told}")
        if self.observed is not None and self.observed.libvirt.unknown_since is not None:
            found.append(f"libvirt does not answer: {self.observed.libvirt.problem}")
        if self.closed is not None and self.closed.code != Code.HOST_SILENT:  # which is said above
            found.append(self.closed.reason)
        if self.observed is not None and self.observed.layout:
            found.append(f"layout: {counted(len(self.observed.layout), 'difference')}")
        for one in self.gpus:
            if one.is_missing:
                found.append(f"GPU {one.gpu.address} is missing")
            elif one.map.closed is not None and one.map.closed.code.startswith("gpu-"):
                found.append(f"GPU {one.gpu.address}: {one.map.closed.reason}")
            found += [f"GPU {one.gpu.address}: {reason}" for _address, reason in one.map.closed_vfs]
        return found


@dataclass(frozen=True)
class FleetTotals:
    """Sums over the fleet; memory of GPUs in MiB by kind of segment."""

    hosts: int
    hosts_up: int
    gpus: int
    vms: int
    shares: int
    memory_mib: int
    memory_by_kind: Mapping[SegmentKind, int]
    queued: int

    @property
    def used_ratio(self) -> float:
        """The part of the memory that somebody uses."""
        used = sum(size for kind, size in self.memory_by_kind.items() if not kind.is_free())
        return used / self.memory_mib if self.memory_mib else 0.0

    @property
    def usable_mib(self) -> int:
        """Memory that a VM can have now."""
        return self.memory_by_kind[SegmentKind.FREE] + self.memory_by_kind[SegmentKind.NEEDS_INSTANCE]

    @property
    def unusable_mib(self) -> int:
        """Memory that nobody uses and no VM can have."""
        return self.memory_by_kind[SegmentKind.UNUSABLE] + self.memory_by_kind[SegmentKind.CLOSED]


@dataclass(frozen=True)
class FleetOverview:
    """The whole fleet at one time (seconds since the epoch). tenants: all of the store, in natural order."""

    at: float
    hosts: tuple[HostView, ...]
    totals: FleetTotals
    tenants: tuple[str, ...]

    def host(self, name: str) -> HostView | None:
        """One host."""
        return next((one for one in self.hosts if one.name == name), None)

    @property
    def attention(self) -> list[tuple[str, str]]:
        """Findings for the operator, each with its host."""
        found = [(host.name, text) for host in self.hosts for text in host.attention]
        silent = [one for one in self.hosts if one.state == UP and one.readings_problem is not None]
        return found + [(one.name, f"no readings: {one.readings_problem}") for one in silent]


@dataclass(frozen=True)
class FreeProfile:
    """The shares of one profile that can still be created. count: their number; gpus, hosts: how many have some."""

    board: str
    profile: str
    size_mib: int
    count: int
    gpus: int
    hosts: int


def read_fleet_view(sources: PageSources, names: Sequence[str] | None = None) -> FleetOverview:
    """Read the hosts of the inventory, or some of them, from one state of the store."""
    services = sources.services
    wanted = services.hosts() if names is None else names
    with services.store.reading() as session:
        now = session.now()
        one_host = wanted[0] if len(wanted) == 1 else None
        known = session.all_facts()
        promises = read_promises(session, host=one_host)
        leases = session.leases(host=one_host)
        vms = session.vms(host=one_host)
        observed = observed_hosts(session)
        words = readings_in_words(session, wanted)
        missing = missing_gpus(session)
        queued = len(session.queue())
        tenants = sorted((one.name for one in session.tenants()), key=natural)
        health = None if one_host is None else last_health(session, one_host)
        kept = {} if one_host is None else known_now(session, one_host)
    capacities: dict[str, HostCapacity] = {}
    problems: dict[str, str] = {}
    for name in wanted:
        if name not in known:
            problems[name] = "it was never read: run `vgpuctl list-hosts`, or a controller"
            continue
        try:
            facts, generation = known[name].facts, known[name].generation
            capacities[name] = capacity_of(name, facts, generation, promises, services.inventory)
        except InventoryError as error:
            problems[name] = error.message
    capacities = {one.name: one for one in with_silence(capacities.values(), observed)}
    build = _Build(sources, now, leases, vms, observed, words, missing, capacities, problems, health, kept)
    hosts = tuple(build.host(name) for name in wanted)
    return FleetOverview(now, hosts, _totals(hosts, queued), tuple(tenants))


def free_profiles(fleet: FleetOverview) -> list[FreeProfile]:
    """The shares that can still be created in the fleet, by board and profile, the largest first."""
    found: dict[tuple[str, str], list[tuple[str, Creatable]]] = defaultdict(list)
    for host in fleet.hosts:
        for one in host.gpus:
            for creatable in one.map.creatable:
                found[one.map.board, creatable.profile].append((host.name, creatable))
    return sorted(
        (
            FreeProfile(
                board,
                profile,
                given[0][1].size_mib,
                sum(one.count for _host, one in given),
                len(given),
                len({host for host, _one in given}),
            )
            for (board, profile), given in found.items()
        ),
        key=lambda one: (one.board, -one.size_mib, one.profile),
    )


class _Build:
    """Puts the views together from what was read, each list looked through once."""

    def __init__(
        self,
        sources: PageSources,
        now: float,
        leases: Sequence[Lease],
        vms: Sequence[Vm],
        observed: Mapping[str, ObservedHost],
        words: Mapping[str, str],
        missing: Sequence[tuple[str, Gpu, Observation]],
        capacities: Mapping[str, HostCapacity],
        problems: Mapping[str, str],
        health: HostHealth | None,
        kept: Mapping[str, tuple[LastFinding, ...]],
    ) -> None:
        self._health, self._promises = health, kept
        self._now, self._observed, self._capacities, self._problems = now, observed, capacities, problems
        self._words = words
        self._snapshots = sources.snapshots()
        self._inventory = sources.services.inventory
        readings = sources.readings()
        self._leases: dict[tuple[str, str], list[Lease]] = defaultdict(list)
        for lease in leases:
            self._leases[lease.host, lease.share.gpu].append(lease)
        self._measured: dict[tuple[str, str], dict[str, Measured]] = defaultdict(dict)
        inside: dict[tuple[str, str], int] = {}
        for one in join_leases(leases, readings):
            share = one.lease.share
            self._measured[one.lease.host, share.gpu][share.device] = one.measured
            if one.readings is not None and one.readings.instance is not None:
                inside[one.lease.host, share.device] = one.readings.instance
        self._maps: dict[str, list[GpuMap]] = defaultdict(list)
        there = [lease for lease in leases if lease.host in capacities]
        for drawn in map_gpus(list(capacities.values()), there, instances=inside):
            self._maps[drawn.host].append(drawn)
        self._vms: dict[str, list[Vm]] = defaultdict(list)
        for vm in vms:
            self._vms[vm.host].append(vm)
        self._missing: dict[str, list[tuple[Gpu, Observation]]] = defaultdict(list)
        for host, gpu, seen in missing:
            self._missing[host].append((gpu, seen))

    def host(self, name: str) -> HostView:
        """The view of one host."""
        observed = self._observed.get(name)
        capacity = self._capacities.get(name)
        snapshot = self._snapshots.get(name)
        readings = None if snapshot is None else snapshot.readings
        by_address = {} if readings is None else {one.address: one for one in readings.gpus}
        gpus = [] if capacity is None else [self._gpu(drawn, capacity, by_address) for drawn in self._maps[name]]
        if capacity is not None:
            gpus += [self._missing_gpu(capacity, gpu, seen) for gpu, seen in self._missing[name]]
        return HostView(
            name,
            capacity,
            tuple(sorted(gpus, key=lambda one: one.gpu.address)),
            tuple(self._vms[name]),
            observed,
            self._words[name],
            None if capacity is None else refuse_closed_host(capacity.rules),
            self._problems.get(name),
            Measured() if readings is None else readings.measured,
            () if readings is None else readings.instances,
            None if snapshot is None or snapshot.error is None else snapshot.error.message,
            None if snapshot is None or snapshot.at is None else self._now - snapshot.at,
            self._is_old(observed, None if snapshot is None else snapshot.at),
            tuple(one for one in self._inventory.groups_of(name) if one != "ungrouped"),
            self._promises,
            None if observed is None else state_now(observed.state, observed.agent.unknown_since, snapshot),
        )

    def _is_old(self, observed: ObservedHost | None, read_at: float | None) -> bool:
        at = None if observed is None or observed.state != "up" else observed.agent.at
        return at is not None and self._now - max(at, read_at or 0.0) > FRESH_S

    def _gpu(self, drawn: GpuMap, capacity: HostCapacity, readings: Mapping[str, GpuReadings]) -> GpuView:
        gpu = next(one for one in capacity.facts.gpus if one.address == drawn.gpu)
        observed = self._observed.get(drawn.host)
        seen = NEVER_OBSERVED if observed is None else observed.gpus.get(drawn.gpu, NEVER_OBSERVED)
        key = drawn.host, drawn.gpu
        found = (
            () if self._health is None else tuple(conditions_of(self._health, drawn.host, gpu, capacity.restrictions))
        )
        return GpuView(drawn, gpu, seen, readings.get(drawn.gpu), self._measured[key], tuple(self._leases[key]), found)

    def _missing_gpu(self, capacity: HostCapacity, gpu: Gpu, seen: Observation) -> GpuView:
        leases = tuple(self._leases[capacity.name, gpu.address])
        return GpuView(map_missing(capacity, gpu, leases), gpu, seen, leases=leases)


def _totals(hosts: Sequence[HostView], queued: int) -> FleetTotals:
    by_kind: dict[SegmentKind, int] = dict.fromkeys(SegmentKind, 0)
    shares = memory = gpus = 0
    for host in hosts:
        for one in host.gpus:
            gpus += 1
            shares += len(one.leases)
            memory += one.map.memory_mib
            for segment in one.map.segments:
                by_kind[segment.kind] += segment.size_mib
    up = sum(one.state == "up" for one in hosts)
    return FleetTotals(len(hosts), up, gpus, sum(len(one.vms) for one in hosts), shares, memory, by_kind, queued)
