# SPDX-License-Identifier: Apache-2.0
"""The new place of a VM that is resized, on the host where it is: as if it had given back what it gives up.

GPUs that stay as they are keep their shares. Where the new ones fit only if those change too, all are chosen again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.steps import Step
from vgpuctl.catalog.vgpu_terms import terms_of
from vgpuctl.errors import NoCapacity
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.lease import Lease, Share
from vgpuctl.model.numa import GuestNuma
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.planner.plan import plan_release, refuse_terms
from vgpuctl.scheduler.guest_place import footprint_of_vm, give_numa
from vgpuctl.scheduler.host_rules import left_on
from vgpuctl.scheduler.place import place
from vgpuctl.scheduler.relieve import relieve
from vgpuctl.usecases.network.ports import attachments_of, with_attachments
from vgpuctl.usecases.observed.capacities import capacity_of, open_to_its_own, read_promises, rules_of
from vgpuctl.usecases.placement.reservations import with_promises
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.partitions import require_partition
from vgpuctl.usecases.share.shares import leases_of, plan_leases, refuse_together


@dataclass(frozen=True)
class NewPlace:
    """The new size of a VM on its host.

    facts: of the host, as read, without what the VM gives up. before: its leases. ending, beginning: those that it
    gives up and gets; it keeps the others. A VM that has released its shares gets none: its next start places it.
    building: the steps that make those it gets, and give new parameters to those that it keeps.
    """

    facts: HostFacts
    numa: GuestNuma | None
    before: tuple[Lease, ...]
    ending: tuple[Lease, ...]
    beginning: tuple[Lease, ...]
    building: tuple[Step, ...]

    @property
    def after(self) -> tuple[Lease, ...]:
        """The leases that the VM has then, by index."""
        kept = [one for one in self.before if one not in self.ending]
        return tuple(sorted((*kept, *self.beginning), key=lambda one: one.index))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps on the host, which must be read before they are taken: release of the old, then the new."""
        released = [step for one in self.ending for step in plan_release(one.share, None).steps]
        return (*dict.fromkeys(released), *self.building)


def place_here(services: Services, vm: Vm, request: VmRequest) -> NewPlace:
    """Find a place for the VM as it is to be on its own host, which is read. Writes nothing.

    Raises NoCapacity, with a reason for each GPU as it would be when the VM had given up its shares.
    """
    facts = services.host(vm.host).agent.facts()
    with services.store.reading() as session:
        own = session.leases(vm_uuid=vm.uuid)
    kept = _unchanged(vm.request, request, own)
    if request.vgpu_params != vm.request.vgpu_params:
        rules, terms = rules_of(services, vm.host), terms_of(replace(vm, request=request).as_known)
        kept = tuple(one for one in kept if refuse_terms(one.share, facts, rules, terms) is None)
    search = _Search(services, vm, request, facts, own)
    if not kept:
        return search.find(())
    try:
        return search.find(kept)
    except NoCapacity:
        if request.gpus == vm.request.gpus:
            raise
        return search.find(())


def place_more(services: Services, vm: Vm, gpu: GpuRequest) -> Share:
    """Find a share for one more GPU of a VM on its host, which is read. Writes nothing. Raises NoCapacity."""
    facts = services.host(vm.host).agent.facts()
    with services.store.reading() as session:
        own = session.leases(vm_uuid=vm.uuid)
        taken = with_promises(session, session.leases(), vm.request, vm)
    capacity = room_on(services, vm, facts, own)
    (share,) = place(replace(vm.as_known, gpus=(gpu,), host=vm.host), [capacity], taken).shares
    return share


def room_on(services: Services, vm: Vm, facts: HostFacts, own: Sequence[Lease]) -> HostCapacity:
    """The VM's host as if the VM were not there; its own may always be there, whatever keeps new VMs away."""
    with services.store.reading() as session:
        generation = session.generation(vm.host)
        promises = read_promises(session, without=[vm.uuid])
    freed = [footprint_of_vm(vm, own)] if vm.state is VmState.RUNNING else []
    relieved = relieve(facts, [], {vm.uuid}, freed)
    return open_to_its_own(capacity_of(vm.host, relieved, generation, promises, services.inventory))


def give_numa_again(
    services: Services, vm: Vm, request: VmRequest, facts: HostFacts, leases: Sequence[Lease]
) -> tuple[GuestNuma | None, int]:
    """The VM's part of the NUMA nodes in its new size, by what is promised now, and the host's generation then.

    facts: of its host, without the VM. leases: those that it has then. Raises NoCapacity.
    """
    capacity = room_on(services, replace(vm, state=VmState.STOPPED), facts, ())
    return _numa(request, capacity, [one.share.numa_node for one in leases]), capacity.generation


@dataclass(frozen=True)
class _Search:
    services: Services
    vm: Vm
    request: VmRequest
    facts: HostFacts
    own: Sequence[Lease]

    def find(self, kept: Collection[Lease]) -> NewPlace:
        """Place the VM with these of its leases. Raises NoCapacity."""
        ending = tuple(one for one in self.own if one not in kept)
        facts = relieve(self.facts, [one.share for one in ending], {self.vm.uuid}, ())
        capacity = room_on(self.services, self.vm, facts, self.own)
        at: dict[int | None, Lease] = {one.index: one for one in kept}
        singles = placed_gpus(self.request.gpus)
        changed = tuple(one for one in singles if one.position not in at)
        resized = replace(self.vm, request=self.request)
        wanted = replace(resized.as_known, gpus=changed, host=self.vm.host)
        wanted = with_attachments(wanted, attachments_of(self.services, self.vm))
        placed = place(wanted, [capacity], self._taken(kept))
        fresh = iter(placed.shares)
        shares = [at[one.position].share if one.position in at else next(fresh) for one in singles]
        require_partition(shares, self.facts)
        refuse_together(self.vm, shares, self.facts)
        numa = _numa(self.request, capacity, [one.numa_node for one in shares])
        has_released = self.vm.state is VmState.STOPPED and not self.own and bool(self.vm.request.gpus)
        there = Placement(self.vm.host, tuple(shares), numa=numa)
        made = () if has_released else leases_of(resized, there)
        beginning = tuple(one for one in made if one.index not in at)
        room = room_on(self.services, self.vm, facts, self.own)
        has_other_params = self.request.vgpu_params != self.vm.request.vgpu_params
        written = (*kept, *beginning) if has_other_params else beginning
        building, _undo = plan_leases(resized, written, room.facts, room.rules)
        return NewPlace(room.facts, numa, tuple(self.own), ending, beginning, building)

    def _taken(self, kept: Collection[Lease]) -> list[Lease]:
        with self.services.store.reading() as session:
            every = with_promises(session, session.leases(), self.request, self.vm)
        return [one for one in every if one.vm_uuid != self.vm.uuid or one in kept]


def _unchanged(before: VmRequest, after: VmRequest, own: Sequence[Lease]) -> tuple[Lease, ...]:
    """The leases of GPUs that the VM keeps as they are."""
    old, new = ({one.position: one for one in placed_gpus(request.gpus)} for request in (before, after))
    return tuple(one for one in own if one.index in old and old[one.index] == new.get(one.index))


def _numa(request: VmRequest, capacity: HostCapacity, gpu_numa_nodes: Sequence[int | None]) -> GuestNuma | None:
    numa, fits = give_numa(request, capacity, gpu_numa_nodes)
    if not fits:
        left = "; ".join(map(str, left_on(request, capacity)))
        raise NoCapacity(f"{capacity.name} has no room for VM {request.name} in its new size", context=[left])
    return numa
