# SPDX-License-Identifier: Apache-2.0
"""How many more VMs of one kind fit, with the rules that place them; and how many would if VMs could move."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.host_parts import parts_needed
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.numa import NO_FOOTPRINT, Footprint
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.relieve import relieve
from vgpuctl.sharing.kinds import kind_of


@dataclass(frozen=True)
class PlacedVm:
    """A VM that is there with all it holds. footprint: nothing when its guest does not run."""

    vm_uuid: str
    name: str
    request: VmRequest
    host: str
    footprint: Footprint
    leases: tuple[Lease, ...]


@dataclass(frozen=True)
class Move:
    """One VM that would change its place."""

    name: str
    host: str
    placement: Placement


@dataclass(frozen=True)
class Defragmented:
    """How many more fit after these moves, all together; None for the moves when no better packing was found."""

    counts: Counter[str]
    moves: tuple[Move, ...]


def count_more(request: VmRequest, capacities: Sequence[HostCapacity], leases: Iterable[Lease]) -> Counter[str]:
    """How many more VMs like this one fit, by host.

    They are placed one after another with the rules of `place` until none fits, so the number is one that can be had.
    Of one share each it is the largest: GPUs do not depend on each other. Groups and the host of the request count.
    """
    by_host: dict[str, list[Lease]] = {capacity.name: [] for capacity in capacities}
    for lease in leases:
        by_host.setdefault(lease.host, []).append(lease)
    if request.constraints.group is not None:
        return _fill(request, Fleet(capacities, [one for found in by_host.values() for one in found]))
    if len(capacities) == 1:
        (only,) = capacities
        return _fill(request, Fleet([only], by_host[only.name]))
    fleet = Fleet()
    parts = parts_needed(request)
    known: dict[Hashable, int] = {}
    counts: Counter[str] = Counter()
    for capacity in capacities:
        fleet.put(capacity, by_host[capacity.name])
        state = fleet.hosts[capacity.name].state_for(parts)
        if state not in known:
            alone = Fleet([capacity], by_host[capacity.name])
            known[state] = sum(_fill(replace(request, host=None), alone).values())
        if known[state] and request.host in (None, capacity.name):
            counts[capacity.name] = known[state]
    return counts


def defragment(
    request: VmRequest, capacities: Sequence[HostCapacity], leases: Sequence[Lease], vms: Sequence[PlacedVm]
) -> Defragmented:
    """The VMs that fit after a new placement of all VMs, the largest first, and the VMs that would move.

    Devices without a lease stay. Hosts, labels and groups that the VMs require are kept. When a VM finds no
    place in the new order, or no more fit than do now, nothing moves.
    """
    now = count_more(request, capacities, leases)
    fleet, moved = _repack(capacities, leases, vms)
    if fleet is None:
        return Defragmented(now, ())
    then = _fill(request, fleet)
    if sum(then.values()) <= sum(now.values()):
        return Defragmented(now, ())
    return Defragmented(then, tuple(moved))


def _repack(
    capacities: Sequence[HostCapacity], leases: Sequence[Lease], vms: Sequence[PlacedVm]
) -> tuple[Fleet | None, list[Move]]:
    moving = [vm for vm in vms if vm.leases]
    gone = {vm.vm_uuid for vm in moving}
    relieved = [without_vms(capacity, [vm for vm in moving if vm.host == capacity.name]) for capacity in capacities]
    fleet = Fleet(relieved, [lease for lease in leases if lease.vm_uuid not in gone])
    moves: list[Move] = []
    for vm in sorted(moving, key=_size):
        request = as_it_is(vm)
        placement = fleet.place(request)
        if placement is None:
            return None, []
        new = [_moved(lease, placement, index) for index, lease in enumerate(vm.leases)]
        footprint = NO_FOOTPRINT if vm.footprint == NO_FOOTPRINT else footprint_of(request, placement)
        fleet.take(placement.host, new, footprint, group_of(vm.request))
        before = sorted((lease.host, lease.share.gpu) for lease in vm.leases)
        if before != sorted((lease.host, lease.share.gpu) for lease in new):
            moves.append(Move(vm.name, vm.host, placement))
    return fleet, moves


def without_vms(capacity: HostCapacity, vms: Sequence[PlacedVm]) -> HostCapacity:
    """The host as it would be read without these VMs, all on it."""
    freed = [vm.footprint for vm in vms]
    shares = [lease.share for vm in vms for lease in vm.leases]
    own = {group_of(vm.request) for vm in vms}
    return replace(
        with_promised(capacity, less=freed),
        facts=relieve(capacity.facts, shares, {vm.vm_uuid for vm in vms}, freed),
        groups=frozenset(group for group in capacity.groups if group not in own),
    )


def as_it_is(vm: PlacedVm) -> VmRequest:
    """The request for what the VM has, where it named conditions."""
    gpus = []
    position = 0
    for gpu in vm.request.gpus:
        held = vm.leases[position : position + gpu.count]
        position += gpu.count
        if gpu.profile is not None or gpu.sharing is not None or not held:
            gpus.append(gpu)
        else:
            gpus.extend(
                replace(gpu, count=1, profile=one.share.profile, minimum_memory_mib=None, exact_memory_mib=None)
                for one in held
            )
    return replace(vm.request, gpus=tuple(gpus))


def _moved(lease: Lease, placement: Placement, index: int) -> Lease:
    new = placement.shares[index]
    return replace(lease, host=placement.host, share=replace(new, mdev_uuid=lease.share.mdev_uuid))


def _size(vm: PlacedVm) -> tuple[int, int, str]:
    """Several GPUs first, then the largest shares; where a VM must be comes before where it may be."""
    return (-len(vm.leases), -max(lease.share.framebuffer_mib or 0 for lease in vm.leases), vm.name)


def group_of(request: VmRequest) -> tuple[str, str] | None:
    """The group of a VM as hosts have it: tenant and name."""
    return None if request.constraints.group is None else (request.tenant, request.constraints.group)


def _fill(request: VmRequest, fleet: Fleet) -> Counter[str]:
    """Place one after another until none fits."""
    counts: Counter[str] = Counter()
    while (placement := fleet.place(request)) is not None:
        number = sum(counts.values())
        leases = [_lease(placement, number, index) for index in range(len(placement.shares))]
        fleet.take(placement.host, leases, footprint_of(request, placement), group_of(request))
        counts[placement.host] += 1
    return counts


def _lease(placement: Placement, number: int, index: int) -> Lease:
    chosen = placement.shares[index]
    identity = f"one-more-{number}-{index}"
    chosen = kind_of(chosen.sharing).named(chosen, identity)
    return Lease(identity, identity, "", identity, placement.host, index, chosen, LeaseState.RESERVED)
