# SPDX-License-Identifier: Apache-2.0
"""How much room a changed fleet has: the replay that placing rules answer."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpuctl import catalog
from vgpuctl.model.compute import percent_text
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.advice.measured import MeasuredFleet
from vgpuctl.scheduler.advice.replayed_fleet import HostLayout, ReplayedFleet, count_on, only
from vgpuctl.scheduler.capacity import PlacedVm, without_vms
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.sharing.kinds import kind_of


@dataclass(frozen=True)
class Layout:
    """Hosts and leases as they would be. changed: the hosts that differ from the fleet as it is, by name."""

    replayed: ReplayedFleet
    changed: Mapping[str, HostLayout] = field(default_factory=dict)

    def host(self, name: str) -> HostLayout:
        """One host as it would be."""
        return self.changed[name] if name in self.changed else self.replayed.hosts[name]

    def place(self, request: VmRequest) -> Placement | None:
        """Where the VM would go, None if it fits nowhere."""
        with self.replayed.changed(self.changed) as fleet:
            return fleet.place(request)

    def with_host(self, capacity: HostCapacity, leases: Iterable[Lease]) -> "Layout":
        """The layout with another one of a host."""
        return Layout(self.replayed, {**self.changed, capacity.name: (capacity, tuple(leases))})


def layout_of(fleet: MeasuredFleet) -> Layout:
    """The fleet as it is."""
    return Layout(fleet.replayed)


def without(layout: Layout, vms: Sequence[PlacedVm]) -> Layout:
    """The layout without these VMs."""
    gone = {vm.vm_uuid for vm in vms}
    for name in sorted({lease.host for vm in vms for lease in vm.leases} | {vm.host for vm in vms}):
        if name in layout.replayed.hosts:
            capacity, leases = layout.host(name)
            freed = without_vms(capacity, [vm for vm in vms if vm.host == name])
            layout = layout.with_host(freed, (one for one in leases if one.vm_uuid not in gone))
    return layout


def with_vm(layout: Layout, vm: PlacedVm, request: VmRequest, placement: Placement) -> Layout:
    """The layout with a VM at a place. It is not seen on its host, so the leases count it."""
    more = [
        Lease(f"{vm.vm_uuid}/{index}", vm.vm_uuid, request.tenant, request.name, placement.host, index, share, _STATE)
        for index, share in enumerate(_named(placement.shares, vm.vm_uuid))
    ]
    capacity, leases = layout.host(placement.host)
    return layout.with_host(with_promised(capacity, more=[footprint_of(request, placement)]), (*leases, *more))


_STATE = LeaseState.RESERVED


def _named(shares: Iterable[Share], uuid: str) -> list[Share]:
    return [kind_of(one.sharing).named(one, f"{uuid}/{index}") for index, one in enumerate(shares)]


def room_for(layout: Layout, profiles: Collection[str]) -> dict[str, int]:
    """How many more VMs of each profile fit, small VMs with one share each."""
    return {name: _room(layout, name) for name in sorted(profiles)}


def _room(layout: Layout, profile: str) -> int:
    now = layout.replayed.count(profile)
    same = now.total() - sum(now[name] for name in layout.changed)
    # GPUs of different hosts do not depend on each other, so only the changed hosts are counted again.
    return same + sum(count_on(one, profile) for one in layout.changed.values())


def could_gain(layout: Layout, profiles: Iterable[str]) -> bool:
    """Return True if a profile has more room on the GPUs that differ. Memory of their hosts may still limit it."""
    pairs = [
        (only(layout.replayed.hosts[name], gpus), only(host, gpus))
        for name, host in layout.changed.items()
        for gpus in [_gpus_that_differ(layout.replayed.hosts[name], host)]
    ]
    return any(
        sum(count_on(then, name) - layout.replayed.count_on(now, name) for now, then in pairs) > 0 for name in profiles
    )


def _gpus_that_differ(now: HostLayout, then: HostLayout) -> frozenset[str]:
    before, after = now[1], then[1]
    return frozenset(
        one.share.gpu for some, others in ((before, after), (after, before)) for one in some if one not in others
    )


def starts_now(fleet: MeasuredFleet) -> list[str]:
    """The waiting VMs that would start in the fleet as it is."""
    if fleet.replayed.starting is None:
        fleet.replayed.starting = starts(layout_of(fleet), fleet.waiting)
    return fleet.replayed.starting


def starts(layout: Layout, waiting: Sequence[VmRequest]) -> list[str]:
    """The waiting VMs that would start, in their order, each beside those before it."""
    if not waiting:
        return []
    found: list[str] = []
    taken: set[str] = set()
    with layout.replayed.changed(layout.changed) as fleet:
        try:
            for number, request in enumerate(waiting):
                placement = fleet.place(request)
                if placement is None:
                    continue
                uuid = f"waits-{number}"
                leases = [
                    Lease(f"{uuid}/{at}", uuid, request.tenant, request.name, placement.host, at, share, _STATE)
                    for at, share in enumerate(_named(placement.shares, uuid))
                ]
                taken.add(placement.host)
                fleet.take(placement.host, leases, footprint_of(request, placement))
                found.append(f"{request.tenant}/{request.name}")
        finally:
            layout.replayed.restore(taken)
    return found


def with_profile(request: VmRequest, profile: str) -> VmRequest:
    """The request of a VM with one share, with another profile, and with the compute time that it asks for."""
    return replace(request, gpus=(catalog.read_gpu_request(asked_text(request, profile)),))


def asked_text(request: VmRequest, profile: str) -> str:
    """`--gpu` of a VM with one share for another profile: `A40-8Q,compute>=15%`."""
    asked: GpuRequest | None = next(iter(request.gpus), None)
    if asked is None:
        return profile
    least, kind = asked.minimum_compute_percent, asked.compute
    words = [] if least is None else [f"compute>={percent_text(least)}"]
    words += [] if kind is None else [f"compute={kind}"]
    return ",".join((profile, *words))


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


def improvement(fleet: MeasuredFleet, after: Layout, profiles: Collection[str]) -> Improvement | None:
    """The gain of a change; None if no waiting VM starts and no more framebuffer can be used by any profile."""
    if not fleet.waiting and not could_gain(after, profiles):
        return None
    now, then = room_for(layout_of(fleet), profiles), room_for(after, profiles)
    usable = _usable(then) - _usable(now)
    already = starts_now(fleet)
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
