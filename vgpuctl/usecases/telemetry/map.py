# SPDX-License-Identifier: Apache-2.0
"""map: every GPU with its shares and what is left of it, from cached facts and their age."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.model.gpu_map import GpuMap
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.gpu_map import map_gpus
from vgpuctl.sharing.topology import HostTopology, topology_of
from vgpuctl.usecases.host.list_gpus import ListedGpu, read_gpus
from vgpuctl.usecases.observed.survey import Survey
from vgpuctl.usecases.running.services import Services

_GONE = "its host no longer shows it"


@dataclass(frozen=True)
class MappedGpu:
    """One GPU. seen: when its host last showed it, in words; observed_at: the same in seconds since the epoch, UTC.

    state: `present`, `unreadable` or `missing`, None if it was never observed. is_known: False while its host gives no
    answer, so that all of it is as it was last seen.
    """

    map: GpuMap
    seen: str
    state: str | None
    observed_at: float | None
    is_known: bool


@dataclass(frozen=True)
class FleetMap:
    """GPUs by host and address; topologies by host. seen: which hosts answered. at: now, seconds since the epoch."""

    gpus: tuple[MappedGpu, ...]
    topologies: Mapping[str, HostTopology]
    seen: Survey
    at: float

    @property
    def age_s(self) -> float | None:
        """The age of the oldest look at a GPU whose host answers; None without one."""
        looks = [one.observed_at for one in self.gpus if one.is_known and one.observed_at is not None]
        return max(0.0, self.at - min(looks)) if looks else None


def read_map(services: Services, *, refresh: bool) -> FleetMap:
    """The map of every GPU of the hosts; one that its host no longer shows is drawn as closed."""
    listed, seen = read_gpus(services, refresh=refresh)
    with services.store.reading() as session:
        restrictions = tuple(session.restrictions())
        now = session.now()
    by_name = {one.name: replace(one, restrictions=restrictions) for one in seen.capacities}
    leases = [lease for one in listed for lease in one.leases]
    maps = {(one.host, one.gpu): one for one in map_gpus(tuple(by_name.values()), leases)}
    for one in listed:
        if (one.host, one.gpu.address) not in maps and one.host in by_name:
            maps[one.host, one.gpu.address] = map_missing(by_name[one.host], one.gpu, one.leases)
    keys = [(one, (one.host, one.gpu.address)) for one in listed]
    mapped = tuple(_mapped(one, maps[key]) for one, key in keys if key in maps)
    topologies = {name: topology_of(one.facts.gpus, one.constraints) for name, one in by_name.items()}
    return FleetMap(mapped, topologies, seen, now)


def map_missing(capacity: HostCapacity, gpu: Gpu, leases: Sequence[Lease]) -> GpuMap:
    """The map of a GPU that its host no longer shows: as it was last read, and closed. leases: those on it."""
    gone = replace(gpu, problems=(_GONE, *gpu.problems))
    (drawn,) = map_gpus([replace(capacity, facts=replace(capacity.facts, gpus=(gone,)))], leases)
    return drawn


def _mapped(listed: ListedGpu, drawn: GpuMap) -> MappedGpu:
    seen = listed.observation
    return MappedGpu(replace(drawn, board=listed.board), listed.seen, seen.state, seen.at, seen.unknown_since is None)
