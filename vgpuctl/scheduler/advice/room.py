# SPDX-License-Identifier: Apache-2.0
"""How much room a changed fleet has: the replay that placing rules answer."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl import catalog
from vgpuctl.model.gpu_request import GpuRequest, parse_gpu_request
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.advice.measured import MeasuredFleet
from vgpuctl.scheduler.capacity import PlacedVm, count_more, without_vms
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.sharing.kinds import kind_of


@dataclass(frozen=True)
class Layout:
    """Hosts and leases, as they are or as they would be."""

    capacities: tuple[HostCapacity, ...]
    leases: tuple[Lease, ...]

    def fleet(self) -> Fleet:
        """The fleet to place on."""
        return Fleet(self.capacities, self.leases)


def layout_of(fleet: MeasuredFleet) -> Layout:
    """The fleet as it is."""
    return Layout(fleet.capacities, fleet.leases)


def without(layout: Layout, vms: Sequence[PlacedVm]) -> Layout:
    """The layout without these VMs."""
    gone = {vm.vm_uuid for vm in vms}
    names = {vm.host for vm in vms}
    capacities = tuple(
        without_vms(one, [vm for vm in vms if vm.host == one.name]) if one.name in names else one
        for one in layout.capacities
    )
    return Layout(capacities, tuple(one for one in layout.leases if one.vm_uuid not in gone))


def with_vm(layout: Layout, vm: PlacedVm, request: VmRequest, placement: Placement) -> Layout:
    """The layout with a VM at a place. It is not seen on its host, so the leases count it."""
    leases = [
        Lease(f"{vm.vm_uuid}/{index}", vm.vm_uuid, request.tenant, request.name, placement.host, index, share, _STATE)
        for index, share in enumerate(_named(placement.shares, vm.vm_uuid))
    ]
    footprint = footprint_of(request, placement)
    capacities = tuple(
        with_promised(one, more=[footprint]) if one.name == placement.host else one for one in layout.capacities
    )
    return Layout(capacities, (*layout.leases, *leases))


_STATE = LeaseState.RESERVED


def _named(shares: Iterable[Share], uuid: str) -> list[Share]:
    return [kind_of(one.sharing).named(one, f"{uuid}/{index}") for index, one in enumerate(shares)]


def room_for(layout: Layout, profiles: Collection[str]) -> dict[str, int]:
    """How many more VMs of each profile fit, small VMs with one share each."""
    return {
        name: sum(count_more(small_vm(name), layout.capacities, layout.leases).values()) for name in sorted(profiles)
    }


def starts(layout: Layout, waiting: Sequence[VmRequest]) -> list[str]:
    """The waiting VMs that would start, in their order, each beside those before it."""
    fleet, found = layout.fleet(), []
    for number, request in enumerate(waiting):
        placement = fleet.place(request)
        if placement is None:
            continue
        leases = [
            Lease(
                f"waits-{number}/{index}",
                f"waits-{number}",
                request.tenant,
                request.name,
                placement.host,
                index,
                share,
                _STATE,
            )
            for index, share in enumerate(_named(placement.shares, f"waits-{number}"))
        ]
        fleet.take(placement.host, leases, footprint_of(request, placement))
        found.append(f"{request.tenant}.{request.name}")
    return found


def small_vm(what: str) -> VmRequest:
    """A VM that is limited by its GPU alone."""
    return VmRequest("more", "", (parse_gpu_request(what),), vcpus=1, memory_mib=64)


def with_profile(request: VmRequest, profile: str) -> VmRequest:
    """The request of a VM with one share, with another profile."""
    gpu: GpuRequest = parse_gpu_request(profile)
    return replace(request, gpus=(gpu,))


def profiles_in_use(fleet: MeasuredFleet) -> set[str]:
    """The vGPU types that VMs have now or wait for."""
    asked = {gpu.profile for one in fleet.waiting for gpu in one.gpus if gpu.profile is not None}
    return asked | {one.lease.share.profile for one in fleet.vgpus}


@dataclass(frozen=True)
class Improvement:
    """The gain of a change in room. text: in words. usable_mib: more framebuffer that some profile can use.

    started: waiting VMs that could start.
    """

    text: str
    usable_mib: float
    started: tuple[str, ...] = ()


def improvement(fleet: MeasuredFleet, before: Layout, after: Layout, profiles: Collection[str]) -> Improvement | None:
    """The gain of a change; None if no waiting VM starts and no more framebuffer can be used by any profile."""
    now, then = room_for(before, profiles), room_for(after, profiles)
    usable = _usable(then) - _usable(now)
    already = starts(before, fleet.waiting)
    started = tuple(one for one in starts(after, fleet.waiting) if one not in already)
    if usable <= 0 and not started:
        return None
    words = [f"room for {then[name]} more {name} instead of {now[name]}" for name in then if then[name] != now[name]]
    if started:
        words.insert(0, f"{', '.join(started)} can start")
    return Improvement("; ".join(words), usable, started)


def _usable(counts: Mapping[str, int]) -> float:
    """The most framebuffer that VMs of one profile could still take, in MiB, added up over boards."""
    best: dict[str, int] = {}
    for name, count in counts.items():
        board = name.rpartition("-")[0]
        best[board] = max(best.get(board, 0), count * size_mib(name))
    return float(sum(best.values()))


def size_mib(profile: str) -> int:
    """The framebuffer of a vGPU type, 0 for one that the catalogue does not know."""
    for board in catalog.boards_with_type(profile):
        found = catalog.type_by_name(board, profile)
        if found is not None:
            return found.fb_mib
    return 0
