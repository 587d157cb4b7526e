# SPDX-License-Identifier: Apache-2.0
"""VMs to preempt so that requests fit together: few of them, the least important, those with the least work lost.

The caller decides who may be preempted.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.candidates import Candidate, importance, left_of, parties_of, relieved
from vgpuctl.scheduler.fewest_victims import fewest_victims
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together, promised_leases_of, the_hard_ones_first
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised

MOST_TRIES = 200
"""Sets of VMs tried when each must show that it could not stay; beyond it, those that are left all go."""


@dataclass(frozen=True)
class Eviction:
    """The VMs to preempt, by name, and where each request fits then, in the requests' order. Gangs are complete."""

    placements: tuple[Placement, ...]
    victims: tuple[Candidate, ...]


def choose_victims(
    requests: Sequence[VmRequest],
    capacities: Sequence[HostCapacity],
    leases: Sequence[Lease],
    candidates: Sequence[Candidate],
) -> Eviction | None:
    """VMs to preempt for requests that do not fit together; None if preempting all candidates would not help.

    The requests are placed one after another, the hard ones first, and for each that does not fit the fewest VMs of
    one host go (fewest_victims). Where that leads nowhere for several, all candidates go. Then each that could stay
    stays, the most important first. For one request that is the least waste: the fewest VMs, then the lowest
    priorities, then the least work lost, then by name.
    """
    search = _VictimSearch(requests, capacities, leases, candidates)
    gone = search.one_by_one()
    found = None if gone is None else search.without(gone)
    if found is None and len(requests) > 1:
        gone = list(search.candidates)
        found = search.without(gone)
    if gone is None or found is None:
        return None
    for party in sorted(parties_of(gone), key=importance, reverse=True)[:MOST_TRIES]:
        rest = [one for one in gone if one not in party]
        better = search.without(rest)
        if better is not None:
            gone, found = rest, better
    return Eviction(tuple(found), tuple(sorted(gone, key=lambda one: one.name)))


class _VictimSearch:
    """One fleet, in which hosts are exchanged for what they would be without some VMs."""

    def __init__(
        self,
        requests: Sequence[VmRequest],
        capacities: Sequence[HostCapacity],
        leases: Sequence[Lease],
        candidates: Sequence[Candidate],
    ) -> None:
        self.requests = requests
        self.capacities = {one.name: one for one in capacities}
        self.candidates = [
            one
            for party in parties_of(candidates)
            if any(one.leases and one.host in self.capacities for one in party)
            for one in party
        ]
        self.leases: defaultdict[str, list[Lease]] = defaultdict(list)
        for lease in leases:
            self.leases[lease.host].append(lease)
        self.fleet = Fleet(capacities, leases)

    def without(self, gone: Sequence[Candidate]) -> list[Placement] | None:
        """Where all requests fit after these VMs were preempted; the fleet is left as it was."""
        by_host = self._by_host(gone)
        for name, there in by_host.items():
            self.fleet.put(relieved(self.capacities[name], there), left_of(self.leases[name], there))
        found = place_together(self.fleet, self.requests)
        for name in by_host:
            self.fleet.put(self.capacities[name], self.leases[name])
        return found

    def one_by_one(self) -> list[Candidate] | None:
        """Victims for each request in turn; None when one of them fits nowhere then."""
        capacities, leases = dict(self.capacities), {name: list(held) for name, held in self.leases.items()}
        found = self._one_by_one(capacities, leases)
        for name, capacity in capacities.items():
            if capacity is not self.capacities[name]:
                self.fleet.put(self.capacities[name], self.leases[name])
        return found

    def _one_by_one(
        self, capacities: dict[str, HostCapacity], leases: dict[str, list[Lease]]
    ) -> list[Candidate] | None:
        """capacities, leases: as they are in the fleet, kept up with what goes and comes."""
        gone: list[Candidate] = []
        for index in the_hard_ones_first(self.requests):
            request = self.requests[index]
            placement = self.fleet.place(request)
            if placement is None:
                staying = [one for one in self.candidates if one not in gone]
                taken = [lease for held in leases.values() for lease in held]
                eviction = fewest_victims(request, list(capacities.values()), taken, staying)
                if eviction is None:
                    return None
                placement = eviction.placement
                gone.extend(eviction.victims)
                for name, there in self._by_host(eviction.victims).items():
                    capacities[name] = relieved(capacities[name], there)
                    leases[name] = left_of(leases.get(name, []), there)
                    self.fleet.put(capacities[name], leases[name])
            name, constraints = placement.host, request.constraints
            groups = set() if constraints.group is None else {(request.tenant, constraints.group)}
            capacities[name] = replace(
                with_promised(capacities[name], more=[footprint_of(request, placement)]),
                groups=capacities[name].groups | groups,
            )
            leases.setdefault(name, []).extend(promised_leases_of(placement, index))
            self.fleet.put(capacities[name], leases[name])
        return gone

    def _by_host(self, gone: Sequence[Candidate]) -> dict[str, list[Candidate]]:
        """The VMs of each host of the search; members of gangs on other hosts free nothing here."""
        found: dict[str, list[Candidate]] = {}
        for one in gone:
            if one.host in self.capacities:
                found.setdefault(one.host, []).append(one)
        return found
