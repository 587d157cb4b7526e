# SPDX-License-Identifier: Apache-2.0
"""Which VMs to preempt so that a request fits: the fewest, the least important, those with the least work lost.

The caller decides which VMs may be preempted; this module chooses among them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import Footprint
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import Preemption, VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.relieve import relieve

MOST_TRIES = 400
"""Sets of VMs looked at on one host; beyond it, a set that is small but perhaps not the smallest is taken."""


@dataclass(frozen=True)
class Candidate:
    """One VM that may be preempted. work_s: how long it has run, which is lost. leases: all it holds.

    footprint: what its guest takes, nothing when it does not run. gang: VMs with the same id are preempted together or
    not at all. action, grace_s: its state afterwards, and the time from the notice to its shutdown, as its owner was
    told. on_borrowed_quota: it is reclaimed, rather than less important.
    """

    vm_uuid: str
    name: str
    host: str
    priority: int
    work_s: float
    footprint: Footprint
    leases: tuple[Lease, ...]
    gang: str | None = None
    action: Preemption = Preemption.STOP
    grace_s: float = 0.0
    on_borrowed_quota: bool = False


Party = tuple[Candidate, ...]
"""VMs that are preempted together: a gang, on whatever hosts it is, or one VM."""


@dataclass(frozen=True)
class Eviction:
    """The VMs to preempt, by name, and where the request fits then. Gangs are complete: some may be on other hosts."""

    placement: Placement
    victims: tuple[Candidate, ...]


def parties_of(candidates: Iterable[Candidate]) -> list[Party]:
    """The candidates by gang, in the order in which they come."""
    found: dict[tuple[str, str], list[Candidate]] = {}
    for one in candidates:
        key = ("vm", one.vm_uuid) if one.gang is None else ("gang", one.gang)
        found.setdefault(key, []).append(one)
    return [tuple(members) for members in found.values()]


def importance(party: Party) -> tuple[object, ...]:
    """A key to sort by: the party with the least important VMs first, then the least work, then by name."""
    return (
        sorted((one.priority for one in party), reverse=True),
        sum(one.work_s for one in party),
        sorted(one.name for one in party),
    )


def choose_victims(
    request: VmRequest,
    capacities: Sequence[HostCapacity],
    leases: Sequence[Lease],
    candidates: Sequence[Candidate],
) -> Eviction | None:
    """The least waste over all hosts, for a request that fits nowhere; None if preempting all would not help.

    Least is: the fewest VMs, then the lowest priorities, then the least work lost, then by name. None of the VMs
    could stay, but for other members of its gang: the request would not fit with it.
    """
    best: Eviction | None = None
    parties = parties_of(candidates)
    for capacity in sorted(capacities, key=lambda one: one.name):
        there = [party for party in parties if any(one.host == capacity.name and one.leases for one in party)]
        if request.host not in (None, capacity.name) or not there:
            continue
        own = [lease for lease in leases if lease.host == capacity.name]
        found = _on_host(request, capacity, own, there, len(best.victims) if best else sum(map(len, there)))
        if found is not None and (best is None or _waste(found.victims) < _waste(best.victims)):
            best = found
    return best


def _on_host(
    request: VmRequest, capacity: HostCapacity, leases: Sequence[Lease], there: Sequence[Party], most: int
) -> Eviction | None:
    """The best set on one host that is not larger than `most` VMs."""
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
            if best is not None and _waste(_members(chosen)) >= _waste(best.victims):
                continue
            best = _without(request, capacity, leases, chosen) or best
        if best is not None:
            return best
    return None


def _sets(there: Sequence[Party], size: int) -> Iterator[list[Party]]:
    """Every set of `size` VMs that can be the best: of parties that free the same, only those with the least waste."""
    kinds: dict[object, list[Party]] = {}
    for party in sorted(there, key=importance):
        kinds.setdefault(tuple(sorted(map(_kind, party), key=repr)), []).append(party)
    yield from _picks(list(kinds.values()), size)


def _kind(one: Candidate) -> object:
    shares = tuple(sorted((lease.share.gpu, lease.share.profile) for lease in one.leases))
    return one.host, shares, one.footprint.alike


def _picks(groups: Sequence[list[Party]], size: int) -> Iterator[list[Party]]:
    """The first so many parties of each group, `size` VMs together."""
    if not size:
        yield []
        return
    if sum(len(group) * len(group[0]) for group in groups) < size:
        return
    members = len(groups[0][0])
    for count in range(min(size // members, len(groups[0])), -1, -1):
        for rest in _picks(groups[1:], size - count * members):
            yield groups[0][:count] + rest


def _greedy(
    request: VmRequest, capacity: HostCapacity, leases: Sequence[Lease], there: Sequence[Party]
) -> Eviction | None:
    """Begin with everyone, and let stay who can, the most important first."""
    gone = sorted(there, key=importance, reverse=True)
    found = _without(request, capacity, leases, gone)
    for party in tuple(gone):
        rest = [other for other in gone if other is not party]
        better = _without(request, capacity, leases, rest)
        if better is not None:
            gone, found = rest, better
    return found


def _without(
    request: VmRequest, capacity: HostCapacity, leases: Sequence[Lease], gone: Sequence[Party]
) -> Eviction | None:
    """Where the request fits on the host when these VMs are preempted, None when it does not."""
    victims = _members(gone)
    uuids = {one.vm_uuid for one in victims}
    left = [lease for lease in leases if lease.vm_uuid not in uuids]
    there = relieved(capacity, [one for one in victims if one.host == capacity.name])
    placement = Fleet([there], left).place(request)
    if placement is None:
        return None
    return Eviction(placement, tuple(sorted(victims, key=lambda one: one.name)))


def _members(parties: Sequence[Party]) -> list[Candidate]:
    return [one for party in parties for one in party]


def relieved(capacity: HostCapacity, gone: Sequence[Candidate]) -> HostCapacity:
    """The host as it would be read when these VMs, all on it, gave way."""
    shares = [lease.share for one in gone for lease in one.leases]
    freed = [one.footprint for one in gone]
    facts = relieve(capacity.facts, shares, {one.vm_uuid for one in gone}, freed)
    return replace(with_promised(capacity, less=freed), facts=facts)


def _waste(victims: Sequence[Candidate]) -> tuple[object, ...]:
    return (
        len(victims),
        sorted((one.priority for one in victims), reverse=True),
        sum(one.work_s for one in victims),
        sorted(one.name for one in victims),
    )
