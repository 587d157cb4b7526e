# SPDX-License-Identifier: Apache-2.0
"""list-gpus: every GPU with what the store has promised of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.catalog.lookup import board_by_pci
from vgpuctl.model.gpu_map import GpuMap
from vgpuctl.model.health import HealthFinding
from vgpuctl.model.host_constraints import HostRules
from vgpuctl.model.layout import LayoutKind
from vgpuctl.model.lease import Lease
from vgpuctl.model.natural_order import natural
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.restriction import Restriction
from vgpuctl.scheduler.gpu_map import map_gpus
from vgpuctl.sharing.declared import declared_of
from vgpuctl.sharing.gate import closed_functions, refuse_closed_gpu, refuse_closed_host
from vgpuctl.sharing.health import conditions_of
from vgpuctl.sharing.offer import Refusal
from vgpuctl.usecases.observed.capacities import with_silence
from vgpuctl.usecases.observed.full_survey import survey_fully
from vgpuctl.usecases.observed.gpu_health import last_health
from vgpuctl.usecases.observed.observations import (
    NEVER_OBSERVED,
    Observation,
    ObservedHost,
    describe_age,
    libvirt_problems,
    missing_gpus,
    observed_hosts,
)
from vgpuctl.usecases.observed.survey import Survey, incomplete_facts
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class GpuMemory:
    """The memory of a GPU in MiB. used: by shares of VMs and whatever else is on it. largest: the largest profile that
    can still be created; None when there is none."""

    total_mib: int
    used_mib: int
    free_mib: int
    largest: str | None


@dataclass(frozen=True)
class ListedGpu:
    """One GPU with its board's name and the leases on it. libvirt_problem: why its host's libvirt does not answer.

    observation: `present`, `unreadable` or `missing`; seen: the same in words, with its age. gpu: of a GPU that is
    missing, the last reading.
    closed: why it takes no new VM whatever is free: cordoned, in quarantine, or its host is closed. closed_vfs: the
    same of single VFs, by address.
    layout_differences: of its host to the declared layout when the controller last compared; None when it never did.
    memory: None where the GPU was not read. declared: the kind of its entry in the declared layout; None without one.
    health: findings of the last reading of its health; None when it was never read.
    """

    host: str
    board: str
    gpu: Gpu
    leases: tuple[Lease, ...]
    libvirt_problem: str | None = None
    observation: Observation = NEVER_OBSERVED
    seen: str = ""
    closed: Refusal | None = None
    closed_vfs: Mapping[str, str] = field(default_factory=dict)
    layout_differences: tuple[str, ...] | None = None
    memory: GpuMemory | None = None
    declared: LayoutKind | None = None
    health: tuple[HealthFinding, ...] | None = None


def list_gpus(
    services: Services, *, refresh: bool, hosts: Sequence[str] | None = None
) -> tuple[Sequence[ListedGpu], Survey]:
    """The GPUs as `read_gpus` finds them, with their memory, declared kind and health."""
    gpus, seen = read_gpus(services, refresh=refresh, hosts=hosts)
    with services.store.reading() as session:
        health = {host: last_health(session, host) for host in {one.host for one in gpus}}
        restrictions = session.restrictions()
    by_name = {one.name: one for one in seen.capacities}
    maps = map_gpus(seen.capacities, [lease for one in gpus for lease in one.leases])
    memory = {(one.host, one.gpu): _memory(one) for one in maps}
    return [
        replace(
            one,
            memory=memory.get((one.host, one.gpu.address)),
            declared=_declared(by_name.get(one.host), one.gpu),
            health=_health(health[one.host], one, restrictions),
        )
        for one in gpus
    ], seen


def _memory(drawn: GpuMap) -> GpuMemory:
    largest = None if drawn.largest is None else drawn.largest.profile
    return GpuMemory(drawn.memory_mib, drawn.memory_mib - drawn.free_mib, drawn.free_mib, largest)


def _declared(capacity: HostCapacity | None, gpu: Gpu) -> LayoutKind | None:
    if capacity is None:
        return None
    entry = declared_of(gpu, capacity.facts, capacity.declared).entry
    return None if entry is None else entry.layout.kind


def _health(
    known: HostHealth | None, listed: ListedGpu, restrictions: Sequence[Restriction]
) -> tuple[HealthFinding, ...] | None:
    return None if known is None else tuple(conditions_of(known, listed.host, listed.gpu, restrictions))


def read_gpus(
    services: Services, *, refresh: bool, hosts: Sequence[str] | None = None
) -> tuple[Sequence[ListedGpu], Survey]:
    """The GPUs of every host, or of these, from cached facts unless refresh.

    libvirt is asked on the hosts that are read. The survey is incomplete for a libvirt that did not answer, and for
    GPUs that may be missing, also when that is cached.
    """
    wanted = services.hosts() if hosts is None else hosts
    seen, without = survey_fully(services, wanted, refresh=refresh)
    found = {one.name: incomplete_facts(one.name, one.facts) for one in seen.capacities}
    incomplete = {name: error for name, error in found.items() if error is not None} | without
    seen = replace(seen, incomplete=tuple(sorted(incomplete.items())))
    with services.store.reading() as session:
        leases = session.leases()
        silent = libvirt_problems(session)
        observed = observed_hosts(session)
        missing = missing_gpus(session)
        now = session.now()
        restrictions = tuple(session.restrictions())  # with those that this look has set
    seen = replace(seen, capacities=tuple(with_silence(seen.capacities, observed, seen.read)))
    rules = {one.name: replace(one.rules, restrictions=restrictions) for one in seen.capacities}
    read = [(one.name, gpu, _observed(observed, one.name, gpu)) for one in seen.capacities for gpu in one.facts.gpus]
    read += [(host, gpu, last) for host, gpu, last in missing if host in wanted]
    gpus = [
        ListedGpu(
            host,
            board_name(gpu),
            gpu,
            tuple(lease for lease in leases if lease.host == host and lease.share.gpu == gpu.address),
            silent.get(host),
            last,
            describe_age(last, now),
            _closed(rules.get(host), gpu),
            closed_functions(gpu, rules[host]) if host in rules else {},
            None if host not in observed else observed[host].layout,
        )
        for host, gpu, last in sorted(read, key=lambda one: (natural(one[0]), one[1].address))
    ]
    return gpus, seen


def _observed(hosts: Mapping[str, ObservedHost], host: str, gpu: Gpu) -> Observation:
    """The last observation of a GPU; of facts that an older vgpuctl cached there is none."""
    return NEVER_OBSERVED if host not in hosts else hosts[host].gpus.get(gpu.address, NEVER_OBSERVED)


def _closed(rules: HostRules | None, gpu: Gpu) -> Refusal | None:
    return None if rules is None else refuse_closed_gpu(gpu, rules) or refuse_closed_host(rules)


def board_name(gpu: Gpu) -> str:
    """The driver's name of the GPU, else the catalogue's, else its PCI ids."""
    board = board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    return gpu.name or (board.name if board is not None else f"{gpu.vendor_id}:{gpu.device_id}")
