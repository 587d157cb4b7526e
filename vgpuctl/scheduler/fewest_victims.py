# SPDX-License-Identifier: Apache-2.0
"""The fewest VMs to preempt so that one request fits on one host, found by trying sets of them, the smallest first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.candidates import Candidate, Party, importance, left_of, parties_of, relieved
from vgpuctl.scheduler.fleet import Fleet

MOST_TRIES = 400
"""Sets of VMs looked at on one host; beyond it, a set that is small but perhaps not the smallest is taken."""


@dataclass(frozen=True)
class Found:
    """VMs to preempt, by name, and where the request fits then. Gangs are complete: some may be on other hosts."""

    placement: Placement
    victims: tuple[Candidate, ...]


def fewest_victims(
    request: VmRequest,
    capacities: Sequence[HostCapacity],
    leases: Sequence[Lease],
    candidates: Sequence[Candidate],
) -> Found | None:
    """The least waste over all hosts, for a request that fits nowhere; None if preempting all would not help.

    Least is: the fewest VMs, then the lowest priorities, then the least work lost, then by name. None of the VMs
    could stay, but for other members of its gang: the request would not fit with it.
    """
    best: Found | None = None
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
) -> Found | None:
    """The best set on one host that is not larger than `most` VMs."""
    everyone = _without(request, capacity, leases, there)
    if everyone is None:
        return None
    tries = 0
    best: Found | None = None
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
) -> Found | None:
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
) -> Found | None:
    """Where the request fits on the host when these VMs are preempted, None when it does not."""
    victims = _members(gone)
    there = relieved(capacity, [one for one in victims if one.host == capacity.name])
    placement = Fleet([there], left_of(leases, victims)).place(request)
    if placement is None:
        return None
    return Found(placement, tuple(sorted(victims, key=lambda one: one.name)))


def _members(parties: Sequence[Party]) -> list[Candidate]:
    return [one for party in parties for one in party]


def _waste(victims: Sequence[Candidate]) -> tuple[object, ...]:
    return (
        len(victims),
        sorted((one.priority for one in victims), reverse=True),
        sum(one.work_s for one in victims),
        sorted(one.name for one in victims),
    )
