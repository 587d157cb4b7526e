# SPDX-License-Identifier: Apache-2.0
"""VMs that are placed together or not at all; one VM is a gang of one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vgpuctl.model.host_parts import NO_PARTS, HostPart, parts_needed
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.placement import Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.performance.measurement import UNLABELLED
from vgpuctl.sharing.kinds import kind_of

MOST_TRIES = 2000
"""Placements looked at for one gang, a guard against gangs made to be hard."""


def place_together(fleet: Fleet, requests: Sequence[VmRequest]) -> list[Placement] | None:
    """A placement for every request, in their order; None when they do not go together. The fleet is left as it was.

    The hard ones are placed first, each where the policy wants it. When that leaves no place for another, the choice is
    rolled back and the next host tried; hosts in an equal state are tried once. The policy
    chooses the GPU of a host.
    """
    order = the_hard_ones_first(requests)
    last = fleet.last_host
    found = _GangSearch(fleet, [requests[index] for index in order]).choose(0)
    fleet.last_host = last
    if found is None:
        return None
    by_request = dict(zip(order, found, strict=True))
    return [by_request[index] for index in range(len(requests))]


@dataclass
class _GangSearch:
    """Depth first, the policy's choice first."""

    fleet: Fleet
    requests: Sequence[VmRequest]
    tries: int = 0

    @cached_property
    def parts(self) -> frozenset[HostPart]:
        """The parts of hosts that any of the VMs needs."""
        return NO_PARTS.union(*map(parts_needed, self.requests))

    def choose(self, index: int) -> list[Placement] | None:
        if index == len(self.requests):
            return []
        request = self.requests[index]
        group = None if request.constraints.group is None else (request.tenant, request.constraints.group)
        for placement in self._choices(request):
            self.tries += 1
            if self.tries > MOST_TRIES:
                return None
            if index + 1 == len(self.requests):
                return [placement]
            leases = promised_leases_of(placement, index)
            footprint = footprint_of(request, placement)
            self.fleet.learn_workloads(dict.fromkeys((one.vm_uuid for one in leases), request.workload or UNLABELLED))
            self.fleet.take(placement.host, leases, footprint, group)
            rest = self.choose(index + 1)
            self.fleet.release(placement.host, leases, footprint, group)
            if rest is not None:
                return [placement, *rest]
        return None

    def _choices(self, request: VmRequest) -> Iterator[Placement]:
        """The policy's choice, then one host of each other state."""
        first = self.fleet.place(request)
        if first is None:
            return
        yield first
        tried = {self.fleet.hosts[first.host].state_for(self.parts)}
        for name in sorted(self.fleet.hosts):
            state = self.fleet.hosts[name].state_for(self.parts)
            if request.host not in (None, name) or (state in tried and request.constraints.group is None):
                continue
            tried.add(state)
            placement = self.fleet.place(replace(request, host=name))
            if placement is not None and placement != first:
                yield placement


def the_hard_ones_first(requests: Sequence[VmRequest]) -> list[int]:
    """The positions of the requests in the order in which they are placed."""
    return sorted(range(len(requests)), key=lambda index: (*_hardness(requests[index]), index))


def _hardness(request: VmRequest) -> tuple[bool, int, int]:
    """VMs that must be on one host first, then those with many GPUs, then those with much memory."""
    return (request.host is None, -sum(gpu.count for gpu in request.gpus), -request.memory_mib)


def as_one(requests: Sequence[VmRequest]) -> VmRequest:
    """The first request with what VMs that are created together share: the least priority and the longest time."""
    durations = [one.duration_s for one in requests]
    longest = None if None in durations else max(one for one in durations if one is not None)
    return replace(requests[0], priority=min(one.priority for one in requests), duration_s=longest)


def promised_leases_of(placement: Placement, number: int) -> list[Lease]:
    """Leases of a VM of the gang at that place, as the scheduler counts them. number: of the VM in the gang."""
    leases = []
    for index, chosen in enumerate(placement.shares):
        identity = f"together-{number}-{index}"
        chosen = kind_of(chosen.sharing).named(chosen, identity)
        leases.append(Lease(identity, identity, "", identity, placement.host, index, chosen, LeaseState.RESERVED))
    return leases
