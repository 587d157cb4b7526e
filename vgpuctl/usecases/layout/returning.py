# SPDX-License-Identifier: Apache-2.0
"""The VMs that a layout stops, placed into the layout before anything stops: those that find no room keep their GPU."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import NoCapacity, StateError
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.host_constraints import NO_HOST_CONSTRAINTS
from vgpuctl.model.layout import HostLayout, MigVgpuLayout, SizeMode, VgpuLayout
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.planner.layout.reached import reached
from vgpuctl.planner.layout.result import HostPlan, Stranded
from vgpuctl.scheduler.capacity import PlacedVm, without_vms
from vgpuctl.scheduler.gang import promised_leases_of
from vgpuctl.scheduler.guest_place import footprint_of, footprint_of_vm
from vgpuctl.scheduler.host_memory import with_promised
from vgpuctl.scheduler.place import place, place_again
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.sharing.matching import entries_for
from vgpuctl.usecases.declared.layout_records import shares_made
from vgpuctl.usecases.observed.capacities import capacity_of, open_to_its_own, read_promises
from vgpuctl.usecases.placement.reservations import with_promises
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.start_vm import refuse_closed

CANNOT_RETURN = "vm-cannot-return"
_STATES = (VmState.RUNNING, VmState.STOPPED)


def find_stranded(
    services: Services, host: str, layout: HostLayout, facts: HostFacts, plan: HostPlan
) -> dict[str, Stranded]:
    """The GPUs whose steps lead nowhere, by address: they stop a VM that could not start again, or leave no room for
    the shares that the layout keeps ready.

    The VMs are placed by the rules and in the order in which the run starts them, on the host as the steps leave it;
    then the layout's shares. VMs that the store does not know are never stopped, and a GPU with a vGPU of theirs is
    taken as it is.
    """
    users = {gpu: [one for one in found if not one.is_foreign] for gpu, found in plan.disturbed_by_gpu().items()}
    if not users:
        return {}
    names = dict.fromkeys((one.tenant or "", one.vm or "") for found in users.values() for one in found)
    with services.store.reading() as session:
        vms = [vm for vm in (session.vm(*name) for name in names) if vm is not None]
        own = {vm.uuid: session.leases(vm_uuid=vm.uuid) for vm in vms}
        every = session.leases()
        capacity = capacity_of(host, facts, session.generation(host), read_promises(session), services.inventory)
        promised = {vm.uuid: with_promises(session, every, vm.request, vm) for vm in vms}
    leased = {one.share.vfio_device for one in every if one.host == host}
    made = shares_made(services, host, facts)
    changing = [
        gpu.address
        for gpu in facts.gpus
        if gpu.address in users and all(one.vfio_device in {*leased, *made} for one in existing_vgpus(gpu))
    ]
    placed = [
        PlacedVm(vm.uuid, vm.request.name, vm.request, vm.host, footprint_of_vm(vm, own[vm.uuid]), tuple(own[vm.uuid]))
        for vm in vms
    ]
    capacity = open_to_its_own(without_vms(capacity, placed))
    capacity = replace(capacity, facts=reached(capacity.facts, layout, changing))
    returned: list[Lease] = []
    for number, vm in enumerate(vms):
        others = [one for one in promised[vm.uuid] if one.vm_uuid not in own]
        try:
            capacity, taken = _return(services, vm, capacity, [*others, *returned], number)
        except (NoCapacity, StateError) as error:
            reason = "; ".join(error.context[:1]) if isinstance(error, NoCapacity) and error.context else error.message
            stranded = Stranded(CANNOT_RETURN, f"{vm.printed_name} could not start again in the new layout: {reason}")
            name = (vm.request.tenant, vm.request.name)
            return {gpu: stranded for gpu, found in users.items() if name in {(one.tenant, one.vm) for one in found}}
        returned += taken
    staying = [one for one in every if one.host == host and one.vm_uuid not in own]
    return _without_room_for_shares(capacity, layout, changing, [*staying, *returned])


def _return(
    services: Services, vm: Vm, capacity: HostCapacity, leases: Sequence[Lease], number: int
) -> tuple[HostCapacity, list[Lease]]:
    """The host with the VM on it again, and its leases. Raises NoCapacity; StateError where nothing may."""
    if vm.is_adopted:
        raise StateError(f"its domain {vm.domain_name} was adopted and names its shares itself")
    if vm.state not in _STATES:
        raise StateError(f"it is {vm.state}")
    refuse_closed(services, vm)
    request = replace(vm.as_known, host=vm.host)
    placement = place_again(request, capacity, leases, vm.numa)
    return with_promised(capacity, more=[footprint_of(request, placement)]), promised_leases_of(placement, number)


def _without_room_for_shares(
    capacity: HostCapacity, layout: HostLayout, addresses: Collection[str], leases: Sequence[Lease]
) -> dict[str, Stranded]:
    """The GPUs on which the VMs leave no room for the shares that the layout keeps ready."""
    found: dict[str, Stranded] = {}
    for gpu in capacity.facts.gpus:
        declared = entries_for(gpu, layout.gpus)[0].layout if gpu.address in addresses else None
        if not isinstance(declared, VgpuLayout | MigVgpuLayout):
            continue
        facts = replace(capacity.facts, gpus=(gpu,))
        alone = replace(capacity, facts=facts, constraints=NO_HOST_CONSTRAINTS, restrictions=())
        here = [one for one in leases if one.share.gpu == gpu.address]
        counts = Counter(one.share.profile for one in here)
        offered = {catalog.short_name(one.name): one.framebuffer_mib for one in gpu.types}
        sizes = {offered[name] for name in {*counts, *dict(declared.shares)} & offered.keys()}
        if isinstance(declared, MigVgpuLayout) and declared.size_mode is not SizeMode.EQUAL and len(sizes) > 1:
            continue  # Where sizes mix within an instance, only the driver knows its places.
        for name, wanted in declared.shares:
            request = VmRequest("share", "", (GpuRequest(name, profile=name),), vcpus=0, memory_mib=0)
            for number in range(counts[name], wanted if name in offered else 0):
                try:
                    placement = place(request, [alone], here)
                except NoCapacity:
                    beside = f" beside {', '.join(sorted(counts))}" if counts else ""
                    reason = f"{gpu.address} has no room for {wanted} x {name}{beside}"
                    found[gpu.address] = Stranded("no-room", reason)
                    break
                here += promised_leases_of(placement, 1000 * (len(here) + 1) + number)
    return found
