# SPDX-License-Identifier: Apache-2.0
"""Which VMs have to give way so that a request fits: the fewest, the least important, those with the least work lost.

Who may be asked to give way is decided by the caller; here it is only chosen among them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.guest_memory import GuestMemory
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.relieve import relieve

MOST_TRIES = 400
"""Sets of VMs looked at on one host; beyond it, a set that is small but perhaps not the smallest is taken."""


@dataclass(frozen=True)
class Candidate:
    """One VM that may be asked to give way. work_s: how long it has run, which is lost. leases: all it holds.

    memory: its guest's, none when it does not run.
    """

    vm_uuid: str
    name: str
    host: str
    priority: int
    work_s: float
    memory: GuestMemory
    leases: tuple[Lease, ...]


@dataclass(frozen=True)
class Eviction:
    """The VMs that give way, by name, and where the request fits then."""

    placement: Placement
    victims: tuple[Candidate, ...]


def choose_victims(
    request: VmRequest,
    capacities: Sequence[HostCapacity],
    leases: Sequence[Lease],
    candidates: Sequence[Candidate],
) -> Eviction | None:
    """The least waste over all hosts, for a request that fits nowhere; None when it does not, whoever gives way.

    Least is: the fewest VMs, then the lowest priorities, then the least work lost, then by name. None of the VMs
    could stay: the request would not fit with it.
    """
    best: Eviction | None = None
    for capacity in sorted(capacities, key=lambda one: one.name):
        there = [one for one in candidates if one.host == capacity.name and one.leases]
        if request.host not in (None, capacity.name) or not there:
            continue
        own = [lease for lease in leases if lease.host == capacity.name]
        found = _on_host(request, capacity, own, there, len(best.victims) if best else len(there))
        if found is not None and (best is None or _waste(found.victims) < _waste(best.victims)):
            best = found
    return best


def _on_host(
    request: VmRequest, capacity: HostCapacity, leases: Sequence[Lease], there: Sequence[Candidate], most: int
) -> Eviction | None:
    """The best set on one host that is not larger than `most`."""
    everyone = _without(request, capacity, leases, there)
    if everyone is None:
        return None
    tries = 0
    best: Eviction | None = None
    for size in range(1, most + 1):
        for chosen in _sets(there, size):
            tries += 1
            if tries > MOST_TRIES:
                return best or _greedy(request, capacity, leases, there)
            if best is not None and _waste(chosen) >= _waste(best.victims):
                continue
            best = _without(request, capacity, leases, chosen) or best
        if best is not None:
            return best
    return None


def _sets(there: Sequence[Candidate], size: int) -> Iterator[list[Candidate]]:
    """Every set of this size that can be the best: of VMs that free the same, only those with the least waste."""
    kinds: dict[object, list[Candidate]] = {}
    for one in sorted(there, key=lambda one: (one.priority, one.work_s, one.name)):
        slices = tuple(sorted((lease.slice.gpu, lease.slice.profile) for lease in one.leases))
        kinds.setdefault((slices, one.memory), []).append(one)
    yield from _picks(list(kinds.values()), size)


def _picks(groups: Sequence[list[Candidate]], size: int) -> Iterator[list[Candidate]]:
    """The first so many of each group, `size` of them together."""
    if not size:
        yield []
        return
    if sum(map(len, groups)) < size:
        return
    for count in range(min(size, len(groups[0])), -1, -1):
        for rest in _picks(groups[1:], size - count):
            yield groups[0][:count] + rest


def _greedy(
    request: VmRequest, capacity: HostCapacity, leases: Sequence[Lease], there: Sequence[Candidate]
) -> Eviction | None:
    """Begin with everyone, and let stay who can, the most important first."""
    gone = sorted(there, key=lambda one: (-one.priority, -one.work_s, one.name))
    found = _without(request, capacity, leases, gone)
    for one in tuple(gone):
        rest = [other for other in gone if other is not one]
        better = _without(request, capacity, leases, rest)
        if better is not None:
            gone, found = rest, better
    return found


def _without(
    request: VmRequest, capacity: HostCapacity, leases: Sequence[Lease], gone: Sequence[Candidate]
) -> Eviction | None:
    """Where the request fits on the host when these VMs gave way, None when it does not."""
    uuids = {one.vm_uuid for one in gone}
    left = [lease for lease in leases if lease.vm_uuid not in uuids]
    placement = Fleet([relieved(capacity, gone)], left).place(request)
    if placement is None:
        return None
    return Eviction(placement, tuple(sorted(gone, key=lambda one: one.name)))


def relieved(capacity: HostCapacity, gone: Sequence[Candidate]) -> HostCapacity:
    """The host as it would be read when these VMs, all on it, gave way."""
    slices = [lease.slice for one in gone for lease in one.leases]
    freed = [one.memory for one in gone]
    facts = relieve(capacity.facts, slices, {one.vm_uuid for one in gone}, freed)
    return replace(with_promised(capacity, less=freed), facts=facts)


def _waste(victims: Sequence[Candidate]) -> tuple[object, ...]:
    return (
        len(victims),
        sorted((one.priority for one in victims), reverse=True),
        sum(one.work_s for one in victims),
        sorted(one.name for one in victims),
    )
