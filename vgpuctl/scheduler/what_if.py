# SPDX-License-Identifier: Apache-2.0
"""Changes that would make a request fit: each is tried with the rules that place VMs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.constraints import Constraints
from vgpuctl.model.guest_memory import format_page_size
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.restriction import WHOLE_HOST
from vgpuctl.model.units import format_mib
from vgpuctl.model.vm import HostOfNetwork, VmRequest
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.fleet_host import FleetHost
from vgpuctl.scheduler.host_memory import with_more_pages
from vgpuctl.scheduler.mixed_change import with_mixed_sizes
from vgpuctl.scheduler.victims import choose_victims
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gate import refuse_closed_gpu, refuse_closed_host


@dataclass(frozen=True)
class FittingChange:
    """One change, as the end of the sentence "it fits if …", and where the VM is then; the least effort is nearest."""

    effort: int
    text: str
    placement: Placement


def changes_that_admit(
    request: VmRequest, capacities: Sequence[HostCapacity], leases: Sequence[Lease], vms: Sequence[Candidate]
) -> list[FittingChange]:
    """Changes that admit a request that fits nowhere, the nearest first; empty when no tried change does.

    Tried one by one: what the request itself insists on, what the inventory forbids, and VMs that go (the fewest, of
    all that are given).
    """
    found = [
        *_other_requests(request, capacities, leases),
        *_other_pages(request, capacities, leases),
        *_allowed_again(request, capacities, leases),
        *_mixed_sizes(request, capacities, leases),
    ]
    eviction = choose_victims([request], capacities, leases, vms)
    if eviction is not None:
        (placement,) = eviction.placements
        names = ", ".join(victim.name for victim in eviction.victims)
        gone = f"{names} on {placement.host} {'were' if len(eviction.victims) > 1 else 'was'} gone"
        found.append(FittingChange(2 + len(eviction.victims), gone, placement))
    return sorted(found, key=lambda one: (one.effort, one.text))


def _other_requests(
    request: VmRequest, capacities: Sequence[HostCapacity], leases: Sequence[Lease]
) -> Iterator[FittingChange]:
    """The same VM with one constraint less, or smaller."""
    fleet = Fleet(capacities, leases)
    constraints = request.constraints
    if request.host is not None:
        host = request.host
        text = f"it need not be on {host}"
        if isinstance(host, HostOfNetwork):
            text = f"it were not in network {host.network}, which is on {host} alone"
        yield from _try(fleet, replace(request, host=None), text, 0)
    if constraints.required:
        labels = ", ".join(f"{key}={value}" for key, value in constraints.required)
        without = replace(request, constraints=replace(constraints, required=()))
        yield from _try(fleet, without, f"it did not require {labels}", 0)
    if constraints.group is not None and not constraints.together.is_preference():
        without = replace(request, constraints=replace(constraints, group=None, together=Constraints().together))
        yield from _try(fleet, without, f"it were not bound to group {constraints.group}", 0)
    if request.gpus and sum(gpu.count for gpu in request.gpus) > 1:
        fewer = _fewer(fleet, request)
        if fewer is not None:
            yield fewer
    yield from _smaller(fleet, request)


def _other_pages(
    request: VmRequest, capacities: Sequence[HostCapacity], leases: Sequence[Lease]
) -> Iterator[FittingChange]:
    """Other memory than the huge pages that it wants, or more of them on the host that lacks the fewest."""
    page_kib = request.hugepages_kib
    if page_kib is None:
        return
    fleet, size = Fleet(capacities, leases), format_page_size(page_kib)
    yield from _try(fleet, replace(request, hugepages_kib=None), f"it did without huge pages of {size}", 1)
    others = {pool.size_kib for one in capacities for pool in one.facts.hugepages or () if pool.total}
    for other in sorted(others - {page_kib}):
        if request.memory_mib * 1024 % other == 0:
            text = f"its huge pages were of {format_page_size(other)}"
            yield from _try(fleet, replace(request, hugepages_kib=other), text, 1)
    best: tuple[int, str, FittingChange] | None = None
    for name, host in sorted(fleet.hosts.items()):
        missing_mib = request.memory_mib - _room_mib(host, page_kib)
        if missing_mib <= 0 or missing_mib > _room_mib(host, None) or (best is not None and missing_mib >= best[0]):
            continue
        own = [lease for lease in leases if lease.host == name]
        raised = replace(host.capacity, facts=with_more_pages(host.capacity.facts, page_kib, missing_mib))
        missing = missing_mib * 1024 // page_kib
        for change in _try(Fleet([raised], own), request, f"{name} had {missing} more huge pages of {size}", 2):
            best = (missing_mib, name, change)
    if best is not None:
        yield best[2]


def _smaller(fleet: Fleet, request: VmRequest) -> Iterator[FittingChange]:
    """Less memory or fewer vCPUs, as much as the host with the most would give."""
    best: FittingChange | None = None
    rooms = {room for host in fleet.hosts.values() for room in _rooms_mib(host, request.hugepages_kib)}
    for room in sorted(room for room in rooms if 0 < room < request.memory_mib):
        placement = fleet.place(replace(request, memory_mib=room))
        if placement is None:
            break
        best = FittingChange(1, f"it wanted at most {format_mib(room)} of memory", placement)
    if best is not None:
        yield best
    counts = {count for host in fleet.hosts.values() for count in _vcpus(host, request)}
    for cpus in sorted((count for count in counts if 0 < count < request.vcpus), reverse=True):
        placement = fleet.place(replace(request, vcpus=cpus))
        if placement is not None:
            yield FittingChange(1, f"it wanted at most {cpus} vCPUs", placement)
            return


def _rooms_mib(host: FleetHost, page_kib: int | None) -> list[int]:
    """The memory that one more VM could have of each NUMA node, and of all together."""
    rooms = [room.memory_mib for room in host.rooms(page_kib, has_gpus=True)]
    return [*rooms, sum(rooms)]


def _room_mib(host: FleetHost, page_kib: int | None) -> int:
    return _rooms_mib(host, page_kib)[-1]


def _vcpus(host: FleetHost, request: VmRequest) -> list[int]:
    rooms = [room.vcpus for room in host.rooms(request.hugepages_kib, has_gpus=bool(request.gpus))]
    return [*rooms, sum(rooms)]


def _fewer(fleet: Fleet, request: VmRequest) -> FittingChange | None:
    """The first of its GPUs, as many as fit."""
    gpus = [replace(gpu, count=1) for gpu in request.gpus for _ in range(gpu.count)]
    for count in range(len(gpus) - 1, 0, -1):
        placement = fleet.place(replace(request, gpus=tuple(gpus[:count])))
        if placement is not None:
            return FittingChange(1, f"it wanted {count} of its {len(gpus)} GPUs", placement)
    return None


def _allowed_again(
    request: VmRequest, capacities: Sequence[HostCapacity], leases: Sequence[Lease]
) -> Iterator[FittingChange]:
    """Closed hosts, GPUs declared otherwise, closed GPUs: each host alone, the first that would do."""
    for capacity in sorted(capacities, key=lambda one: one.name):
        own = [lease for lease in leases if lease.host == capacity.name]
        shut = refuse_closed_host(capacity.rules)
        if shut is not None and shut.code is not Code.HOST_FENCED:
            fleet = Fleet([_open_host(capacity)], own)
            found = list(_try(fleet, request, f"{capacity.name} took VMs again ({shut.reason})", 2))
            if found:
                yield found[0]
                return
        if capacity.declared:
            fleet = Fleet([replace(capacity, declared=())], own)
            found = list(_try(fleet, request, f"{capacity.name}'s layout did not have its GPUs for something else", 2))
            if found:
                yield found[0]
                return
        refused = [refuse_closed_gpu(gpu, capacity.rules) for gpu in capacity.facts.gpus]
        reasons = ", ".join(sorted({one.reason for one in refused if one is not None}))
        if reasons:
            fleet = Fleet([_open_gpus(capacity)], own)
            found = list(_try(fleet, request, f"{capacity.name}'s GPUs took VMs again ({reasons})", 2))
            if found:
                yield found[0]
                return


def _open_host(capacity: HostCapacity) -> HostCapacity:
    kept = tuple(one for one in capacity.restrictions if one.device != WHOLE_HOST)
    return replace(capacity, constraints=replace(capacity.constraints, maintenance=None), restrictions=kept)


def _open_gpus(capacity: HostCapacity) -> HostCapacity:
    kept = tuple(one for one in capacity.restrictions if one.device == WHOLE_HOST)
    healthy = tuple(replace(entry, quarantine=None) for entry in capacity.constraints.gpus)
    return replace(capacity, constraints=replace(capacity.constraints, gpus=healthy), restrictions=kept)


def _mixed_sizes(
    request: VmRequest, capacities: Sequence[HostCapacity], leases: Sequence[Lease]
) -> Iterator[FittingChange]:
    """One GPU in mixed-size mode; its VMs have to stop for that, and start again."""
    for capacity, own, address, names in with_mixed_sizes(request, Fleet(capacities, leases), leases):
        text = f"{capacity.name} {address} went to mixed-size, for which {', '.join(names)} must stop and start again"
        found = list(_try(Fleet([capacity], own), request, text, 2 + len(names)))
        if found:
            yield found[0]
            return


def _try(fleet: Fleet, request: VmRequest, text: str, effort: int) -> Iterator[FittingChange]:
    placement = fleet.place(request)
    if placement is not None:
        yield FittingChange(effort, text, placement)
